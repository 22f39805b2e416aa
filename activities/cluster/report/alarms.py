"""Notifies people of what keeps a cluster's nodes from being repaired (`policy/scan/readiness.py`), and when that is over.

What was told is known to this worker alone: another one that takes over tells it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from activities.contracts.scan import ScanRequest
from activities.notification_sender import Notify, nobody
from policy.episode.events import When
from policy.episode.notices import Notice
from policy.scan.permit_rules import WAIT_FOR_A_PERMIT
from policy.scan.readiness import Alarm, alarms
from policy.scan.scan_report import ScanReport

PATIENCE: Mapping[When, timedelta] = {
    When.CIRCUIT_BREAKER: timedelta(0),
    When.VIEW_STALE: timedelta(minutes=2),
    When.NO_PERMIT: timedelta(minutes=10),
}
"""How long it lasts before people are told: a worker that has just begun reads the cluster first, and permits come back."""


class AlarmNotifier:
    """Of one cluster."""

    def __init__(self, cluster: str, *, clock: Callable[[], datetime], notify: Notify = nobody) -> None:
        self._cluster = cluster
        self._clock = clock
        self._notify = notify
        self._since: dict[tuple[When, str], datetime] = {}
        self._told: dict[tuple[When, str], Alarm] = {}

    def attend(self, report: ScanReport, request: ScanRequest) -> float:
        """Notify people of what has lasted long enough, and of what is over. In how many seconds to call again."""
        now, due = self._clock(), float("inf")
        held_back = {each.node for each in request.refusals if each.reason in WAIT_FOR_A_PERMIT}
        stands = {(each.when, each.subject): each for each in alarms(report, request.queued + len(held_back))}
        for key in self._since.keys() - stands.keys():
            del self._since[key]
            if (former := self._told.pop(key, None)) is not None:
                self._notify(self._notice(former, over=True))
        for key, alarm in stands.items():
            left = (self._since.setdefault(key, now) + PATIENCE[alarm.when] - now).total_seconds()
            if left > 0:
                due = min(due, left)
            elif key not in self._told:
                self._told[key] = alarm
                self._notify(self._notice(alarm))
        return due

    def _notice(self, alarm: Alarm, *, over: bool = False) -> Notice:
        text = f"no longer so: {alarm.text}" if over else f"{alarm.text} (`nodewarden status -c {self._cluster}`)"
        subject = " ".join(filter(None, (alarm.when.value, alarm.subject)))
        return Notice(when=alarm.when, cluster=self._cluster, subject=subject, text=text, over=over)
