"""What a fencing plan offers for cutting off a machine that has failed and is kept: no power, and none of the cluster's objects.

A switch port off and volumes detached can be read back, and free pods behind them; a quarantine proves nothing and keeps the
machine from its network. Where the configuration names none of it and the machine is one of a cloud whose volumes can be told
apart, its volumes are detached.
"""

from __future__ import annotations

from dataclasses import replace

from policy.fence.plan import WITH_VOLUMES, Act, FencingPlan, PlannedMethod, PowerDevice

CUTS = frozenset({Act.CUT_PATH, Act.DETACH_VOLUMES, Act.QUARANTINE})
PROVING = frozenset({Act.CUT_PATH, Act.DETACH_VOLUMES})
"""Those that can be read back, and so license that what lies behind them is freed."""


def isolation_plan(plan: FencingPlan) -> FencingPlan:
    """The same plan with nothing in it but cutting off and giving back; `isolation` is empty where it offers nothing."""
    cuts = [method for method in plan.isolation if method.act in CUTS]
    if not cuts:
        cuts = [_volumes(device) for device in plan.devices if device.driver in WITH_VOLUMES]
    if any(method.act in PROVING for method in cuts):
        freeing = next((method for method in plan.isolation if method.act is Act.FREE_CUT_PODS), None)
        cuts.append(freeing or PlannedMethod(name=Act.FREE_CUT_PODS.value, act=Act.FREE_CUT_PODS))
    return replace(plan, isolation=tuple(cuts), recovery=tuple(_ways_back(plan, cuts)))


def _volumes(device: PowerDevice) -> PlannedMethod:
    return PlannedMethod(name=Act.DETACH_VOLUMES.value, act=Act.DETACH_VOLUMES, device=device)


def _ways_back(plan: FencingPlan, cuts: list[PlannedMethod]) -> list[PlannedMethod]:
    """As configured, and for what is cut without one: a machine that is released has to work again."""
    back = [method for method in plan.recovery if method.act in {Act.RESTORE_PATH, Act.LIFT_QUARANTINE}]
    for cut, undone in ((Act.QUARANTINE, Act.LIFT_QUARANTINE), (Act.CUT_PATH, Act.RESTORE_PATH)):
        known = {method.device.endpoint for method in back if method.act is undone and method.device is not None}
        back += [
            PlannedMethod(name=undone.value, act=undone, device=method.device)
            for method in cuts
            if method.act is cut and method.device is not None and method.device.endpoint not in known
        ]
    return back
