"""Whether a health check has its remedy: the templates that it names exist and are valid.

Asked when a check is written, not when a node dies. A check that names a missing template is not in use, as in the
NodeHealthCheck operator; the reasons are that operator's. `activities/cluster/watch/templates.py` reads the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from policy.checks.health_check import HealthCheck
from policy.fence.templates import VOLUME_DETACHMENT, is_own_template, why_untrusted
from policy.remediation.volumes import read_volume_template
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef


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
