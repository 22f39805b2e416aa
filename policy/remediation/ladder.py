"""Which steps, in which order, a target is remediated by: what its check says, cut to what is possible for this target.

A NodeHealthCheck names templates (`remediationTemplate`, `escalatingRemediations`), a check of Machines at most one; any check
may name strategies by annotation, which then hold instead. Without either the dialect's own way is the only step. Going from step
to step is `policy/remediation/escalation.py`; that a single step of fencing stays a plain fencing is `fences_only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from policy.checks.healthcheck import HealthCheck, Rung
from policy.checks.targets import JudgedTarget
from policy.fence.templates import KIND, MACHINE_DELETION, REBOOT, VOLUME_DETACHMENT, is_own_template
from policy.objects.machines import FAILED
from policy.remediation.escalation import EscalationStep, Strategy
from policy.values.durations import format_duration, parse_duration
from policy.values.errors import PolicyError
from policy.values.object_refs import Dialect, ObjectRef

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


def read_strategies(text: str, *, subject: str, field: str) -> tuple[EscalationStep, ...]:
    """The steps that an annotation or a person names. Raises PolicyError naming subject, field and what was expected."""
    steps: dict[str, EscalationStep] = {}
    for word in (each.strip() for each in text.split(",")):
        name, given, timeout = word.partition("=")
        if name not in BY_NAME:
            expected = f"expected strategies of {', '.join(sorted(BY_NAME))}, each perhaps with `=<time-out>`"
            raise PolicyError(subject, field, f"{expected}, got {word!r}")
        if name in steps:
            raise PolicyError(subject, field, f"expected every strategy once, got {name} twice")
        steps[name] = EscalationStep(
            strategy=Strategy(name), name=name, timeout=_timeout(timeout, subject, field) if given else None
        )
    return tuple(steps.values())


def _timeout(text: str, subject: str, field: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise PolicyError(subject, field, f"expected a time-out such as 10m: {error}") from error
    if found <= timedelta(0):
        raise PolicyError(subject, field, f"expected a time-out of more than nothing, got {format_duration(found)}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What there is of a target that steps can be taken about. phase: of its Machine, None where it has none, or none that is
    known. owner: kind and name of what controls that."""

    has_node: bool
    phase: str | None = None
    owner: str = ""


def body_of(target: JudgedTarget) -> Body:
    """The same, of a target as a scan sees it."""
    machine = target.machine
    return Body(
        has_node=target.node is not None,
        phase=machine.phase if machine is not None else None,
        owner=machine.controller if machine is not None else "",
    )


def ladder_of(
    check: HealthCheck | None, body: Body, named: tuple[EscalationStep, ...] | None = None
) -> tuple[EscalationStep, ...]:
    """All steps, each with its time-out, whether they are possible or not: those that somebody has named, else those that the
    check wants. Raises PolicyError."""
    return tuple(_with_timeout(step) for step in _wanted(check, body, named))


def possible(
    check: HealthCheck | None, body: Body, named: tuple[EscalationStep, ...] | None = None, *, live: bool = False
) -> tuple[tuple[EscalationStep, ...], str]:
    """The steps that can be carried out, and why none is: of the first that can't where all can't, "" else.

    live: all that there is was looked for; else a check of Nodes does not know Machines.
    """
    steps = ladder_of(check, body, named)
    refusals = [impossible(step, body, live=live) for step in steps]
    left = tuple(step for step, refusal in zip(steps, refusals, strict=True) if not refusal)
    return left, "" if left else next(iter(refusals), "its check names no way to remediate")


def impossible(step: EscalationStep, body: Body, *, live: bool = False) -> str:
    """Why that step can't be carried out for the target as it is, "" where it can."""
    if step.strategy in ON_NODES:
        return "" if body.has_node else "it has no Node that could be fenced"
    if step.strategy is Strategy.EXTERNAL:
        return "" if step.template is not None else "its check names no template for the strategy external"
    if body.phase is None:
        unknown = step.strategy is Strategy.DELETE_MACHINE and not live
        return "" if unknown else f"{step.strategy} needs a Machine, and it has none"
    if not body.owner:
        return "no controller owns the Machine: nobody would replace it" if step.strategy in REPLACING else ""
    if step.strategy is Strategy.REQUEST_OWNER and body.owner.partition("/")[0] not in REPLACING_OWNERS:
        return f"its owner {body.owner} does not remediate: expected a {' or a '.join(REPLACING_OWNERS)}"
    return ""


def removes(steps: tuple[EscalationStep, ...]) -> bool:
    """Whether whatever comes of them, the machine is replaced by another one."""
    return bool(steps) and all(step.strategy in REPLACING for step in steps)


def fences_only(check: HealthCheck, steps: tuple[EscalationStep, ...]) -> bool:
    """Whether it is a plain fencing, with nothing before, behind or beside it that would have to be remembered."""
    plain = len(steps) == 1 and steps[0].strategy is Strategy.FENCE and steps[0].timeout is None
    return plain and not check.remembers


def _wanted(check: HealthCheck | None, body: Body, named: tuple[EscalationStep, ...] | None) -> tuple[EscalationStep, ...]:
    if named is None and check is not None and check.escalation:
        named = read_strategies(check.escalation, subject=check.ref.key, field=ESCALATION_ANNOTATION)
    if named is not None:
        return tuple(_with_template(step, check) for step in named)
    if check is None:
        return (EscalationStep(strategy=Strategy.DELETE_MACHINE, name=Strategy.DELETE_MACHINE.value),)
    if check.rungs:
        return tuple(step_of(rung) for rung in sorted(check.rungs, key=lambda rung: rung.order))
    return (_dialects_own(check, body),)


def _with_template(step: EscalationStep, check: HealthCheck | None) -> EscalationStep:
    if check is None:
        return step
    wanted = {Strategy.FENCE: KIND, Strategy.REBOOT: REBOOT, Strategy.DETACH_VOLUMES: VOLUME_DETACHMENT}
    for rung in check.rungs:
        own = is_own_template(rung.template)
        if own and rung.template.kind == wanted.get(step.strategy):
            return _by(step, rung.template)
        if not own and step.strategy is Strategy.EXTERNAL:
            return _by(step, rung.template)
    return step


def _by(step: EscalationStep, template: ObjectRef) -> EscalationStep:
    return EscalationStep(strategy=step.strategy, name=step.name, template=template, timeout=step.timeout)


def step_of(rung: Rung) -> EscalationStep:
    """The step that a template of a check means."""
    strategy = OWN_STRATEGIES[rung.template.kind] if is_own_template(rung.template) else Strategy.EXTERNAL
    return EscalationStep(strategy=strategy, name=rung.template.key, template=rung.template, timeout=rung.timeout)


def _dialects_own(check: HealthCheck, body: Body) -> EscalationStep:
    match check.dialect:
        case Dialect.CLUSTER_API:
            strategy = Strategy.REQUEST_OWNER
        case Dialect.OPENSHIFT:
            external = check.external_strategy and body.phase != FAILED
            strategy = Strategy.ANNOTATE_EXTERNAL if external else Strategy.DELETE_MACHINE
        case Dialect.MEDIK8S | Dialect.NODE_FENCING:
            strategy = Strategy.FENCE
    return EscalationStep(strategy=strategy, name=strategy.value)


def _with_timeout(step: EscalationStep) -> EscalationStep:
    if step.timeout is not None or step.strategy not in DEFAULT_TIMEOUTS:
        return step
    return EscalationStep(strategy=step.strategy, name=step.name, template=step.template, timeout=DEFAULT_TIMEOUTS[step.strategy])
