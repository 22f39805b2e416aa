"""How one node is fenced: every spelling of the configuration, resolved into one typed `FenceConfig` and judged as a whole.

The spellings: ConfigMaps of the node-fencing proposal and of its published demo (`configmaps.py`), our own `FenceConfig` and
`FencingTemplate` objects (`template_reader.py`), nothing at all (the default: cordon, restart the instance that the providerID
names, uncordon). Nothing downstream knows them: `plan_compiler.py` makes the `FencingPlan` (`plan.py`) that an episode keeps. The
parameters of power drivers are `drivers/`. `activities/cluster/live/plans.py` reads the objects from a cluster.
"""
