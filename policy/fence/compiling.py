"""From a `FenceConfig` to the `FencingPlan` that an episode keeps. Nothing is decided here: the configuration has said it all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from policy.fence.builtin_methods import YES
from policy.fence.config import INSTANCE, FenceConfig, FenceStep, Method, MethodAction
from policy.fence.kdump import KdumpRule
from policy.fence.plan import Act, FencingPlan, Freeing, PlannedMethod, PowerDevice
from policy.fence.validation import levels_of
from policy.values.errors import PolicyError

KDUMP_TIMES = ("window", "silence", "longest")

_ACTS = {
    MethodAction.CORDON: Act.CORDON,
    MethodAction.UNCORDON: Act.UNCORDON,
    MethodAction.TAINT: Act.TAINT,
    MethodAction.DRAIN: Act.DRAIN,
    MethodAction.OFF: Act.CUT_PATH,
    MethodAction.ON: Act.RESTORE_PATH,
    MethodAction.DETACH_VOLUMES: Act.DETACH_VOLUMES,
    MethodAction.QUARANTINE: Act.QUARANTINE,
    MethodAction.LIFT_QUARANTINE: Act.LIFT_QUARANTINE,
    MethodAction.FREE_PODS: Act.FREE_CUT_PODS,
}
"""What methods of isolation and recovery become; of devices only those that carry paths get so far."""


def compile_config(config: FenceConfig, *, taint_honoured: bool = True, after_health_check: bool = True) -> FencingPlan:
    """The plan. Raises PolicyError for a configuration with an error in it: it never holds in part.

    taint_honoured: whether this cluster's controllers act on the out-of-service taint (Kubernetes 1.26 and newer).
    after_health_check: the node has been judged unhealthy for a check's own time, so that it need not stay `new` once more.
    """
    if config.errors:
        raise PolicyError(config.subject, "fence configuration", f"{len(config.errors)} errors, the first: {config.errors[0]}")
    for method in _all(config):
        if method.driver == INSTANCE:
            raise PolicyError(config.subject, method.name, f"nothing says which instance Node/{config.node} is")
    settings = config.settings
    freeing = _freeing(config)
    if freeing is Freeing.OUT_OF_SERVICE_TAINT and not taint_honoured:
        problem = "this cluster's controllers do not act on the out-of-service taint; expected free-pods"
        raise PolicyError(config.subject, FenceStep.POWER_MANAGEMENT.value, problem)
    levels = _levels(config.power_management)
    return replace(
        settings,
        source=config.subject,
        levels=levels,
        isolation=tuple(_planned(method) for method in config.isolation if method.action is not MethodAction.KDUMP),
        recovery=_recovery(config),
        wait_before_isolation=timedelta(0) if after_health_check else settings.wait_before_isolation,
        free_timeout=_free_timeout(config),
        freeing=freeing,
        taint_honoured=taint_honoured,
        power_on=not levels or any(method.device is not None and method.action.has_on for method in config.power_management),
        delete_node=_has(config, MethodAction.DELETE_NODE),
        terminate_instance=_has(config, MethodAction.TERMINATE),
        kdump=_kdump(config),
        warnings=config.warnings,
    )


def _has(config: FenceConfig, action: MethodAction) -> bool:
    return any(method.action is action for method in config.power_management)


def _levels(methods: tuple[Method, ...]) -> tuple[tuple[PowerDevice, ...], ...]:
    found = []
    for level in levels_of(methods):
        devices: dict[str, PowerDevice] = {}
        for method in methods:
            if method.device is not None and method.level == level and method.action.has_off:
                devices.setdefault(method.device.endpoint, method.device)
        if devices:
            found.append(tuple(devices.values()))
    return tuple(found)


def _planned(method: Method) -> PlannedMethod:
    return PlannedMethod(
        name=method.name,
        act=_ACTS[method.action],
        device=method.device,
        parameters={} if method.device is not None else dict(method.parameters),
        storage=method.storage,
        delay=method.delay,
        timeout=method.timeout,
        tries=method.tries,
    )


def _recovery(config: FenceConfig) -> tuple[PlannedMethod, ...]:
    """A quarantine is lifted with what it was imposed with."""
    quarantine = next((method for method in config.isolation if method.action is MethodAction.QUARANTINE), None)
    found = []
    for method in config.recovery:
        planned = _planned(method)
        if planned.act is Act.LIFT_QUARANTINE and quarantine is not None:
            planned = replace(planned, device=quarantine.device)
        found.append(planned)
    return tuple(found)


def _freeing(config: FenceConfig) -> Freeing:
    """What is listed; where nothing is, what the cluster does best (the proposal frees everything after power management)."""
    if config.settings.freeing is not Freeing.AUTOMATIC:
        return config.settings.freeing
    taint = _has(config, MethodAction.OUT_OF_SERVICE_TAINT)
    deletion = _has(config, MethodAction.FREE_PODS) or _has(config, MethodAction.RELEASE_VOLUMES)
    if taint and not deletion:
        return Freeing.OUT_OF_SERVICE_TAINT
    return Freeing.DELETION if deletion and not taint else Freeing.AUTOMATIC


def _free_timeout(config: FenceConfig) -> timedelta:
    freeing = {MethodAction.FREE_PODS, MethodAction.OUT_OF_SERVICE_TAINT, MethodAction.RELEASE_VOLUMES}
    timeouts = [each.timeout for each in config.power_management if each.action in freeing and each.timeout is not None]
    return max(timeouts, default=config.settings.free_timeout)


def _kdump(config: FenceConfig) -> KdumpRule | None:
    method = next((each for each in _all(config) if each.action is MethodAction.KDUMP), None)
    if method is None:
        return None
    told: dict[str, Any] = {
        name: timedelta(seconds=int(method.parameters[name])) for name in KDUMP_TIMES if name in method.parameters
    }
    return replace(KdumpRule(trusted=method.parameters.get("trusted", "no").lower() in YES), **told)


def _all(config: FenceConfig) -> Iterable[Method]:
    return (*config.isolation, *config.power_management, *config.recovery)
