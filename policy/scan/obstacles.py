"""Whether a cluster's scanner may act at all, by its own account and by its view of the cluster (S18), and which alarm people get
when it does not (S44).

`all_obstacles` is the one answer to "what keeps everything from being acted on", which command line, page and JSON print.
`alarms`, below, finds unhealthy nodes without any episode. What makes a view stale is `view_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.checks.circuit_breakers import OpenReason
from policy.episode.events import When
from policy.scan.pauses import Pause, described
from policy.scan.scan_report import CheckReport, ScanReport
from policy.values.display_text import counted
from policy.values.times import format_duration, written

OLD = timedelta(minutes=2)
"""A report that is older than a scan may take, by more than this, does not show the present."""
UNSEEN = timedelta(seconds=15)
"""The watches confirm the view within that time: a quiet server is asked every ten seconds whether it is there."""


class ObstacleCode(StrEnum):
    """The kinds of obstacles, for programs; the sentence stands beside it."""

    PAUSED = "paused"
    SWITCHED_OFF = "switched-off"
    SCANNER = "scanner-problem"
    UNSEEN = "not-seen-yet"
    VIEW = "view-not-live"
    POLICIES = "fence-policies"
    LEASE = "cluster-lease"
    MODE = "mode"


BY_PEOPLE = frozenset({ObstacleCode.PAUSED, ObstacleCode.SWITCHED_OFF})
BLIND = frozenset({ObstacleCode.SCANNER, ObstacleCode.UNSEEN, ObstacleCode.VIEW})
"""Under these obstacles the cluster may differ from what is shown of it."""


BRIEFLY = {
    ObstacleCode.PAUSED: "the cluster is paused",
    ObstacleCode.SWITCHED_OFF: "fencing is switched off",
    ObstacleCode.SCANNER: "the scanner has a problem",
    ObstacleCode.UNSEEN: "the cluster has not been seen yet",
    ObstacleCode.VIEW: "the view of the cluster is not live",
    ObstacleCode.POLICIES: "the fence policies can't be used",
    ObstacleCode.LEASE: "the cluster Lease is not held",
    ObstacleCode.MODE: "programs may not repair",
}
"""The obstacle in a few words, where the whole sentence stands nearby."""


WITHOUT_TEMPORAL = (
    "where workers can't reach it either, nothing is begun; `nodewarden doctor` looks for the cause, and `nodewarden explain "
    "NODE` needs no Temporal"
)
"""For a person, of a command that can't reach Temporal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One obstacle, with the reason in a sentence."""

    code: ObstacleCode
    text: str

    @property
    def brief(self) -> str:
        """The same in a few words."""
        return BRIEFLY[self.code]


def halted(report: ScanReport | None, pauses: tuple[Pause, ...]) -> str:
    """What people have commanded against anything being begun, with who and until when (S44); "" for nothing."""
    return "; ".join(each.text for each in _by_people(report, described(pauses)))


def _by_people(report: ScanReport | None, paused: str) -> Iterator[Obstacle]:
    if paused:
        yield Obstacle(code=ObstacleCode.PAUSED, text=paused)
    for why in report.policies.switched_off if report is not None else ():
        yield Obstacle(code=ObstacleCode.SWITCHED_OFF, text=f"fencing is switched off: {why}")


def all_obstacles(report: ScanReport | None, *, paused: str, problem: str, wait: timedelta, now: datetime) -> Iterator[Obstacle]:
    """All obstacles, people's commands first. report: the last one; paused, problem: the scanner's own state, "" for nothing.
    wait: how long a scan without a change takes (`scan.wait`)."""
    yield from _by_people(report, paused)
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
    """The moment that the report shows; None where the worker has yet to see the cluster."""
    return report.seen_at or ((report.answered_at or report.at) if report.view.synced else None)


def not_live(report: ScanReport, aged: str = "") -> Obstacle | None:
    """The obstacle that the report does not show the present, None where it does. aged: that it is old, "" where it is not."""
    stale = report.view.stale or ("" if report.view.synced else "still reading the cluster") or aged
    answered = report.answered_at or report.at
    seen = report.seen_at or answered
    since = f" since {written(seen)}" if answered - seen > UNSEEN else ""
    return Obstacle(code=ObstacleCode.VIEW, text=f"view not live{since}: {stale}") if stale else None


def _age(report: ScanReport, wait: timedelta, now: datetime) -> str:
    age = now - (report.answered_at or report.at)
    return f"the last report is {format_duration(timedelta(seconds=int(age.total_seconds())))} old" if age > wait + OLD else ""


def another_cluster(name: str, found: str, known: str) -> str:
    """The sentence that another cluster answers under this name than its scanner has seen. found, known: the uids of
    kube-system."""
    return (
        f"another cluster answers under the name {name!r}: the uid of its kube-system is {found}, the scanner has seen {known}; "
        "two clusters need two names; one that has taken the other's place is accepted by `nodewarden scan stop` and `scan start`"
    )


# Alarms: nodes are unhealthy and no episode is begun for them, so that no episode would notify people.
#
# They are read from one report. `activities/cluster/report/alarms.py` decides how long each has to last before people are
# notified.

BREAKERS = frozenset({OpenReason.TOO_MANY_UNHEALTHY, OpenReason.STORM, OpenReason.INVALID_THRESHOLD, OpenReason.NO_CLUSTER})
"""Reasons without a person or another controller behind them. A pause and an upgrade are announced by those who began them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that keeps nodes from being repaired. subject: distinguishes alarms of one kind, "" where there is but one."""

    when: When
    text: str
    subject: str = ""


def opened_breakers(report: ScanReport) -> Iterator[CheckReport]:
    """The checks with a circuit breaker that is open, and keeps unhealthy targets waiting."""
    for check in report.checks:
        if not check.allowed and check.reason in BREAKERS and check.unhealthy:
            yield check


def alarms(report: ScanReport, waiting: int) -> Iterator[Alarm]:
    """waiting: how many nodes wait for a permit."""
    for check in opened_breakers(report):
        kept = f"{counted(check.unhealthy, 'unhealthy target')} {'waits' if check.unhealthy == 1 else 'wait'}"
        yield Alarm(
            when=When.CIRCUIT_BREAKER,
            subject=check.ref.key,
            text=f"{check.ref.key}: the circuit breaker is open and {kept}: {check.message}",
        )
    if unseen := not_live(report):
        yield Alarm(when=When.VIEW_STALE, text=f"nothing is begun: {unseen.text}")
    if waiting:
        nodes = f"{counted(waiting, 'node')} {'waits' if waiting == 1 else 'wait'}"
        yield Alarm(when=When.NO_PERMIT, text=f"{nodes} for a permit: others use them all, or need a person")
