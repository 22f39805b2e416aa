"""What keeps a cluster's scanner from acting on anything now: one answer, which command line, page and JSON print (S44).

What a circuit breaker of one check keeps waiting is `alarms.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.scan.report import ScanReport
from policy.values.durations import format_duration
from policy.values.moments import written

OLD = timedelta(minutes=2)
"""A report that is so much older than a scan may take says nothing of now."""
UNSEEN = timedelta(seconds=15)
"""What is followed is seen again within that time: a server that is quiet is asked every ten seconds whether it is there."""


class ObstacleCode(StrEnum):
    """What it is; the sentence is beside it."""

    PAUSED = "paused"
    SWITCHED_OFF = "switched-off"
    SCANNER = "scanner-problem"
    UNSEEN = "not-seen-yet"
    VIEW = "view-not-live"
    POLICIES = "fence-policies"
    LEASE = "cluster-lease"


BY_PEOPLE = frozenset({ObstacleCode.PAUSED, ObstacleCode.SWITCHED_OFF})
BLIND = frozenset({ObstacleCode.SCANNER, ObstacleCode.UNSEEN, ObstacleCode.VIEW})
"""What is shown of the cluster then may be otherwise now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One of them, and in a sentence why."""

    code: ObstacleCode
    text: str


def obstacles(report: ScanReport | None, *, paused: str, problem: str, wait: timedelta, now: datetime) -> Iterator[Obstacle]:
    """People's words first. report: the last one; paused, problem: what the scanner says of itself, "" for nothing. wait: how
    long a scan without news takes (`scan.wait`)."""
    if paused:
        yield Obstacle(code=ObstacleCode.PAUSED, text=paused)
    for why in report.policies.switched_off if report is not None else ():
        yield Obstacle(code=ObstacleCode.SWITCHED_OFF, text=f"fencing is switched off: {why}")
    if problem:
        yield Obstacle(code=ObstacleCode.SCANNER, text=problem)
    if report is None:
        yield Obstacle(code=ObstacleCode.UNSEEN, text="the scanner has not seen the cluster yet")
        return
    if unseen := not_live(report, _age(report, wait, now)):
        yield unseen
    if report.policies.problem:
        yield Obstacle(code=ObstacleCode.POLICIES, text=f"the fence policies can't be used: {report.policies.problem}")
    if report.lease.needed and not report.lease.held and (why := report.lease.problem or report.lease.holder):
        yield Obstacle(code=ObstacleCode.LEASE, text=f"the cluster Lease is not held: {why}")


def seen_at(report: ScanReport) -> datetime | None:
    """When the cluster was as the report says; None where the worker has yet to see it."""
    return report.seen_at or ((report.answered_at or report.at) if report.view.synced else None)


def not_live(report: ScanReport, aged: str = "") -> Obstacle | None:
    """That the report says nothing of now, None where it does. aged: that it is old, "" where it is not."""
    stale = report.view.stale or ("" if report.view.synced else "still reading the cluster") or aged
    answered = report.answered_at or report.at
    seen = report.seen_at or answered
    since = f" since {written(seen)}" if answered - seen > UNSEEN else ""
    return Obstacle(code=ObstacleCode.VIEW, text=f"view not live{since}: {stale}") if stale else None


def _age(report: ScanReport, wait: timedelta, now: datetime) -> str:
    age = now - (report.answered_at or report.at)
    return f"the last report is {format_duration(timedelta(seconds=int(age.total_seconds())))} old" if age > wait + OLD else ""
