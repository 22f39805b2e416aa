"""What the dialects' statuses share: the situation they are composed from, conditions, and Events for what flipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import Happening
from activities.contracts.scan import OpenEpisode
from policy.episode.advice import waiting
from policy.objects.remediations import RemediationObject
from policy.remediation.templates import Unusable
from policy.scan.scan_report import CheckReport
from policy.values.display_text import visible
from policy.values.fields import mapping
from policy.values.object_refs import Dialect

REMEDIATION_ALLOWED = "RemediationAllowed"
OVERLAPPING = "OverlappingHealthChecks"
MIXED = "MixedControlPlane"
NO_TARGETS = "NoTargets"
NEEDS_PERSON = "NeedsPerson"
CONFLICTING = "ConflictingController"

MAXIMUM_CONDITION_MESSAGE = 32768
MAXIMUM_OLDER_MESSAGE = 10240
"""Of Cluster API's older generation of conditions."""

INVALID = "InvalidConfiguration"
_LACKING = (Unusable.TEMPLATE_MISSING, Unusable.TEMPLATE_INVALID)

HALTED = "Halted"
"""Reason of RemediationAllowed=False where a person has paused all, or has stopped the scanner (S44)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One check as the scan found it, and its object's status as it stands.

    unhealthy, in_flight: the nodes of this check alone. targets: names of everything that counts, for the dialects that list
    them. objects: the remediation objects that the check has had made, by the name of their node.
    """

    report: CheckReport
    current: Mapping[str, Any]
    unhealthy: Sequence[str] = ()
    in_flight: Sequence[OpenEpisode] = ()
    targets: Sequence[str] = ()
    objects: Mapping[str, Sequence[RemediationObject]] = field(default_factory=dict)
    paused: bool = False

    @property
    def waiting(self) -> str:
        """Which of its episodes wait for a person, in words; "" where none does."""
        return waiting([each.node for each in self.in_flight if each.needs_person])

    @property
    def dialect(self) -> Dialect:
        """In whose words the status is written."""
        return self.report.dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A merge patch for the status subresource, and what it makes worth telling."""

    patch: JsonObject
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionText:
    """One condition as it is to read. `extra`: fields that only some dialects' conditions have."""

    status: str
    reason: str
    message: str
    extra: Mapping[str, object] = field(default_factory=dict)


def allowed(report: CheckReport) -> ConditionText:
    """The condition RemediationAllowed, which all dialects have (medik8s by our doing)."""
    if report.error:
        return ConditionText(status="False", reason=unusable(report), message=report.error)
    if report.allowed:
        return ConditionText(status="True", reason=REMEDIATION_ALLOWED, message="the check may act")
    return ConditionText(status="False", reason=report.reason or "NotAllowed", message=report.message)


def unusable(report: CheckReport) -> str:
    """Why a check with an error is not in use: what ails its templates, in its operator's words, or a mistake."""
    return report.reason if report.reason in _LACKING else INVALID


def notices(situation: Situation) -> dict[str, ConditionText | None]:
    """Our own warning conditions; None for one that is to go."""
    report = situation.report
    overlap = f"{report.ref.key} and {', '.join(report.overlaps)} cover the same sick targets"
    mixed = "control-plane and worker machines are covered together: give them a check each, or set maxUnhealthy to 1"
    return {
        OVERLAPPING: ConditionText(status="True", reason="SeveralChecks", message=overlap) if report.overlaps else None,
        MIXED: ConditionText(status="True", reason="ControlPlaneAndWorkers", message=mixed)
        if report.mixed_control_plane
        else None,
        NO_TARGETS: ConditionText(status="True", reason=NO_TARGETS, message=report.no_targets) if report.no_targets else None,
        NEEDS_PERSON: ConditionText(status="True", reason=NEEDS_PERSON, message=situation.waiting) if situation.waiting else None,
        CONFLICTING: None,  # while there is one, `conflicting_status` is all that is written
    }


def another_controller(report: CheckReport) -> str:
    """Who else acts on the check, in words, "" for nobody. A report of an older worker has it only where the circuit breaker
    says so."""
    return report.another_controller or (report.message if report.reason == CONFLICTING else "")


def conflicting_status(situation: Situation, now: datetime) -> StatusChange | None:
    """Our condition that another controller is at work, and nothing else."""
    report, listed = situation.report, situation.current.get("conditions") or []
    why = another_controller(report)
    wanted = conditions(listed, {CONFLICTING: ConditionText(status="True", reason=CONFLICTING, message=why)}, now)
    if wanted == listed:
        return None
    told = condition_in(listed, CONFLICTING).get("status") == "True"
    happenings = () if told else (happening(report, CONFLICTING, why, warning=True),)
    return StatusChange(patch={"status": {"conditions": wanted}}, happenings=happenings)


def conditions(
    listed: Sequence[Mapping[str, Any]] | None, wanted: Mapping[str, ConditionText | None], now: datetime, *, older: bool = False
) -> list[JsonObject]:
    """The list with ours put in or taken out, and the conditions of others left where they are.

    older: of the generation whose schemas take no empty reason or message, but that they are missing.
    """
    before = list(listed or ())
    ours = {kind: _condition(kind, said, condition_in(before, kind), now) for kind, said in wanted.items() if said is not None}
    if older:
        ours = {kind: {name: _older(value) for name, value in each.items() if value != ""} for kind, each in ours.items()}
    kept: list[JsonObject] = []
    for entry in before:
        kind = str(entry.get("type"))
        if kind in ours:
            kept.append(ours.pop(kind))
        elif kind not in wanted:
            kept.append(dict(entry))
    return [*kept, *ours.values()]


def _older(value: Any) -> Any:
    return value[:MAXIMUM_OLDER_MESSAGE] if isinstance(value, str) else value


def _condition(kind: str, said: ConditionText, before: Mapping[str, Any], now: datetime) -> JsonObject:
    same = before.get("status") == said.status and before.get("lastTransitionTime")
    return {
        "type": kind,
        "status": said.status,
        "reason": said.reason,
        "message": visible(said.message)[:MAXIMUM_CONDITION_MESSAGE],
        "lastTransitionTime": before["lastTransitionTime"] if same else seconds(now),
        **said.extra,
    }


def status_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of an object, without what is not of the shape that it has in all kinds of them: we would write it anew."""
    return {name: value for name, value in mapping(document.get("status")).items() if _has_its_shape(name, value)}


def _has_its_shape(name: str, value: object) -> bool:
    if name == "conditions":
        return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
    if name in {"v1beta2", "v1beta1", "deprecated"}:
        return isinstance(value, Mapping) and all(map(_has_its_shape, value, value.values()))
    return name != "inFlightRemediations" or isinstance(value, Mapping)


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of that type in a status, an empty one where there is none."""
    return condition_in(status.get("conditions") or (), kind)


def condition_in(listed: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    """The condition of that type in a list, an empty one where there is none."""
    return next((entry for entry in listed if entry.get("type") == kind), {})


def differing(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    """The fields of a status that do not read as wanted; what is empty equals what is absent."""
    return {name: value for name, value in wanted.items() if value != (current.get(name) or type(value)())}


def happening(report: CheckReport, reason: str, message: str, *, warning: bool = False) -> Happening:
    """Something about the check that is worth an Event."""
    return Happening(about=report.ref, uid=report.uid, reason=reason, message=message, warning=warning)


def seconds(moment: datetime) -> str:
    """A moment as schemas want it (date-time, whole seconds)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
