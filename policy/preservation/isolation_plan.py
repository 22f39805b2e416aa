"""The part of a fencing plan that isolates a machine that has failed and is kept: no power command, and no object of the
cluster.

A switched-off port and detached volumes can be read back, and pods behind them may be freed; a quarantine proves nothing and
keeps the machine from its network. Where the configuration has none of them, the volumes of a cloud machine are detached, if
the cloud can tell them apart.
"""

from __future__ import annotations

from dataclasses import replace

from policy.fence.plan import WITH_VOLUMES, Act, FencingPlan, PlannedMethod

CUTS = frozenset({Act.CUT_PATH, Act.DETACH_VOLUMES, Act.QUARANTINE})
PROVING = frozenset({Act.CUT_PATH, Act.DETACH_VOLUMES})
"""The acts that can be read back, and so permit freeing what lies behind them."""


def isolation_plan(plan: FencingPlan) -> FencingPlan:
    """The plan reduced to isolation and its way back; `isolation` is empty where the plan offers none."""
    cuts = [method for method in plan.isolation if method.act in CUTS]
    if not cuts:
        cuts = [
            PlannedMethod(name=Act.DETACH_VOLUMES.value, act=Act.DETACH_VOLUMES, device=device)
            for device in plan.devices
            if device.driver in WITH_VOLUMES
        ]
    if any(method.act in PROVING for method in cuts):
        freeing = next((method for method in plan.isolation if method.act is Act.FREE_CUT_PODS), None)
        cuts.append(freeing or PlannedMethod(name=Act.FREE_CUT_PODS.value, act=Act.FREE_CUT_PODS))
    return replace(plan, isolation=tuple(cuts), recovery=tuple(_ways_back(plan, cuts)))


def _ways_back(plan: FencingPlan, cuts: list[PlannedMethod]) -> list[PlannedMethod]:
    """The configured ways back, and the default one for each cut without: a released machine has to work again."""
    back = [method for method in plan.recovery if method.act in {Act.RESTORE_PATH, Act.LIFT_QUARANTINE}]
    for cut, undone in ((Act.QUARANTINE, Act.LIFT_QUARANTINE), (Act.CUT_PATH, Act.RESTORE_PATH)):
        known = {method.device.endpoint for method in back if method.act is undone and method.device is not None}
        back += [
            PlannedMethod(name=undone.value, act=undone, device=method.device)
            for method in cuts
            if method.act is cut and method.device is not None and method.device.endpoint not in known
        ]
    return back
