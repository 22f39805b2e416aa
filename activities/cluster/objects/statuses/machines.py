"""The status of MachineHealthChecks: OpenShift's, and Cluster API's in either version.

Both count expected and healthy Machines and have one condition, RemediationAllowed. OpenShift leaves a paused check's status
alone, and so do we; Cluster API says that it is paused and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import Happening
from activities.cluster.objects.statuses.common import (
    INVALID,
    REMEDIATION_ALLOWED,
    ConditionText,
    Situation,
    StatusChange,
    allowed,
    condition_in,
    conditions,
    differing,
    happening,
    notices,
    unusable,
)
from policy.checks.circuit_breakers import OpenReason
from policy.scan.scan_report import CheckReport

PAUSED = "Paused"
RESTRICTED = "RemediationRestricted"
MOST_TARGETS = 10000
"""As many names as Cluster API's schema takes."""

V1BETA1 = "v1beta1"

NOT_PAUSED = ConditionText(status="False", reason="NotPaused", message="")

Said = Mapping[str, ConditionText | None]
"""Conditions by their type; None for one that is to go."""


def openshift_status(situation: Situation, now: datetime) -> StatusChange | None:
    """Counts and conditions with a severity, as machine-api writes them."""
    report, current = situation.report, situation.current
    if situation.paused:
        return None
    said = _with_severity({REMEDIATION_ALLOWED: _allowed(report), **notices(situation)})
    counts = {} if report.error else _counts(report)
    wanted = counts | {"conditions": conditions(current.get("conditions"), said, now, older=True)}
    return _change(situation, wanted, current.get("conditions") or (), zeros=True)


def cluster_api_status(situation: Situation, now: datetime) -> StatusChange | None:
    """Counts, the targets' names, and the conditions in both generations of them, each where its version has it."""
    report, current = situation.report, situation.current
    pause = ConditionText(status="True", reason=PAUSED, message=report.message) if situation.paused else NOT_PAUSED
    said: dict[str, ConditionText | None] = {PAUSED: pause}
    if not situation.paused:
        said |= {REMEDIATION_ALLOWED: _allowed(report), **notices(situation)}
    old = _with_severity({kind: each for kind, each in said.items() if kind != PAUSED})
    observed = {kind: _observed(each, report.generation) for kind, each in said.items()}
    older = report.ref.api_version.endswith(f"/{V1BETA1}")
    both = _both_generations(current, observed, old, now, older=older)
    listed = (current.get("v1beta2") or {} if older else current).get("conditions") or ()
    counts = {} if situation.paused or report.error else _counts(report) | {"targets": sorted(situation.targets)[:MOST_TARGETS]}
    generation = {"observedGeneration": report.generation} if report.generation else {}
    told = condition_in(listed, REMEDIATION_ALLOWED) or condition_in(current.get("conditions") or (), REMEDIATION_ALLOWED)
    return _change(situation, counts | both | generation, [told], zeros=not situation.paused)


def machine_conditions(
    current: Mapping[str, Any], wanted: Mapping[str, tuple[ConditionText, ConditionText] | None], now: datetime, *, older: bool
) -> JsonObject:
    """The status of a Cluster API Machine with these conditions in both generations, the newer spelling and the older one; None
    for one that is to go. older: of an object in v1beta1, which keeps them in other places."""
    new = {kind: each[0] if each is not None else None for kind, each in wanted.items()}
    old = _with_severity({kind: each[1] if each is not None else None for kind, each in wanted.items()})
    return _both_generations(current, new, old, now, older=older)


def _both_generations(current: Mapping[str, Any], new: Said, old: Said, now: datetime, *, older: bool) -> JsonObject:
    if older:
        newer = current.get("v1beta2") or {}
        return {
            "conditions": conditions(current.get("conditions"), old, now, older=True),
            "v1beta2": {"conditions": conditions(newer.get("conditions"), new, now)},
        }
    deprecated = (current.get("deprecated") or {}).get(V1BETA1) or {}
    return {
        "conditions": conditions(current.get("conditions"), new, now),
        "deprecated": {V1BETA1: {"conditions": conditions(deprecated.get("conditions"), old, now, older=True)}},
    }


def _allowed(report: CheckReport) -> ConditionText:
    """As the shipped controllers write it: a closed circuit breaker needs no message."""
    said = allowed(report)
    return replace(said, message="") if said.status == "True" else said


def _counts(report: CheckReport) -> JsonObject:
    return {
        "expectedMachines": report.total,
        "currentHealthy": report.healthy,
        "remediationsAllowed": max(report.remaining, 0) if report.allowed else 0,
    }


def _change(situation: Situation, wanted: JsonObject, listed: Any, *, zeros: bool) -> StatusChange | None:
    patch = differing(wanted, situation.current)
    if zeros:
        # A count that nobody has written yet is not the same as none.
        patch |= {name: value for name, value in wanted.items() if isinstance(value, int) and situation.current.get(name) is None}
    if not patch:
        return None
    return StatusChange(patch={"status": patch}, happenings=_flips(situation, condition_in(listed, REMEDIATION_ALLOWED)))


def _flips(situation: Situation, before: Mapping[str, Any]) -> tuple[Happening, ...]:
    report = situation.report
    if situation.paused:
        return ()
    was_closed = before.get("status") == "False"
    if report.error:
        why = unusable(report)
        told = before.get("reason") == why and before.get("message") == report.error
        reason = "InvalidMachineHealthCheck" if why == INVALID else RESTRICTED
        return () if told else (happening(report, reason, report.error, warning=True),)
    if not report.allowed and (not was_closed or before.get("reason") != report.reason):
        # Too many unhealthy is told by `target_events.py`, once somebody is to be remediated.
        known = report.reason == OpenReason.TOO_MANY_UNHEALTHY
        return () if known else (happening(report, RESTRICTED, report.message, warning=True),)
    if report.allowed and was_closed:
        return (happening(report, "RemediationAllowed", f"remediations are allowed again: {report.message}"),)
    return ()


def _with_severity(said: Said) -> dict[str, ConditionText | None]:
    """Conditions of the older generation: a severity where they are False."""
    return {
        kind: replace(each, extra={"severity": "Warning"}) if each is not None and each.status == "False" else each
        for kind, each in said.items()
    }


def _observed(said: ConditionText | None, generation: int) -> ConditionText | None:
    if said is None or not generation:
        return said
    return replace(said, extra={"observedGeneration": generation})
