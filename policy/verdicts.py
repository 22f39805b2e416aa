"""The verdict on one target: healthy, soon (a timeout runs, with the moment it expires), unhealthy, or skipped (why).

Pure judgement of one target by one check at one moment. Counting verdicts is `policy/ledger.py`, acting on the count
`policy/brakes.py`. The rules shared by all dialects: a listed condition fires when type and status are equal and its
duration is *strictly* exceeded; a condition that the node does not report never fires; the list is a logical OR.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from policy.durations import format_duration
from policy.episodes import Need, NeedKind
from policy.healthcheck import HealthCheck
from policy.nodes import EXCLUDE_LABEL, NodeView


class Health(StrEnum):
    """What a check thinks of a target."""

    HEALTHY = "healthy"
    SOON = "soon"
    UNHEALTHY = "unhealthy"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One check's opinion of one node at one moment.

    since: when the offending condition took its status. due: for `soon`, the moment the timeout expires. A verdict holds
    until `due` or until the node or the check changes, whichever is first.
    """

    health: Health
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    due: datetime | None = None


EXCLUDED = "Excluded"
"""The reason of a verdict on a node that is unhealthy, but that people keep out of remediation."""

DELETING = "Deleting"
"""The reason of a verdict on a node that is being deleted."""


def judge(check: HealthCheck, node: NodeView, now: datetime) -> Verdict:
    """What the check thinks of a node that it selects, at that moment.

    A condition that does not say since when it holds is never enough for unhealthy: nobody can say that it has expired. The
    exclude label matters only once the node would be unhealthy, as in medik8s: an excluded healthy node counts as healthy.
    """
    if node.deleting:
        return Verdict(health=Health.SKIPPED, reason=DELETING, message="the Node object is being deleted")
    verdict = _by_conditions(check, node, now)
    if verdict.health is Health.UNHEALTHY and node.labels.get(EXCLUDE_LABEL) == "true":
        message = f"{verdict.message}; the label {EXCLUDE_LABEL}=true keeps it out of remediation"
        return Verdict(health=Health.SKIPPED, reason=EXCLUDED, message=message, since=verdict.since)
    return verdict


def need_gone(need: Need, verdict: Verdict | None) -> bool:
    """Whether an episode's reason to exist has gone. `verdict`: of the need's check, None where it no longer covers the node.

    A verdict of soon or skipped keeps the need: the conditions still offend, only their time starts anew or a person objects.
    """
    if need.kind is not NeedKind.CHECK:
        return False
    return verdict is None or verdict.health is Health.HEALTHY


def _by_conditions(check: HealthCheck, node: NodeView, now: datetime) -> Verdict:
    soonest: Verdict | None = None
    timeless: Verdict | None = None
    for listed in check.conditions:
        found = node.condition(listed.type)
        if found is None or found.status != listed.status:
            continue
        reason = f"{listed.type}{listed.status}"
        if found.since is None:
            message = f"{listed.type} is {listed.status}, but the node does not say since when: never taken for expired"
            timeless = timeless or Verdict(health=Health.SOON, reason=reason, message=message)
            continue
        due = found.since + listed.duration
        stated = f"{listed.type} is {listed.status} since {_moment(found.since)}"
        limit = format_duration(listed.duration)
        if now > due:
            message = f"{stated}, longer than {limit}"
            return Verdict(health=Health.UNHEALTHY, reason=reason, message=message, since=found.since)
        if soonest is None or soonest.due is None or due < soonest.due:
            message = f"{stated}, unhealthy after {limit}"
            soonest = Verdict(health=Health.SOON, reason=reason, message=message, since=found.since, due=due)
    return soonest or timeless or Verdict(health=Health.HEALTHY)


def _moment(at: datetime) -> str:
    """In UTC, so that equal moments are equal words whoever writes them."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
