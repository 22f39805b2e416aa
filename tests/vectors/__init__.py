"""Cases of what other systems do, as given and expected facts; those that a health check answers are in `tests/cases`.

`health.json` holds what remediators, control planes and retries do, `preservation.json` what machine-controller-manager writes,
`fence.json` cases of other fencing systems, which are used wherever what they are about is tested
(`test_fence_configuration.py` sees that each is). `objects.py` makes Kubernetes objects of what is given.
"""
