"""How a NodeHealthCheck judges: Nodes alone, by their conditions.

A node is healthy again only when its remediation is gone, at the earliest `healthyDelay` after it looked well. The exclude label
matters only once the node would be unhealthy: an excluded healthy node counts as healthy.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from policy.checks.health_check import HealthCheck
from policy.checks.verdict import (
    DELETING,
    EXCLUDED,
    HEALTHY,
    RECOVERING,
    RECOVERS,
    Health,
    JudgedTarget,
    Standing,
    Verdict,
    by_conditions,
    offences,
    unread,
    watched,
)
from policy.objects.nodes import EXCLUDE_LABEL, NodeView
from policy.objects.remediations import RemediationObject
from policy.values.times import RESOLUTION, format_duration, later, written

CONFIRMED_ANNOTATION = "remediation.medik8s.io/manually-confirmed-healthy"
"""A person's confirmation that a node is well, where `healthyDelay` is negative; any value."""

HEALTHY_DELAYED = "HealthyDelayed"

_recovering = partial(Verdict, health=Health.HEALTHY, standing=Standing.RECOVERING, reason=RECOVERING)


class Medik8sRules:
    """One NodeHealthCheck, prepared for many nodes."""

    __slots__ = ("_check", "_watched")

    def __init__(self, check: HealthCheck) -> None:
        self._check = check
        self._watched = watched(check.conditions)

    def covers(self, target: JudgedTarget) -> bool:
        """Nodes that the selector matches; Machines never."""
        return target.machine is None and target.node is not None and self._check.selector.matches(target.node.labels)

    def judge(self, target: JudgedTarget, now: datetime) -> Verdict:
        """What the check thinks of a node that it covers.

        A condition that does not say since when it holds never makes a node unhealthy: it is not known whether it has expired.
        """
        node = target.node
        assert node is not None, "a NodeHealthCheck covers Nodes"
        if node.deleting:
            message = "the Node object is being deleted"
            return Verdict(health=Health.SKIPPED, standing=Standing.DELETING, reason=DELETING, message=message)
        if problem := target.unreadable:
            return unread(problem)
        if found := offences(node.conditions, self._watched):
            return _unless_excluded(by_conditions(found, now), node)
        return self._well(target, node, now) if target.marked or target.remediations else HEALTHY

    def _own(self, target: JudgedTarget) -> list[RemediationObject]:
        """The remediation objects that this check has created for the node."""
        return [each for each in target.remediations if self._check.makes(each) and self._check.owns(each)]

    def _well(self, target: JudgedTarget, node: NodeView, now: datetime) -> Verdict:
        own = self._own(target)
        if waiting := [each for each in own if not each.deleting]:
            return self._delayed(waiting, node, now) or _recovering(
                message=f"well again: its {waiting[0].ref.kind} can be deleted"
            )
        if own:
            return _recovering(message=f"well again; its {own[0].ref.kind} is being deleted")
        return RECOVERS if target.marked else HEALTHY

    def _delayed(self, waiting: list[RemediationObject], node: NodeView, now: datetime) -> Verdict | None:
        delay = self._check.healthy_delay
        if not delay or CONFIRMED_ANNOTATION in node.annotations:
            return None
        if delay < timedelta(0):
            message = (
                f"well again; healthyDelay waits for a person: kubectl annotate node {node.name} {CONFIRMED_ANNOTATION}=true"
            )
            return _recovering(message=message, reason=HEALTHY_DELAYED)
        marks = [each.well_since for each in waiting if each.well_since is not None]
        if not marks:
            return _recovering(message="well again; nothing says since when", reason=HEALTHY_DELAYED, again=delay)
        since = max(marks)
        due = later(since, delay, RESOLUTION)
        if now >= due:
            return None
        message = f"well again since {written(since)}, which must last for {format_duration(delay)}"
        return _recovering(message=message, reason=HEALTHY_DELAYED, since=since, due=due)


def _unless_excluded(verdict: Verdict, node: NodeView) -> Verdict:
    if verdict.health is not Health.UNHEALTHY or not node.excluded:
        return verdict
    message = f"{verdict.message}; the label {EXCLUDE_LABEL}=true keeps it out of remediation"
    return Verdict(
        health=Health.SKIPPED,
        standing=Standing.EXCLUDED,
        reason=EXCLUDED,
        message=message,
        since=verdict.since,
        expired=verdict.expired,
    )
