"""Another controller at work on the same health checks: who is, and for how long that counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.checks.circuit_breakers import LeaderLease, OpenReason, StatusWrite, conflict
from policy.values.object_refs import Dialect
from tests.policy.builders import NOW, a_check, a_node, ago, ledger_of

LEASE = LeaderLease(name="medik8s/e1f13584.medik8s.io", holder="manager-0", renewed=ago(5), duration=timedelta(seconds=15))
WRITE = StatusWrite(check="NodeHealthCheck/workers", manager="manager", at=ago(60))


@pytest.mark.parametrize(
    ("leases", "writes", "standing", "why"),
    [
        ((), (), (), ""),
        ((LEASE,), (), (), "its leader Lease medik8s/e1f13584.medik8s.io is renewed by manager-0"),
        ((LeaderLease(name="a", holder="", renewed=ago(5), duration=timedelta(seconds=15)),), (), (), ""),
        ((LeaderLease(name="a", holder="x", renewed=None, duration=timedelta(seconds=15)),), (), (), ""),
        ((LeaderLease(name="a", holder="x", renewed=ago(31), duration=timedelta(seconds=15)),), (), (), ""),
        ((), (WRITE,), (), "manager writes the status of NodeHealthCheck/workers"),
        ((), (StatusWrite(check="c", manager="m", at=ago(601)),), (), ""),
        ((), (), ("NodeHealthCheck/workers",), "NodeHealthCheck/workers says that it has been seen"),
        ((LEASE,), (WRITE,), ("NodeHealthCheck/workers",), "its leader Lease"),
    ],
)
def test_a_renewed_lease_or_a_recent_write_is_a_controller_at_work(
    leases: tuple[LeaderLease, ...], writes: tuple[StatusWrite, ...], standing: tuple[str, ...], why: str
) -> None:
    found = conflict(leases, writes, standing, NOW)
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize("error", [timedelta(minutes=-1), timedelta(minutes=1)], ids=["behind", "ahead"])
def test_a_lease_that_changes_before_our_eyes_is_renewed_whatever_its_leader_s_clock_says(error: timedelta) -> None:
    """S17: two controllers that act on one object take two victims. A leader's clock is its own; that it writes, we see."""
    seen = None
    for second in range(0, 20, 2):
        at = NOW + timedelta(seconds=second)
        seen = replace(LEASE, renewed=at + error).seen(seen, at)
        # At first sight there is nothing but what the leader says of itself.
        assert bool(conflict((seen,), (), (), at)) is (second > 0 or error > timedelta(0))
    assert seen is not None
    assert conflict((seen,), (), (), at + timedelta(seconds=29))
    assert not conflict((seen,), (), (), at + timedelta(seconds=30))
    assert not conflict((replace(seen, holder="").seen(seen, at),), (), (), at), "it was given up"


def test_a_held_dialect_is_judged_and_admits_no_node() -> None:
    ledger = ledger_of(a_check(), a_node("n0", "Unknown", 60), *(a_node(f"n{number}") for number in (1, 2, 3)))
    ledger.hold_back(Dialect.MEDIK8S, OpenReason.OBSERVE_ONLY, "another controller acts")
    parts = ledger.report_parts(NOW)
    assert (parts.checks[0].unhealthy, parts.checks[0].reason, parts.candidates) == (1, OpenReason.OBSERVE_ONLY, ())
    ledger.hold_back(Dialect.OPENSHIFT, OpenReason.OBSERVE_ONLY, "theirs")
    ledger.hold_back(Dialect.MEDIK8S, OpenReason.OBSERVE_ONLY, "")
    assert [candidate.node for candidate in ledger.report_parts(NOW).candidates] == ["n0"]
