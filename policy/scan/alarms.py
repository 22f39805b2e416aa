"""What people should hear of a cluster although no episode tells them: that nodes are unhealthy and nothing is begun for them.

A level of one report. How long each has to last before people are told is `activities/cluster/report/alarms.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy.checks.brakes import Closed
from policy.episode.events import When
from policy.scan.readiness import not_live
from policy.scan.report import CheckReport, ScanReport
from policy.values.counting import counted

BREAKERS = frozenset({Closed.TOO_MANY_UNHEALTHY, Closed.STORM, Closed.INVALID_THRESHOLD, Closed.NO_CLUSTER})
"""What no person has said and no other controller does. A pause and an upgrade are told by those who began them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that keeps nodes from being repaired. subject: tells it from others of its kind, "" where there is but one."""

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
