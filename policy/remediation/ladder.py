"""Which steps, in which order, a target is remediated by: what its check says, cut to what is possible for this target.

A NodeHealthCheck names templates (`remediationTemplate`, `escalatingRemediations`), a check of Machines at most one; any check
may name strategies by annotation, which then hold instead. Without either the dialect's own way is the only step. Going from step
to step is `policy/remediation/escalation.py`; that a single step of fencing stays a plain fencing is `fences_only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from policy.durations import format_duration, parse_duration
from policy.errors import PolicyError
from policy.healthcheck import Dialect, HealthCheck, ObjectRef, Rung
from policy.machines import FAILED
from policy.remediation.escalation import Step, Strategy
from policy.targets import Target
from policy.templates import KIND, MACHINE_DELETION, REBOOT, VOLUME_DETACHMENT, is_own_template

ESCALATION_ANNOTATION = "nodewarden.io/escalation"
"""On a health check: the strategies in their order, `reboot=10m, delete-machine=30m`."""

OWN_STRATEGIES = {
    KIND: Strategy.FENCE,
    MACHINE_DELETION: Strategy.DELETE_MACHINE,
    REBOOT: Strategy.REBOOT,
    VOLUME_DETACHMENT: Strategy.DETACH_VOLUMES,
}

DELETION_TIMEOUT = timedelta(minutes=30)
"""A drain that hangs, an instance that won't go: after this long a deletion has failed."""

DEFAULT_TIMEOUTS: Mapping[Strategy, timedelta] = {
    Strategy.DELETE_MACHINE: DELETION_TIMEOUT,
    Strategy.REQUEST_OWNER: DELETION_TIMEOUT,
}
"""Where a step names none. Fencing and rebooting have those of their plan; other controllers' objects none, as shipped."""

REPLACING_OWNERS = ("MachineSet", "KubeadmControlPlane")
"""Cluster API: whoever of these owns a Machine remediates it when asked; nobody else does."""

BY_NAME = frozenset(Strategy)

ON_NODES = frozenset({Strategy.FENCE, Strategy.REBOOT, Strategy.DETACH_VOLUMES})
"""Strategies that need a Node."""

REPLACING = frozenset({Strategy.DELETE_MACHINE, Strategy.REQUEST_OWNER})
"""Strategies that end with another machine."""


def read_strategies(text: str, *, subject: str, field: str) -> tuple[Step, ...]:
    """The steps that an annotation or a person names. Raises PolicyError naming subject, field and what was expected."""
    steps: dict[str, Step] = {}
    for word in (each.strip() for each in text.split(",")):
        name, given, timeout = word.partition("=")
        if name not in BY_NAME:
            expected = f"expected strategies of {', '.join(sorted(BY_NAME))}, each perhaps with `=<time-out>`"
            raise PolicyError(subject, field, f"{expected}, got {word!r}")
        if name in steps:
            raise PolicyError(subject, field, f"expected every strategy once, got {name} twice")
        steps[name] = Step(strategy=Strategy(name), name=name, timeout=_timeout(timeout, subject, field) if given else None)
    return tuple(steps.values())


def _timeout(text: str, subject: str, field: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise PolicyError(subject, field, f"expected a time-out such as 10m: {error}") from error
    if found <= timedelta(0):
        raise PolicyError(subject, field, f"expected a time-out of more than nothing, got {format_duration(found)}")
    return found


def ladder_of(check: HealthCheck, target: Target) -> tuple[Step, ...]:
    """All steps that the check wants for the target, each with its time-out, whether they are possible or not."""
    return tuple(_with_timeout(step) for step in _named(check, target))


def possible(check: HealthCheck, target: Target) -> tuple[tuple[Step, ...], str]:
    """The steps that can be carried out, and why none is: of the first that can't where all can't, "" else."""
    steps = ladder_of(check, target)
    refusals = [impossible(step, target) for step in steps]
    left = tuple(step for step, refusal in zip(steps, refusals, strict=True) if not refusal)
    return left, "" if left else next(iter(refusals), "its check names no way to remediate")


def impossible(step: Step, target: Target) -> str:
    """Why that step can't be carried out for the target as it is, "" where it can."""
    machine = target.machine
    if step.strategy in ON_NODES:
        return "" if target.node is not None else "it has no Node that could be fenced"
    if step.strategy is Strategy.EXTERNAL:
        return "" if step.template is not None else "its check names no template for the strategy external"
    if machine is None:
        return "" if step.strategy is Strategy.DELETE_MACHINE else f"{step.strategy} needs a Machine, and it has none"
    if not machine.controller:
        return "no controller owns the Machine: nobody would replace it" if step.strategy in REPLACING else ""
    if step.strategy is Strategy.REQUEST_OWNER and machine.controller.partition("/")[0] not in REPLACING_OWNERS:
        return f"its owner {machine.controller} does not remediate: expected a {' or a '.join(REPLACING_OWNERS)}"
    return ""


def fences_only(check: HealthCheck, steps: tuple[Step, ...]) -> bool:
    """Whether it is a plain fencing, with nothing before, behind or beside it that would have to be remembered."""
    plain = len(steps) == 1 and steps[0].strategy is Strategy.FENCE and steps[0].timeout is None
    return plain and not check.remembers


def _named(check: HealthCheck, target: Target) -> tuple[Step, ...]:
    if check.escalation:
        words = read_strategies(check.escalation, subject=check.ref.key, field=ESCALATION_ANNOTATION)
        return tuple(_with_template(step, check) for step in words)
    if check.rungs:
        return tuple(_of_rung(rung) for rung in sorted(check.rungs, key=lambda rung: rung.order))
    return (_dialects_own(check, target),)


def _with_template(step: Step, check: HealthCheck) -> Step:
    wanted = {Strategy.FENCE: KIND, Strategy.REBOOT: REBOOT, Strategy.DETACH_VOLUMES: VOLUME_DETACHMENT}
    for rung in check.rungs:
        own = is_own_template(rung.template)
        if own and rung.template.kind == wanted.get(step.strategy):
            return _by(step, rung.template)
        if not own and step.strategy is Strategy.EXTERNAL:
            return _by(step, rung.template)
    return step


def _by(step: Step, template: ObjectRef) -> Step:
    return Step(strategy=step.strategy, name=step.name, template=template, timeout=step.timeout)


def _of_rung(rung: Rung) -> Step:
    strategy = OWN_STRATEGIES[rung.template.kind] if is_own_template(rung.template) else Strategy.EXTERNAL
    return Step(strategy=strategy, name=rung.template.key, template=rung.template, timeout=rung.timeout)


def _dialects_own(check: HealthCheck, target: Target) -> Step:
    match check.dialect:
        case Dialect.CLUSTER_API:
            strategy = Strategy.REQUEST_OWNER
        case Dialect.OPENSHIFT:
            failed = target.machine is not None and target.machine.phase == FAILED
            strategy = Strategy.ANNOTATE_EXTERNAL if check.external_strategy and not failed else Strategy.DELETE_MACHINE
        case Dialect.MEDIK8S | Dialect.NODE_FENCING:
            strategy = Strategy.FENCE
    return Step(strategy=strategy, name=strategy.value)


def _with_timeout(step: Step) -> Step:
    if step.timeout is not None or step.strategy not in DEFAULT_TIMEOUTS:
        return step
    return Step(strategy=step.strategy, name=step.name, template=step.template, timeout=DEFAULT_TIMEOUTS[step.strategy])
