"""What keeps a cluster's nodes from being repaired, as the scan's long poll knows it: levels for Prometheus, notifications for
people (`policy/scan/readiness.py`), also of what only the scanner knows, who says so with each request.

The long poll sets them, because it always runs somewhere; why the scanner does not is `activities/contracts/metrics.py`. Which
notifications were sent is known to this worker alone: another one that takes over sends them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from temporalio.common import MetricMeter

from activities.contracts import metrics
from activities.contracts.scan import ScanRequest
from activities.notification_sender import Notify, discard_notice
from policy.episode.advice import ASK_STATUS
from policy.episode.events import When
from policy.episode.notices import Notice
from policy.scan.permit_rules import WAIT_FOR_A_PERMIT
from policy.scan.readiness import Alarm, alarms, opened_breakers
from policy.scan.scan_report import ScanReport
from policy.values.times import moment_of

PATIENCE: Mapping[When, timedelta] = {
    When.CIRCUIT_BREAKER: timedelta(0),
    When.VIEW_STALE: timedelta(minutes=2),
    When.NO_PERMIT: timedelta(minutes=10),
}
"""How long it lasts before people are notified: a worker that has just begun reads the cluster first, and permits come back."""


class Levels:
    """Of one cluster, as one worker knows them."""

    def __init__(self, cluster: str, meter: MetricMeter) -> None:
        self._began = metrics.SCAN_BEGAN.on(meter, cluster=cluster)
        self._halted = metrics.HALTED.on(meter, cluster=cluster)
        self._stale = metrics.VIEW_STALE.on(meter, cluster=cluster)
        self._breakers = metrics.CIRCUIT_BREAKERS_OPEN.on(meter, cluster=cluster)
        self._needed = metrics.LEASE_NEEDED.on(meter, cluster=cluster)
        self._held = metrics.LEASE_HELD.on(meter, cluster=cluster)
        self._need_person = metrics.NEED_PERSON.on(meter, cluster=cluster)
        self._used = metrics.PERMITS_USED.on(meter, cluster=cluster)
        self._waiting = metrics.PERMITS_WAITING.on(meter, cluster=cluster)

    def worker_began(self) -> None:
        """This worker serves the cluster, and was not asked to scan it yet: the alarm that no scan runs goes by that."""
        self._began.set(0)

    def scan_began(self, request: ScanRequest, began: datetime) -> None:
        """What the scanner says of itself. began: when Temporal gave us the scan."""
        self._halted.set(float(bool(request.halted)))
        if request.in_flight is not None:  # else the scanner does not know yet which episodes are open
            self._need_person.set(request.need_person)
            self._used.set(request.permits)
            self._waiting.set(_waiting(request))
        self._began.set(began.timestamp())  # last: until then an earlier worker is believed

    def cluster_seen(self, report: ScanReport) -> None:
        """What the scan has seen."""
        self._stale.set(float(bool(report.view.stale)))
        self._breakers.set(float(sum(1 for _ in opened_breakers(report))))
        self._needed.set(float(report.lease.needed))
        self._held.set(float(report.lease.held))

    def scanner_stopped(self) -> None:
        """No Lease is needed."""
        self._needed.set(0)
        self._held.set(0)


class AlarmNotifier:
    """Of one cluster."""

    def __init__(self, cluster: str, *, clock: Callable[[], datetime], notify: Notify = discard_notice) -> None:
        self._cluster = cluster
        self._clock = clock
        self._notify = notify
        self._since: dict[tuple[When, str], datetime] = {}
        self._notified: dict[tuple[When, str], Alarm] = {}

    def scan_began(self, request: ScanRequest, began: datetime) -> None:
        """Notify people of a new halt, of its end, and once more of episodes that wait for a person."""
        if request.halted_is_new:
            self._notify(Notice(when=When.HALTED, cluster=self._cluster, subject="halted", text=request.halted))
        if request.halt_over:
            over = Notice(when=When.HALTED, cluster=self._cluster, subject="halted", text=request.halt_over, over=True)
            self._notify(over)
        for each in request.remind:
            since = moment_of(each.since)
            self._notify(
                Notice(
                    when=When.NEEDS_HUMAN,
                    cluster=self._cluster,
                    node=each.node,
                    subject=each.incident,
                    text=f"incident {each.incident}: still waits for a person: {ASK_STATUS}",
                    waited=began - since if since is not None else timedelta(0),
                )
            )

    def begin_due_work(self, report: ScanReport, request: ScanRequest) -> float:
        """Notify people of what has lasted long enough, and of what is over. In how many seconds to call again."""
        now, due = self._clock(), float("inf")
        stands = {(each.when, each.subject): each for each in alarms(report, _waiting(request))}
        for key in self._since.keys() - stands.keys():
            del self._since[key]
            if (former := self._notified.pop(key, None)) is not None:
                self._notify(self._notice(former, over=True))
        for key, alarm in stands.items():
            left = (self._since.setdefault(key, now) + PATIENCE[alarm.when] - now).total_seconds()
            if left > 0:
                due = min(due, left)
            elif key not in self._notified:
                self._notified[key] = alarm
                self._notify(self._notice(alarm))
        return due

    def _notice(self, alarm: Alarm, *, over: bool = False) -> Notice:
        text = f"no longer so: {alarm.text}" if over else f"{alarm.text} (`nodewarden status -c {self._cluster}`)"
        subject = " ".join(filter(None, (alarm.when.value, alarm.subject)))
        return Notice(when=alarm.when, cluster=self._cluster, subject=subject, text=text, over=over)


def _waiting(request: ScanRequest) -> int:
    """How many nodes wait for a permit: those in the queue, and those that the last admission has refused one."""
    return request.queued + len({each.node for each in request.refusals if each.reason in WAIT_FOR_A_PERMIT})
