"""The ladder of a remediation: which steps a target gets, in which order, for how long, and how many targets at once.

A NodeHealthCheck names templates (`remediationTemplate`, `escalatingRemediations`), a check of Machines at most one; any check
may name strategies by annotation, which then replace the templates. Without either, the dialect's own way is the only step.
Steps that are impossible for the target are left out (`possible`). A ladder with fencing as its only step is a plain fencing
(`fences_only`).

In this order: going from step to step; which steps a target has (`ladder_of`); how long its node is leased; how many at once;
the first act on a target now (`remedy`); whether a check has the templates that it names (`no_remedy`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from policy.checks.health_check import EscalatingRemediation, HealthCheck
from policy.checks.rules.medik8s import HEALTHY_DELAYED
from policy.checks.verdict import Health, JudgedTarget, Standing, Verdict
from policy.fence.template_reader import VOLUME_DETACHMENT, is_own_template, why_untrusted
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION, FAILED
from policy.objects.remediations import RemediationObject, kind_of
from policy.remediation.failed_volumes import read_volume_template
from policy.remediation.strategy_rules import BY_TEMPLATE, RULES, Action, Needs, Strategy
from policy.values.errors import PolicyError
from policy.values.fields import Rounding, Threshold, parse_threshold, scaled
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.times import format_duration, later, parse_duration

# From step to step: which comes first, which one after it, and when a step has had its time.
#
# The workflow carries a step out; `remediation_objects.py` reads what its object reports meanwhile. A step that failed is not
# tried again within a sequence of retries (`memory.py`), nor on the machine that replaces the failed one: the ladder continues
# where the former machine's ended. After the last step a person is asked.


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationStep:
    """One step. name: unique in its ladder, for the memory and for people. timeout None: it never runs out of time."""

    strategy: Strategy
    name: str
    template: ObjectRef | None = None
    timeout: timedelta | None = None


def first_step(ladder: tuple[EscalationStep, ...], failed: Collection[str]) -> int | None:
    """The index of the first step that has not failed, None where all have."""
    return next_step(ladder, -1, failed)


def next_step(ladder: tuple[EscalationStep, ...], index: int, failed: Collection[str]) -> int | None:
    """The index of the first step after this one that has not failed, None where there is none."""
    return next((at for at in range(index + 1, len(ladder)) if ladder[at].name not in failed), None)


def timed_out(started: datetime, timeout: timedelta | None, now: datetime) -> bool:
    """Whether a step has run for strictly longer than its time-out."""
    return timeout is not None and now > later(started, timeout)


ESCALATION_ANNOTATION = "nodewarden.io/escalation"
"""On a health check: the strategies in their order, `reboot=10m, delete-machine=30m`."""

NAMES = tuple(sorted(RULES))
"""The strategies that a person or an annotation may name."""


def read_strategies(text: str, *, subject: str, field: str) -> tuple[EscalationStep, ...]:
    """The steps that an annotation or a person names. Raises PolicyError naming subject, field and what was expected."""
    steps: dict[str, EscalationStep] = {}
    for word in (each.strip() for each in text.split(",")):
        name, given, timeout = word.partition("=")
        if name not in NAMES:
            expected = f"expected strategies of {', '.join(NAMES)}, each perhaps with `=<time-out>`"
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
    """What a target consists of, as far as steps depend on it. phase: of its Machine, None where it has none, or the phase is
    not known. owner: kind and name of the Machine's controller."""

    has_node: bool
    phase: str | None = None
    owner: str = ""


def body_of(target: JudgedTarget) -> Body:
    """The body of a target as a scan sees it."""
    machine = target.machine
    return Body(
        has_node=target.node is not None,
        phase=machine.phase if machine is not None else None,
        owner=machine.controller if machine is not None else "",
    )


def ladder_of(
    check: HealthCheck | None, body: Body, named: tuple[EscalationStep, ...] | None = None
) -> tuple[EscalationStep, ...]:
    """All steps, each with its time-out, possible or not: those that a person has named, else those that the check wants.
    Raises PolicyError."""
    return tuple(
        step if step.timeout is not None else replace(step, timeout=RULES[step.strategy].timeout)
        for step in _wanted(check, body, named)
    )


def possible(
    check: HealthCheck | None,
    body: Body,
    named: tuple[EscalationStep, ...] | None = None,
    *,
    live: bool = False,
    whole: bool = False,
) -> tuple[tuple[EscalationStep, ...], str]:
    """The steps that can be carried out, and why none can: the first step's reason, "" where one can.

    live: everything about the target was looked up; else a check of Nodes does not know Machines. whole: all of them or none.
    """
    steps = ladder_of(check, body, named)
    refusals = [impossible(step, body, live=live) for step in steps]
    if whole and (reasons := [f"{step.name}: {why}" for step, why in zip(steps, refusals, strict=True) if why]):
        return (), f"not every step can be carried out: {'; '.join(reasons)}"
    left = tuple(step for step, refusal in zip(steps, refusals, strict=True) if not refusal)
    return left, "" if left else next(iter(refusals), "its check names no way to remediate")


def impossible(step: EscalationStep, body: Body, *, live: bool = False) -> str:
    """Why that step can't be carried out for the target as it is, "" where it can."""
    rule = RULES[step.strategy]
    match rule.needs:
        case Needs.NODE:
            return "" if body.has_node else "it has no Node that could be fenced"
        case Needs.TEMPLATE:
            return "" if step.template is not None else f"its check names no template for the strategy {step.strategy}"
        case Needs.MACHINE:
            return _impossible_for_its_machine(step.strategy, body, live=live)


def _impossible_for_its_machine(strategy: Strategy, body: Body, *, live: bool) -> str:
    rule = RULES[strategy]
    if body.phase is None:
        unknown = bool(rule.doubt) and not live
        return "" if unknown else f"{strategy} needs a Machine, and it has none"
    if not body.owner:
        return "no controller owns the Machine: nothing would replace it" if rule.replaces else ""
    if rule.owners and body.owner.partition("/")[0] not in rule.owners:
        return f"its owner {body.owner} does not remediate: expected a {' or a '.join(rule.owners)}"
    return ""


def steps_not_known(problem: str) -> str:
    """Why a person who names no steps has nothing done. problem: of a health check that can't be read, and may cover the node."""
    return f"which steps the node has is not known: {problem}; or name the steps (--with, `strategies`)"


def name_the_node(machine: str, node: str) -> str:
    """Why a Machine is not remediated by its own name."""
    return f"{machine}: expected a Machine that has no Node, this one has Node/{node}: name that"


def removes(steps: tuple[EscalationStep, ...]) -> bool:
    """Whether each step ends with another machine in the place of this one."""
    return bool(steps) and all(RULES[step.strategy].replaces for step in steps)


def keeping(steps: tuple[EscalationStep, ...]) -> tuple[EscalationStep, ...]:
    """The one step for a machine that is kept until a person answers: it is fenced, as those steps would fence it (S53)."""
    fence = next((each for each in steps if each.strategy is Strategy.FENCE), None)
    return (EscalationStep(strategy=Strategy.FENCE, name="keep", template=fence.template if fence is not None else None),)


def fences_only(check: HealthCheck, steps: tuple[EscalationStep, ...]) -> bool:
    """Whether it is a plain fencing, without any other step that would have to be remembered."""
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
        return tuple(map(step_of, check.rungs))
    return (_dialects_own(check, body),)


def _with_template(step: EscalationStep, check: HealthCheck | None) -> EscalationStep:
    if check is None:
        return step
    rule = RULES[step.strategy]
    for rung in check.rungs:
        own = is_own_template(rung.template)
        fits = own and rule.needs is Needs.NODE and rung.template.kind == rule.template
        if fits or (not own and rule.needs is Needs.TEMPLATE):
            return replace(step, template=rung.template)
    return step


def step_of(rung: EscalatingRemediation) -> EscalationStep:
    """The step that a template of a check means."""
    strategy = BY_TEMPLATE[rung.template.kind] if is_own_template(rung.template) else Strategy.EXTERNAL
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


# How long a step holds its node's lease, and when a remediation object of another controller is too old.
#
# A controller that remediates a node holds the lease `node-<name>` in `medik8s-leases`, so that maintenance and other checks
# leave the node alone. The operator of medik8s looks for leases that are held for too long. Ours end with the time of their
# step.

BUFFER = timedelta(minutes=1)
DEFAULT_TIMEOUT = timedelta(minutes=10)
"""The time-out of a step that has none."""

OLD_REMEDIATION = timedelta(hours=48)
OLD_ANNOTATION, OLD_VALUE = "nodehealthcheck.medik8s.io/old-remediation-cr-flag", "flagon"
"""On a remediation object that is older than that: its controller has probably stopped working on it, and a person should
look."""


def lease_duration(timeout: timedelta | None) -> timedelta:
    """How long the lease of a step with that time-out lasts; None: it has none."""
    return (DEFAULT_TIMEOUT if timeout is None else timeout) + BUFFER


def to_be_flagged(created: datetime, now: datetime, *, flagged: bool) -> bool:
    """Whether a remediation object is so old that people are notified, which is done once."""
    return not flagged and now > later(created, OLD_REMEDIATION)


# How many targets of a health check may be remediated at the same time.
#
# A MachineSet calls it `maxInFlight`. The circuit breaker of a health check (`policy/checks/circuit_breakers.py`) asks how many
# targets are unwell; this limit asks how many remediations are under way, and stops none of those. `policy/scan/admission.py`
# decides which target is next.

MAX_IN_FLIGHT_ANNOTATION = "nodewarden.io/max-in-flight"
"""On a health check: a number or a percentage of its targets."""


def most_at_once(limit: Threshold, total: int) -> int:
    """The limit as a number of `total` targets. 0: none at all; a percentage is rounded up."""
    return scaled(limit, total, Rounding.UP)


def read_limit(annotations: Mapping[str, str], subject: str) -> Threshold | None:
    """The limit in the annotation of a health check, None where there is none. Raises PolicyError."""
    text = annotations.get(MAX_IN_FLIGHT_ANNOTATION)
    if text is None:
        return None
    try:
        return parse_threshold(text)
    except ValueError as error:
        raise PolicyError(subject, f"metadata.annotations.{MAX_IN_FLIGHT_ANNOTATION}", str(error)) from error


# What a health check would have done to one target now: the dialect's answer to a verdict.
#
# It holds if the check's circuit breaker is closed, which `policy/checks/circuit_breakers.py` decides; which target goes first is
# for `policy/scan/candidates.py` and `policy/scan/admission.py`. An object that exists already is never created twice.

OWNER_REMEDIATED = "OwnerRemediated"


RESTORING = frozenset({Action.DELETE_REMEDIATION})
"""Acts that no circuit breaker may hold back (S17)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The act, or why there is none."""

    action: Action
    message: str = ""


NOTHING = Remedy(action=Action.NONE)


def remedy(check: HealthCheck, target: JudgedTarget, verdict: Verdict) -> Remedy:
    """The dialect's answer to the verdict, as if the circuit breaker were closed."""
    present = [each for each in target.remediations if check.makes(each)]
    if verdict.health is Health.HEALTHY:
        return _give_back(check, verdict, present)
    if verdict.standing is not Standing.UNHEALTHY:
        return NOTHING
    return _by_ladder(check, target, present)


def orphaned(remediation: RemediationObject, check: HealthCheck) -> bool:
    """Whether our own remediation object is to be deleted because the check no longer selects its node (medik8s).

    Not where the node was expected to go for good and the remediation has not succeeded yet: it is still at work.
    """
    if remediation.deleting or not check.makes(remediation) or not check.owns(remediation):
        return False
    return remediation.permanent_node_deletion_expected != "True" or remediation.succeeded == "True"


def _give_back(check: HealthCheck, verdict: Verdict, present: list[RemediationObject]) -> Remedy:
    if check.template is None or verdict.reason == HEALTHY_DELAYED:
        return NOTHING
    mine = present if check.of_machines else [each for each in present if check.owns(each)]
    waiting = [each for each in mine if not each.deleting]
    return Remedy(action=Action.DELETE_REMEDIATION, message=f"{waiting[0].ref.kind} is no longer needed") if waiting else NOTHING


def _by_ladder(check: HealthCheck, target: JudgedTarget, present: list[RemediationObject]) -> Remedy:
    """The first possible step of those that the check wants."""
    body = body_of(target)
    try:
        wanted, (steps, refused) = ladder_of(check, body), possible(check, body)
    except PolicyError as error:
        return Remedy(action=Action.NONE, message=str(error))
    if not steps:
        ownerless = bool(wanted) and RULES[wanted[0].strategy].replaces and body.phase is not None
        return Remedy(action=Action.SKIP_NO_OWNER if ownerless else Action.NONE, message=refused)
    first = steps[0]
    match first.strategy:
        case Strategy.REQUEST_OWNER:
            return _request(target)
        case Strategy.ANNOTATE_EXTERNAL:
            return _annotate(target)
        case Strategy.EXTERNAL:
            assert first.template is not None, "a step that makes an object is possible only with its template"
            return _create(first.template, check, target, present)
        case _:  # needs no other controller
            return Remedy(action=RULES[first.strategy].action)


def _create(template: ObjectRef, check: HealthCheck, target: JudgedTarget, present: list[RemediationObject]) -> Remedy:
    if present:
        origin = "" if check.of_machines or check.owns(present[0]) else " that this check did not create"
        return Remedy(action=Action.NONE, message=f"a {present[0].ref.kind} of it exists already{origin}")
    return Remedy(action=Action.CREATE_REMEDIATION, message=f"{kind_of(template)[1]} {target.name}")


def _request(target: JudgedTarget) -> Remedy:
    """Cluster API: the Machine's owner remediates; a condition asks it, again once an earlier request is done."""
    assert target.machine is not None
    asked = target.machine.condition(OWNER_REMEDIATED)
    if asked is not None and asked.status != "True":
        return Remedy(action=Action.NONE, message=f"its owner has been asked: OwnerRemediated is {asked.status}, {asked.reason}")
    return Remedy(action=Action.REQUEST_OWNER_REMEDIATION)


def _annotate(target: JudgedTarget) -> Remedy:
    if target.machine is not None and EXTERNAL_REMEDIATION_ANNOTATION in target.machine.annotations:
        return Remedy(action=Action.NONE, message=f"it carries the annotation {EXTERNAL_REMEDIATION_ANNOTATION} already")
    return Remedy(action=Action.ANNOTATE_EXTERNAL)


# Whether a health check has its remedy: the templates that it names exist and are valid.
#
# Asked when a check is written, not when a node dies. A check that names a missing template is not in use, as in the
# NodeHealthCheck operator; the reasons are that operator's. `activities/cluster/watch/templates.py` reads the templates.


class TemplateSight(StrEnum):
    """What is known of a template. unknown: it may not be read, or has not been read yet; the check stays in use."""

    THERE = "there"
    MISSING = "missing"
    NO_KIND = "no such kind"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Unusable(StrEnum):
    """Why a check is not in use; a code for programs, beside the sentence."""

    OBJECT = "InvalidObject"
    TEMPLATE_MISSING = "RemediationTemplateNotFound"
    TEMPLATE_INVALID = "RemediationTemplateInvalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSeen:
    """One template as last seen. problem: what is wrong with it, or why nothing is known."""

    sight: TemplateSight
    problem: str = ""


UNKNOWN = TemplateSeen(sight=TemplateSight.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRemedy:
    """Why a check is not in use."""

    reason: Unusable
    message: str


def judged(ref: ObjectRef, template: Mapping[str, object]) -> TemplateSeen:
    """A template that exists, judged as far as possible without a node."""
    if not isinstance(spec := template.get("spec"), Mapping) or not isinstance(spec.get("template"), Mapping):
        return TemplateSeen(
            sight=TemplateSight.INVALID, problem=f"{ref.key}: spec.template: expected what remediations are made from"
        )
    if is_own_template(ref) and ref.kind == VOLUME_DETACHMENT:
        try:
            read_volume_template(template)
        except PolicyError as error:
            return TemplateSeen(sight=TemplateSight.INVALID, problem=str(error))
    return TemplateSeen(sight=TemplateSight.THERE)


def templates_of(check: HealthCheck) -> tuple[ObjectRef, ...]:
    """Each template that it names, once."""
    return tuple(dict.fromkeys(rung.template for rung in check.rungs))


def no_remedy(check: HealthCheck, seen: Callable[[ObjectRef], TemplateSeen], trusted: Collection[str]) -> NoRemedy | None:
    """Why the check can't be used, None where nothing is known to be wrong. trusted: the namespaces with FencingTemplates that
    count.

    A paused MachineHealthCheck gets no answer: its status is left alone.
    """
    if check.paused and check.of_machines:
        return None
    for template in templates_of(check):
        if counts := why_untrusted(template, trusted):
            return NoRemedy(reason=Unusable.TEMPLATE_INVALID, message=f"it names {template.key}: {counts}")
        found = seen(template)
        match found.sight:
            case TemplateSight.MISSING:
                return NoRemedy(reason=Unusable.TEMPLATE_MISSING, message=f"it names {template.key}, which does not exist")
            case TemplateSight.NO_KIND:
                message = f"it names {template.key}, and no such kind is served in {template.api_version}"
                return NoRemedy(reason=Unusable.TEMPLATE_MISSING, message=message)
            case TemplateSight.INVALID:
                return NoRemedy(reason=Unusable.TEMPLATE_INVALID, message=found.problem)
    return None
