"""From a `FenceConfig` to the `FencingPlan` that an episode keeps: `Findings` collects what is wrong while methods are read,
`judge` checks the configuration as a whole, `compile_config` makes the plan.

A configuration that would free something before its proof, switch in the wrong order, or do nothing and report success is refused
before anything is done: when a node is about to lose its power it is too late to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from policy.fence.config import INSTANCE, YES, FenceConfig, FenceStep, Method, MethodAction, freeing_of
from policy.fence.drivers import same_device
from policy.fence.kdump import KdumpRule
from policy.fence.plan import Act, CutStorage, FencingPlan, Freeing, PlannedMethod, PowerDevice
from policy.values.errors import PolicyError

KDUMP_TIMES = ("window", "silence", "longest")


class Findings:
    """All that a reader found wrong or doubtful, so that a person can correct a configuration in one go: each error and warning
    once, in the order in which they were found."""

    __slots__ = ("_errors", "_warnings")

    def __init__(self) -> None:
        self._errors: dict[str, None] = {}
        self._warnings: dict[str, None] = {}

    @property
    def errors(self) -> tuple[str, ...]:
        """If there is one, there is no plan."""
        return tuple(self._errors)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not keep the configuration from holding."""
        return tuple(self._warnings)

    def refuse(self, subject: str, field: str, problem: str) -> None:
        """Add an error; the reader goes on."""
        self._errors[str(PolicyError(subject, field, problem))] = None

    def warn(self, subject: str, field: str, problem: str) -> None:
        """Add a warning, worded like an error."""
        self._warnings[str(PolicyError(subject, field, problem))] = None

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Turn a PolicyError of the block into one more error, and go on behind the block."""
        try:
            yield
        except PolicyError as error:
            self._errors[str(error)] = None


CONSEQUENCES = frozenset(
    {
        MethodAction.FREE_PODS,
        MethodAction.OUT_OF_SERVICE_TAINT,
        MethodAction.RELEASE_VOLUMES,
        MethodAction.DELETE_NODE,
        MethodAction.TERMINATE,
    }
)
"""What may only follow a proven off (S1)."""


def judge(config: FenceConfig) -> FenceConfig:
    """The configuration with what is wrong with it as a whole. One that could not be read as a whole is not judged further."""
    if config.errors:
        return config
    findings = Findings()
    _Judge(config, findings).judge()
    if not findings.warnings and not findings.errors:
        return config
    return replace(config, warnings=(*config.warnings, *findings.warnings), errors=(*config.errors, *findings.errors))


def _cuts_path(method: Method) -> bool:
    """Whether the method cuts a path of the node, and that can be read back: proof enough for the pods that used exactly that
    path (S1)."""
    return method.action is MethodAction.DETACH_VOLUMES or (method.fabric and method.action is MethodAction.OFF)


class _Judge:
    def __init__(self, config: FenceConfig, findings: Findings) -> None:
        self._config = config
        self._findings = findings

    def judge(self) -> None:
        self._isolation()
        self._power()
        self._deleted_node()
        self._dump()
        self._recovery()
        for step in FenceStep:
            self._twice(step)

    def _refuse(self, step: FenceStep, problem: str) -> None:
        self._findings.refuse(self._config.subject, step.value, problem)

    def _warn(self, step: FenceStep, problem: str) -> None:
        self._findings.warn(self._config.subject, step.value, problem)

    def _refuse_power(self, problem: str) -> None:
        self._refuse(FenceStep.POWER_MANAGEMENT, problem)

    def _isolation(self) -> None:
        cut = False
        for method in self._config.isolation:
            if method.action is MethodAction.FREE_PODS and not cut:
                self._refuse(
                    FenceStep.ISOLATION, f"{method.name} frees pods before anything is proven: expected a path cut before it"
                )
            if method.device is not None and method.action.has_on:
                step = FenceStep.RECOVERY if method.fabric else FenceStep.POWER_MANAGEMENT
                self._refuse(FenceStep.ISOLATION, f"{method.name} switches on: expected that in {step.value}")
            elif method.device is not None and method.action.has_off and not method.fabric:
                self._refuse(
                    FenceStep.ISOLATION, f"{method.name} takes the power: expected that in {FenceStep.POWER_MANAGEMENT.value}"
                )
            if method.action is MethodAction.DETACH_VOLUMES:
                self._warn(FenceStep.ISOLATION, f"{method.name} is forced on a running machine: what it has not written is lost")
            cut = cut or _cuts_path(method)
        freed = next((method for method in self._config.isolation if method.action is MethodAction.FREE_PODS), None)
        names_volumes = any(
            each.action is MethodAction.DETACH_VOLUMES or (_cuts_path(each) and each.storage != CutStorage())
            for each in self._config.isolation
        )
        if freed is not None and cut and not names_volumes:
            self._warn(FenceStep.ISOLATION, f"{freed.name} frees nothing: no method says which volumes lie behind its path")

    def _power(self) -> None:
        methods = self._config.power_management
        for method in methods:
            if method.fabric:
                self._refuse_power(
                    f"{method.name} switches a path, which proves nothing about power: expected it in isolation and recovery"
                )
        methods = tuple(method for method in methods if not method.fabric)
        if any(method.device is not None and method.action.has_off for method in methods):
            for level in _levels_of(methods):
                self._level([method for method in methods if method.level == level and method.device is not None])
            self._consequences(methods)
        elif methods:
            names = ", ".join(method.name for method in methods)
            self._refuse_power(f"{names}: nothing is switched off before, so nothing is proven; expected an off first")
        elif not any(map(_cuts_path, self._config.isolation)):
            self._refuse_power("is empty, and isolation cuts no path that can be read back: nothing executed is never success")

    def _level(self, methods: list[Method]) -> None:
        off: dict[str, Method] = {}
        on: dict[str, Method] = {}
        for method in methods:
            device = method.device
            if device is None or method.action is MethodAction.TERMINATE:
                continue
            endpoint = device.endpoint
            if method.action.has_off:
                if endpoint in on:
                    self._refuse_power(f"{method.name} switches off what {on[endpoint].name} has switched on")
                elif endpoint in off:
                    self._same_plug(off[endpoint], method)
                elif other := next((each for known, each in off.items() if same_device(known, endpoint)), None):
                    self._refuse_power(f"{method.name} switches off the device of {other.name} by another driver")
                elif any(not each.action.has_off for each in on.values()):
                    self._warn(FenceStep.POWER_MANAGEMENT, f"{method.name} comes before any on: first all devices are off")
                off.setdefault(endpoint, method)
            if method.action.has_on:
                if endpoint not in off:
                    self._refuse_power(f"{method.name} switches on what nothing before it has switched off")
                elif endpoint in on and on[endpoint] is not method:
                    self._refuse_power(f"{method.name} switches on what {on[endpoint].name} has switched on")
                on.setdefault(endpoint, method)
        left = [method.name for endpoint, method in off.items() if endpoint not in on]
        if left and len(left) < len(off):
            self._refuse_power(f"{', '.join(left)}: expected an on for every device, or for none")
        elif left and not any(method.action is MethodAction.TERMINATE for method in self._config.power_management):
            self._warn(FenceStep.POWER_MANAGEMENT, f"{', '.join(left)}: there is no on, so the node is left off")

    def _deleted_node(self) -> None:
        """The record of a cut path is our mark on the Node, so a Node with cut paths can't be deleted (S35)."""
        noted = [each.name for each in self._config.isolation if _cuts_path(each) and each.fabric]
        noted += [each.name for each in self._config.isolation if each.action is MethodAction.QUARANTINE]
        if noted and any(each.action is MethodAction.DELETE_NODE for each in self._config.power_management):
            self._refuse_power(f"delete-node would take the mark that tells of {', '.join(noted)}: expected one or the other")

    def _dump(self) -> None:
        for step, methods in (
            (FenceStep.ISOLATION, self._config.isolation),
            (FenceStep.POWER_MANAGEMENT, self._config.power_management),
        ):
            if any(each.action is MethodAction.KDUMP and each.parameters.get("trusted", "no").lower() in YES for each in methods):
                self._warn(step, "kdump: trusted: a sender that uses the node's address can have its pods freed while it runs")

    def _same_plug(self, first: Method, second: Method) -> None:
        if first.device == second.device and MethodAction.OFF in {first.action, second.action}:
            self._warn(FenceStep.POWER_MANAGEMENT, f"{second.name} and {first.name} are the same plug: it is switched off once")
        else:
            self._refuse_power(f"{second.name} and {first.name} are the same plug: expected one of them")

    def _consequences(self, methods: tuple[Method, ...]) -> None:
        off = on = False
        for method in methods:
            if method.action in CONSEQUENCES and not off:
                self._refuse_power(f"{method.name} comes before an off that could be proven: expected it behind one")
            elif method.action in CONSEQUENCES and on:
                self._warn(
                    FenceStep.POWER_MANAGEMENT, f"{method.name} is done before the on: once off is proven, and while it lasts"
                )
            if method.action is MethodAction.KDUMP and off:
                self._refuse_power(f"{method.name} comes behind an off: a machine without power dumps nothing")
            off = off or (method.device is not None and method.action.has_off)
            on = on or method.action is MethodAction.ON
        ending = next((method for method in methods if method.action is MethodAction.TERMINATE), None)
        if ending is None or ending.device is None:
            return
        if any(method.device is not None and method.action.has_on for method in methods):
            self._refuse_power(f"{ending.name}: what is given up can't be switched on again")
        elif not any(
            method.device and method.device.endpoint == ending.device.endpoint for method in methods if method is not ending
        ):
            self._refuse_power(f"{ending.name} is about another machine than is switched off before")

    def _recovery(self) -> None:
        cut = {each.device.endpoint: each for each in self._config.isolation if each.fabric and each.device is not None}
        restored = set()
        for method in self._config.recovery:
            if method.device is None or method.action is MethodAction.LIFT_QUARANTINE:
                continue
            if not method.fabric:
                self._refuse(
                    FenceStep.RECOVERY,
                    f"{method.name} switches power, but a node without it never gets here: expected it in "
                    f"{FenceStep.POWER_MANAGEMENT.value}",
                )
            elif method.action is not MethodAction.ON:
                self._refuse(FenceStep.RECOVERY, f"{method.name} cuts a path: expected that in {FenceStep.ISOLATION.value}")
            elif method.device.endpoint not in cut:
                self._refuse(FenceStep.RECOVERY, f"{method.name} switches on what isolation has not switched off")
            restored.add(method.device.endpoint)
        for endpoint, method in cut.items():
            if endpoint not in restored:
                self._warn(FenceStep.RECOVERY, f"nothing undoes {method.name}: the path stays cut")
        self._undone(MethodAction.CORDON, MethodAction.UNCORDON, "the node stays unschedulable", needed=False)
        self._undone(MethodAction.QUARANTINE, MethodAction.LIFT_QUARANTINE, "the instance stays in quarantine", needed=True)

    def _undone(self, done: MethodAction, undone: MethodAction, otherwise: str, *, needed: bool) -> None:
        first = next((method for method in self._config.isolation if method.action is done), None)
        second = next((method for method in self._config.recovery if method.action is undone), None)
        if first is not None and second is None:
            self._warn(FenceStep.RECOVERY, f"nothing undoes {first.name}: {otherwise}")
        if second is not None and first is None and needed:
            self._refuse(FenceStep.RECOVERY, f"{second.name} undoes what isolation has not done")

    def _twice(self, step: FenceStep) -> None:
        seen: dict[object, Method] = {}
        for method in self._config.step(step):
            if method.device is not None and step is FenceStep.POWER_MANAGEMENT and method.action is not MethodAction.TERMINATE:
                continue  # by plug, above
            what = (method.action, method.device.endpoint if method.device else tuple(sorted(method.parameters.items())))
            if what in seen:
                self._refuse(step, f"{method.name} does the same as {seen[what].name}: expected one of them")
            seen.setdefault(what, method)


def _levels_of(methods: Iterable[Method]) -> list[int]:
    """The levels of power devices, in the order in which they are tried."""
    return sorted({method.level for method in methods if method.device is not None})


# The plan. Nothing is decided here: the configuration says it all.

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
"""What methods of isolation and recovery become. Of devices, only those that carry paths can stand there."""


def compile_config(config: FenceConfig, *, taint_honoured: bool = True, after_health_check: bool = True) -> FencingPlan:
    """The plan. Raises PolicyError for a configuration with an error: it never holds in part.

    taint_honoured: whether this cluster's controllers act on the out-of-service taint (Kubernetes 1.26 and newer).
    after_health_check: a check has judged the node unhealthy for its own time, so the node need not stay `new` once more.
    """
    if config.errors:
        raise PolicyError(config.subject, "fence configuration", f"{len(config.errors)} errors, the first: {config.errors[0]}")
    for method in _all(config):
        if method.driver == INSTANCE:
            raise PolicyError(config.subject, method.name, f"nothing says which instance Node/{config.node} is")
    settings = config.settings
    freeing = freeing_of(config)
    if freeing is Freeing.OUT_OF_SERVICE_TAINT and not taint_honoured:
        problem = "this cluster's controllers do not act on the out-of-service taint; expected free-pods"
        raise PolicyError(config.subject, FenceStep.POWER_MANAGEMENT.value, problem)
    levels = _levels(config.power_management)
    frees = {MethodAction.FREE_PODS, MethodAction.OUT_OF_SERVICE_TAINT, MethodAction.RELEASE_VOLUMES}
    timeouts = [each.timeout for each in config.power_management if each.action in frees and each.timeout is not None]
    return replace(
        settings,
        source=config.subject,
        levels=levels,
        isolation=tuple(_planned(method) for method in config.isolation if method.action is not MethodAction.KDUMP),
        recovery=_recovery(config),
        wait_before_isolation=timedelta(0) if after_health_check else settings.wait_before_isolation,
        free_timeout=max(timeouts, default=settings.free_timeout),
        freeing=freeing,
        taint_honoured=taint_honoured,
        power_on=not levels or any(method.device is not None and method.action.has_on for method in config.power_management),
        delete_node=config.lists(MethodAction.DELETE_NODE),
        terminate_instance=config.lists(MethodAction.TERMINATE),
        kdump=_kdump(config),
        warnings=config.warnings,
    )


def _levels(methods: tuple[Method, ...]) -> tuple[tuple[PowerDevice, ...], ...]:
    found = []
    for level in _levels_of(methods):
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
    """A quarantine is lifted by the device that imposed it."""
    quarantine = next((method for method in config.isolation if method.action is MethodAction.QUARANTINE), None)
    found = []
    for method in config.recovery:
        planned = _planned(method)
        if planned.act is Act.LIFT_QUARANTINE and quarantine is not None:
            planned = replace(planned, device=quarantine.device)
        found.append(planned)
    return tuple(found)


def _kdump(config: FenceConfig) -> KdumpRule | None:
    method = next((each for each in _all(config) if each.action is MethodAction.KDUMP), None)
    if method is None:
        return None
    times: dict[str, Any] = {
        name: timedelta(seconds=int(method.parameters[name])) for name in KDUMP_TIMES if name in method.parameters
    }
    return replace(KdumpRule(trusted=method.parameters.get("trusted", "no").lower() in YES), **times)


def _all(config: FenceConfig) -> Iterable[Method]:
    return (*config.isolation, *config.power_management, *config.recovery)
