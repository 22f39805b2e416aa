"""Whether a health check has its remedy, and what it would have done to one target now.

First the dialect's answer to a verdict (`remedy`), if the check's circuit breaker is closed: `policy/checks/circuit_breakers.py`
decides that, `policy/scan/candidates.py` and `policy/scan/admission.py` decide which target goes first, and the ladder of
`policy/remediation/` what follows where this first step fails. An object that exists already is never created twice. Then
whether the templates that a check names exist and are valid (`no_remedy`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from policy.checks.health_check import HealthCheck
from policy.checks.rules.medik8s import HEALTHY_DELAYED
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import Health, Standing, Verdict
from policy.fence.templates import VOLUME_DETACHMENT, is_own_template, why_untrusted
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION
from policy.objects.remediations import RemediationObject, kind_of
from policy.remediation.failed_volumes import read_volume_template
from policy.remediation.ladder import body_of, ladder_of, possible
from policy.remediation.strategies import RULES, Action, Strategy
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef

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
