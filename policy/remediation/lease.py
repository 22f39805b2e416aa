"""How long a node may be held by a remediation of somebody else's controller: the durations of medik8s' node lease.

Whoever remediates a node holds `node-<name>` in `medik8s-leases`, so that maintenance and other checks leave it alone. It is
bound to the time-outs of the ladder: one that is held for much longer than they allow is a remediation that nobody ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from policy.moments import later

BUFFER = timedelta(minutes=1)
DEFAULT_TIMEOUT = timedelta(minutes=10)
"""Of a step that has none."""

_CHANCES = 3

OLD_REMEDIATION = timedelta(hours=48)
OLD_ANNOTATION, OLD_VALUE = "nodehealthcheck.medik8s.io/old-remediation-cr-flag", "flagon"
"""On a remediation object that is older than that: its remediation is at work no more, and people should look."""


def lease_duration(current: timedelta | None, *, buffer: timedelta = BUFFER) -> timedelta:
    """How long the lease is taken for, while a step with that time-out is at work."""
    return (DEFAULT_TIMEOUT if current is None else current) + buffer


def overdue_after(current: timedelta | None, previous: Iterable[timedelta] = ()) -> timedelta:
    """How long it may be held at most. previous: the time-outs of the steps before."""
    return _CHANCES * (DEFAULT_TIMEOUT if current is None else current) + sum(previous, timedelta(0))


def overdue(acquired: datetime, current: timedelta | None, previous: Iterable[timedelta], now: datetime) -> bool:
    """Whether it is held for too long: it is released, and the remediation is told that its time is over."""
    return now > later(acquired, overdue_after(current, previous))


def to_be_flagged(created: datetime, now: datetime, *, flagged: bool) -> bool:
    """Whether a remediation object is so old that people are told, which is done once."""
    return not flagged and now > later(created, OLD_REMEDIATION)
