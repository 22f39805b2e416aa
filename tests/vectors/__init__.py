"""Cases of what other systems do with their health checks, as given and expected facts.

`health.json` holds them, `objects.py` makes real Kubernetes objects of what is given, and `test_health.py` sends those through
the command's own loader. `fence.json` holds those of other fencing systems, which are used wherever what they are about is tested
(`test_fence_configuration.py` sees that each is).
"""
