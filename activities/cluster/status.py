"""What a NodeHealthCheck's status says of our work, in the words that users of medik8s know.

Only composed here, from the scan's report and what stands in the object; written by `scan.py`, and only where something differs.
Two conditions carry the memory of what was said already: `Disabled` (theirs) and `RemediationAllowed` (as the other two dialects
have it), so that a brake that closes or opens becomes one Event whichever worker sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activities.cluster.connection import JsonObject
from activities.cluster.events import Happening
from activities.contracts.scan import InFlight
from policy.report import CheckReport

DISABLED = "Disabled"
REMEDIATION_ALLOWED = "RemediationAllowed"

MAXIMUM_UNHEALTHY_NODES = 100
"""Nodes named in one status; more are only counted. A status is for people, and etcd refuses objects beyond 1.5 MB."""

MAXIMUM_CONDITION_MESSAGE = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A merge patch for the status subresource, and what it makes worth telling."""

    patch: JsonObject
    happenings: tuple[Happening, ...] = ()


def status_change(
    report: CheckReport,
    *,
    current: Mapping[str, Any],
    unhealthy: Sequence[str],
    in_flight: Sequence[InFlight],
    now: datetime,
) -> StatusChange | None:
    """What is to be written over `current` (the object's status as it stands); None where it says all of it already.

    unhealthy, in_flight: the nodes of this check alone.
    """
    remediating = {each.node: each for each in in_flight}
    started_at = {
        node: _stamp(each.since, (current.get("inFlightRemediations") or {}).get(node), now) for node, each in remediating.items()
    }
    wanted: JsonObject = {
        "observedNodes": report.total,
        "healthyNodes": report.healthy,
        "unhealthyNodes": _unhealthy_nodes(unhealthy, remediating, started_at),
        "inFlightRemediations": dict(sorted(started_at.items())),
        "phase": _phase(report, remediating),
        "reason": _reason(report, remediating),
        "conditions": _conditions(report, current, now),
    }
    patch = {name: value for name, value in wanted.items() if value != (current.get(name) or type(value)())}
    if not patch:
        return None
    started, ended = _moved(remediating, current)
    if "inFlightRemediations" in patch:
        # In a merge patch a key that is left out stays.
        patch["inFlightRemediations"] |= dict.fromkeys(ended)
    patch["lastUpdateTime"] = _seconds(now)
    happenings = (*_flips(report, current), *_remediations(report, remediating, started, ended))
    return StatusChange(patch={"status": patch}, happenings=happenings)


def _phase(report: CheckReport, remediating: Mapping[str, InFlight]) -> str:
    if report.error:
        return "Disabled"
    if report.paused:
        return "Paused"
    return "Remediating" if remediating else "Enabled"


def _reason(report: CheckReport, remediating: Mapping[str, InFlight]) -> str:
    if report.error:
        return report.error
    if report.paused:
        return f"paused: {report.paused}"
    doing = (
        f"remediating {', '.join(sorted(remediating)[:5])}{' and others' if len(remediating) > 5 else ''}" if remediating else ""
    )
    brake = "" if report.allowed else f"no new remediation: {report.message}"
    return "; ".join(filter(None, (doing, brake))) or "enabled, nothing to remediate"


def _unhealthy_nodes(
    unhealthy: Sequence[str], remediating: Mapping[str, InFlight], started_at: Mapping[str, str]
) -> list[JsonObject]:
    names = sorted({*unhealthy, *remediating}, key=lambda node: (node not in remediating, node))[:MAXIMUM_UNHEALTHY_NODES]
    return [
        {"name": name, **({"remediations": [_remediation(remediating[name], started_at[name])]} if name in remediating else {})}
        for name in sorted(names)
    ]


def _remediation(episode: InFlight, started_at: str) -> JsonObject:
    """An episode is a workflow, not an object: its name here is the incident by which `nodewarden status` finds it."""
    resource = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "Fencing", "name": episode.incident}
    return {"resource": resource, "started": started_at}


def _conditions(report: CheckReport, current: Mapping[str, Any], now: datetime) -> list[JsonObject]:
    """Ours, with the conditions of others left where they are."""
    if report.error:
        disabled = ("True", "InvalidConfiguration", report.error)
        allowed = ("False", "InvalidConfiguration", "a check that cannot be used allows nothing")
    else:
        disabled = ("False", "NodeHealthCheckEnabled", "; ".join(("in use", *report.warnings)))
        closed = ("False", report.reason or "NotAllowed", report.message)
        allowed = ("True", "RemediationAllowed", "the brake is open") if report.allowed else closed
    ours = {
        DISABLED: _condition(DISABLED, disabled, report, current, now),
        REMEDIATION_ALLOWED: _condition(REMEDIATION_ALLOWED, allowed, report, current, now),
    }
    kept = [ours.pop(entry.get("type"), entry) for entry in current.get("conditions") or ()]
    return [*kept, *ours.values()]


def _condition(
    kind: str, said: tuple[str, str, str], report: CheckReport, current: Mapping[str, Any], now: datetime
) -> JsonObject:
    status, reason, message = said
    before = condition_of(current, kind)
    same = before.get("status") == status and before.get("lastTransitionTime")
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:MAXIMUM_CONDITION_MESSAGE],
        "lastTransitionTime": before["lastTransitionTime"] if same else _seconds(now),
        "observedGeneration": report.generation,
    }


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of that type in a status, an empty one where there is none."""
    return next((entry for entry in status.get("conditions") or () if entry.get("type") == kind), {})


def _flips(report: CheckReport, current: Mapping[str, Any]) -> list[Happening]:
    was_disabled = condition_of(current, DISABLED).get("status") == "True"
    was_closed = condition_of(current, REMEDIATION_ALLOWED).get("status") == "False"
    if report.error:
        return [] if was_disabled else [_happening(report, "Disabled", report.error, warning=True)]
    told = [_happening(report, "Enabled", "the check is in use")] if was_disabled else []
    if not report.allowed and (was_disabled or not was_closed):
        told.append(_happening(report, "RemediationSkipped", f"no new remediation: {report.message}", warning=True))
    if report.allowed and was_closed and not was_disabled:
        told.append(_happening(report, "RemediationAllowed", f"new remediations are allowed again: {report.message}"))
    return told


def _remediations(
    report: CheckReport, remediating: Mapping[str, InFlight], started: Sequence[str], ended: Sequence[str]
) -> list[Happening]:
    began = [
        _happening(report, "RemediationCreated", f"fencing of Node/{node} has begun, incident {remediating[node].incident}")
        for node in started
    ]
    return [*began, *(_happening(report, "RemediationRemoved", f"fencing of Node/{node} has ended") for node in ended)]


def _moved(remediating: Mapping[str, InFlight], current: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    before = set(current.get("inFlightRemediations") or ())
    return sorted(remediating.keys() - before), sorted(before - remediating.keys())


def _happening(report: CheckReport, reason: str, message: str, *, warning: bool = False) -> Happening:
    return Happening(about=report.ref, uid=report.uid, reason=reason, message=message, warning=warning)


def _stamp(since: str, recorded: str | None, now: datetime) -> str:
    """A moment as the schema wants it (date-time, whole seconds). Where none was given: what stands there already, else now."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        return recorded or _seconds(now)
    return _seconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
