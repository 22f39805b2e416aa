"""How long a node is held while a step is at work on it, and when a remediation object of somebody else's controller is too old.

Whoever remediates a node holds `node-<name>` in `medik8s-leases`, so that maintenance and other checks leave it alone. The
operator of medik8s looks for leases that are held for too long. There are none of ours: a lease ends with the time of its step.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from policy.values.moments import later

BUFFER = timedelta(minutes=1)
DEFAULT_TIMEOUT = timedelta(minutes=10)
"""Of a step that has none."""

OLD_REMEDIATION = timedelta(hours=48)
OLD_ANNOTATION, OLD_VALUE = "nodehealthcheck.medik8s.io/old-remediation-cr-flag", "flagon"
"""On a remediation object that is older than that: its remediation is at work no more, and people should look."""


def lease_duration(timeout: timedelta | None) -> timedelta:
    """How long the lease is taken for, while a step with that time-out is at work; None: it has none."""
    return (DEFAULT_TIMEOUT if timeout is None else timeout) + BUFFER


def to_be_flagged(created: datetime, now: datetime, *, flagged: bool) -> bool:
    """Whether a remediation object is so old that people are told, which is done once."""
    return not flagged and now > later(created, OLD_REMEDIATION)
