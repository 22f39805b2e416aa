"""Another controller at work on the same health checks: who is, and for how long that counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.brakes import Closed
from policy.conflicts import LeaderLease, StatusWrite, conflict
from policy.healthcheck import Dialect
from policy.ledger import Ledger
from tests.policy.builders import NOW, a_check, a_node, ago

LEASE = LeaderLease(name="medik8s/e1f13584.medik8s.io", holder="manager-0", renewed=ago(5), duration=timedelta(seconds=15))
WRITE = StatusWrite(check="NodeHealthCheck/workers", manager="manager", at=ago(60))


@pytest.mark.parametrize(
    ("leases", "writes", "why", "seconds"),
    [
        ((), (), "", None),
        ((LEASE,), (), "its leader Lease medik8s/e1f13584.medik8s.io is renewed by manager-0", 25),
        ((LeaderLease(name="a", holder="", renewed=ago(5), duration=timedelta(seconds=15)),), (), "", None),
        ((LeaderLease(name="a", holder="x", renewed=None, duration=timedelta(seconds=15)),), (), "", None),
        ((LeaderLease(name="a", holder="x", renewed=ago(31), duration=timedelta(seconds=15)),), (), "", None),
        ((), (WRITE,), "manager writes the status of NodeHealthCheck/workers", 540),
        ((), (StatusWrite(check="c", manager="m", at=ago(601)),), "", None),
        ((LEASE,), (WRITE,), "its leader Lease", 540),
    ],
)
def test_a_renewed_lease_or_a_recent_write_is_a_controller_at_work(
    leases: tuple[LeaderLease, ...], writes: tuple[StatusWrite, ...], why: str, seconds: float | None
) -> None:
    found = conflict(leases, writes, NOW)
    assert why in found.why
    assert bool(found.why) is (seconds is not None)
    assert found.until == (NOW + timedelta(seconds=seconds) if seconds is not None else None)


def test_a_renewal_changes_no_words() -> None:
    """A Lease is renewed every few seconds: each would be another report."""
    renewed = LeaderLease(name=LEASE.name, holder=LEASE.holder, renewed=ago(1), duration=LEASE.duration)
    assert conflict((LEASE,), (), NOW).why == conflict((renewed,), (), NOW).why


def test_a_held_dialect_is_judged_and_admits_nobody() -> None:
    ledger = Ledger()
    ledger.put_check(a_check())
    for number in range(4):
        ledger.put_node(a_node(f"n{number}", "Unknown" if number == 0 else "True", 60), NOW)
    ledger.hold(Dialect.MEDIK8S, Closed.OBSERVE_ONLY, "another controller acts")
    parts = ledger.report_parts(NOW)
    assert (parts.checks[0].unhealthy, parts.checks[0].reason, parts.candidates) == (1, Closed.OBSERVE_ONLY, ())
    ledger.hold(Dialect.OPENSHIFT, Closed.OBSERVE_ONLY, "theirs")
    ledger.hold(Dialect.MEDIK8S, Closed.OBSERVE_ONLY, "")
    assert [candidate.node for candidate in ledger.report_parts(NOW).candidates] == ["n0"]
