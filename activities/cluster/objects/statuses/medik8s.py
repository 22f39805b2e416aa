"""The status of a NodeHealthCheck: counts, who is unhealthy and what is done about it, phase and reason.

Two conditions carry the memory of what was said already: `Disabled` (theirs) and `RemediationAllowed` (as the other two dialects
have it). The storm's two, where the check has a cooldown, are its memory across processes (`policy/checks/health_check.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import Happening
from activities.cluster.objects.statuses.common import (
    HALTED,
    REMEDIATION_ALLOWED,
    ConditionText,
    Situation,
    StatusChange,
    allowed,
    condition_of,
    conditions,
    differing,
    happening,
    notices,
    seconds,
    unusable,
)
from activities.contracts.scan import OpenEpisode
from policy.checks.health_check import ACTIVE, COOLING_DOWN
from policy.objects.remediations import RemediationObject
from policy.scan.scan_report import CheckReport

DISABLED = "Disabled"
UPDATED = "lastUpdateTime"
"""The field that says when any other was written; alone it says nothing."""

STORM_REASON = "HealthyNodeThresholdChange"

MAXIMUM_UNHEALTHY_NODES = 100
"""Nodes named in one status; more are only counted. A status is for people, and etcd refuses objects beyond 1.5 MB."""


def medik8s_status(situation: Situation, now: datetime) -> StatusChange | None:
    """What is to be written over the status as it stands; None where it says all of it already."""
    report, current, in_flight = situation.report, situation.current, situation.in_flight
    remediating = {each.node: each for each in in_flight}
    started_at = {
        node: _stamp(each.since, (current.get("inFlightRemediations") or {}).get(node), now) for node, each in remediating.items()
    }
    wanted: JsonObject = {
        "observedNodes": report.total,
        "healthyNodes": report.healthy,
        "unhealthyNodes": _unhealthy_nodes(situation, remediating, started_at, now),
        "inFlightRemediations": dict(sorted(started_at.items())),
        "phase": _phase(report, remediating),
        "reason": _reason(situation, remediating),
        "conditions": _conditions(situation, now),
    }
    patch = differing(wanted, current)
    if not patch:
        return None
    started, ended = _moved(remediating, current)
    if "inFlightRemediations" in patch:
        # In a merge patch a key that is left out stays.
        patch["inFlightRemediations"] |= dict.fromkeys(ended)
    patch[UPDATED] = seconds(now)
    happenings = (*_flips(report, current), *_remediations(report, remediating, started, ended))
    return StatusChange(patch={"status": patch}, happenings=happenings)


def _phase(report: CheckReport, remediating: Mapping[str, OpenEpisode]) -> str:
    if report.error:
        return "Disabled"
    if report.paused:
        return "Paused"
    return "Remediating" if remediating else "Enabled"


def _reason(situation: Situation, remediating: Mapping[str, OpenEpisode]) -> str:
    report, stops = situation.report, situation.report.error
    if report.paused and not stops:
        stops = report.paused if report.reason == HALTED else f"paused: {report.paused}"
    if stops:
        return "; ".join(filter(None, (stops, situation.waiting)))
    doing = (
        f"remediating {', '.join(sorted(remediating)[:5])}{' and others' if len(remediating) > 5 else ''}" if remediating else ""
    )
    stopped = "" if report.allowed else f"no new remediation: {report.message}"
    return "; ".join(filter(None, (situation.waiting, doing, stopped))) or "enabled, nothing to remediate"


def _unhealthy_nodes(
    situation: Situation, remediating: Mapping[str, OpenEpisode], started_at: Mapping[str, str], now: datetime
) -> list[JsonObject]:
    handled, objects = {*remediating, *situation.objects}, situation.objects
    names = sorted({*situation.unhealthy, *handled}, key=lambda node: (node not in handled, node))[:MAXIMUM_UNHEALTHY_NODES]
    found: list[JsonObject] = []
    for name in sorted(names):
        entry: JsonObject = {"name": name}
        listed = [_object(each, now) for each in objects.get(name, ())]
        if name in remediating:
            listed.append(_remediation(remediating[name], started_at[name]))
        if listed:
            entry["remediations"] = listed
        if (well := max((each.well_since for each in objects.get(name, ()) if each.well_since), default=None)) is not None:
            entry |= {"conditionsHealthyTimestamp": seconds(well), "healthyDelayed": True}
        found.append(entry)
    return found


def _remediation(episode: OpenEpisode, started_at: str) -> JsonObject:
    """An episode is a workflow, not an object: its name here is the incident by which `nodewarden status` finds it."""
    resource = {"apiVersion": "nodewarden.io/v1alpha1", "kind": episode.kind, "name": episode.incident}
    return {"resource": resource, "started": started_at}


def _object(made: RemediationObject, now: datetime) -> JsonObject:
    """One of another controller, as the operator lists them."""
    names = {"apiVersion": made.ref.api_version, "kind": made.ref.kind, "namespace": made.ref.namespace, "name": made.ref.name}
    entry: JsonObject = {"resource": names | ({"uid": made.uid} if made.uid else {}), "started": seconds(made.created or now)}
    if made.template:
        entry["templateName"] = made.template
    if made.timed_out is not None:
        entry["timedOut"] = seconds(made.timed_out)
    return entry


def _conditions(situation: Situation, now: datetime) -> list[JsonObject]:
    report, current = situation.report, situation.current
    if report.error:
        disabled = ConditionText(status="True", reason=unusable(report), message=report.error)
    else:
        disabled = ConditionText(status="False", reason="NodeHealthCheckEnabled", message="; ".join(("in use", *report.warnings)))
    said: dict[str, ConditionText | None] = {DISABLED: disabled, REMEDIATION_ALLOWED: allowed(report), **notices(situation)}
    if not report.error:
        said |= _storm(report, current)  # a check that can't be used knows of no storm; what stands there is its memory
    generation = {"observedGeneration": report.generation}
    observed = {kind: replace(each, extra=generation) if each is not None else None for kind, each in said.items()}
    listed = conditions(current.get("conditions"), observed, now)
    since = {ACTIVE: report.storm_active, COOLING_DOWN: report.storm_cooling}
    for condition in listed:
        moment = since.get(condition["type"])
        if moment is not None and condition["status"] == "True":
            condition["lastTransitionTime"] = seconds(moment)
    return listed


def _storm(report: CheckReport, current: Mapping[str, Any]) -> dict[str, ConditionText | None]:
    """Conditions that do not hold are left out where they never did: most checks have no storms."""
    found: dict[str, ConditionText | None] = {}
    for kind, since in ((ACTIVE, report.storm_active), (COOLING_DOWN, report.storm_cooling)):
        if since is not None:
            found[kind] = ConditionText(status="True", reason=STORM_REASON, message=report.message)
        elif condition_of(current, kind):
            found[kind] = ConditionText(status="False", reason=STORM_REASON, message="")
    return found


def _flips(report: CheckReport, current: Mapping[str, Any]) -> list[Happening]:
    was_disabled = condition_of(current, DISABLED).get("status") == "True"
    was_closed = condition_of(current, REMEDIATION_ALLOWED).get("status") == "False"
    if report.error:
        return [] if was_disabled else [happening(report, "Disabled", report.error, warning=True)]
    told = [happening(report, "Enabled", "the check is in use")] if was_disabled else []
    if not report.allowed and (was_disabled or not was_closed):
        told.append(happening(report, "RemediationSkipped", f"no new remediation: {report.message}", warning=True))
    if report.allowed and was_closed and not was_disabled:
        told.append(happening(report, "RemediationAllowed", f"new remediations are allowed again: {report.message}"))
    return told


def _remediations(
    report: CheckReport, remediating: Mapping[str, OpenEpisode], started: Sequence[str], ended: Sequence[str]
) -> list[Happening]:
    began = [
        happening(
            report,
            "RemediationCreated",
            f"{remediating[node].kind.lower()} of Node/{node} has begun, incident {remediating[node].incident}",
        )
        for node in started
    ]
    return [*began, *(happening(report, "RemediationRemoved", f"the episode of Node/{node} has ended") for node in ended)]


def _moved(remediating: Mapping[str, OpenEpisode], current: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    before = set(current.get("inFlightRemediations") or ())
    return sorted(remediating.keys() - before), sorted(before - remediating.keys())


def _stamp(since: str, recorded: str | None, now: datetime) -> str:
    """A moment as the schema wants it (date-time, whole seconds). Where none was given: what stands there already, else now."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        return recorded or seconds(now)
    return seconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
