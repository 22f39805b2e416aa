"""What a check thinks of one node."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.checks.circuit_breakers import LeaderLease, OpenReason, StatusWrite, conflict
from policy.checks.health_check import HealthCheck
from policy.checks.rules import rules_of
from policy.checks.verdict import EXCLUDED, Health, JudgedTarget, Standing, Verdict, offences
from policy.episode.messages import Need, NeedKind, need_gone
from policy.objects.machines import REMEDIATE_ANNOTATION
from policy.objects.nodes import EXCLUDE_LABEL, Condition, NodeView
from policy.scan.ledger import Ledger
from policy.scan.scan_report import CheckReport
from policy.values.object_refs import Dialect
from tests.policy.builders import NOW, PROD, WORKER, a_check, a_machine, a_node, ago, cluster_api, judged, ledger_of, openshift


def two_conditions() -> HealthCheck:
    return a_check(
        unhealthyConditions=[
            {"type": "first", "status": "True", "duration": "10s"},
            {"type": "second", "status": "True", "duration": "20s"},
        ]
    )


def with_conditions(*conditions: tuple[str, str, float | None]) -> NodeView:
    return a_node(
        conditions=tuple(
            Condition(type=kind, status=status, since=None if age is None else ago(age)) for kind, status, age in conditions
        )
    )


@pytest.mark.parametrize(
    ("conditions", "health", "due_in"),
    [
        ([], Health.HEALTHY, None),
        ([("first", "True", 8)], Health.SOON, 3),
        ([("first", "True", 10)], Health.SOON, 1),
        ([("first", "True", 10.9)], Health.SOON, 0.1),
        ([("first", "True", 11)], Health.UNHEALTHY, None),
        ([("first", "True", 1), ("second", "True", 15)], Health.SOON, 6),
        ([("first", "True", 1), ("second", "True", 21)], Health.UNHEALTHY, None),
        ([("first", "True", None), ("second", "True", 15)], Health.SOON, 6),
        ([("first", "True", -30)], Health.SOON, 41),
    ],
    ids=str,
)
def test_a_condition_fires_once_it_has_held_strictly_longer_than_its_duration(
    conditions: list[tuple[str, str, float | None]], health: Health, due_in: float | None
) -> None:
    verdict = judged(two_conditions(), with_conditions(*conditions), NOW)
    assert verdict.health is health
    assert verdict.due == (None if due_in is None else NOW + timedelta(seconds=due_in))


def test_of_two_expired_conditions_the_one_that_expired_first_is_the_reason() -> None:
    """Its place in the list would let the reason change while the node is being remediated."""
    verdict = judged(two_conditions(), with_conditions(("second", "True", 100), ("first", "True", 50)), NOW)
    assert (verdict.reason, verdict.since) == ("secondTrue", ago(100))
    assert verdict.message == "second is True since 2026-03-01T11:58:20Z, longer than 20s"


def test_offences_are_told_in_the_order_of_the_list_and_not_of_the_node() -> None:
    found = (Condition(type="second", status="True"), Condition(type="first", status="True"))
    listed = {("first", "True"): timedelta(seconds=10), ("second", "True"): timedelta(seconds=20)}
    assert [each.condition.type for each in offences(found, listed)] == ["first", "second"]


@pytest.mark.parametrize(
    ("label", "ready", "age", "health"),
    [
        ("true", "Unknown", 12, Health.SKIPPED),
        ("true", "Unknown", 5, Health.SOON),
        ("true", "True", 12, Health.HEALTHY),
        ("", "Unknown", 12, Health.UNHEALTHY),
        ("false", "Unknown", 12, Health.UNHEALTHY),
        ("True", "Unknown", 12, Health.UNHEALTHY),
    ],
)
def test_the_exclude_label_skips_a_node_that_would_be_unhealthy(label: str, ready: str, age: float, health: Health) -> None:
    """S20: a person's veto. Only the value `true` is one."""
    verdict = judged(a_check(), a_node(ready=ready, age=age, labels={WORKER: "", EXCLUDE_LABEL: label}), NOW)
    assert verdict.health is health
    if health is Health.SKIPPED:
        assert (verdict.reason, verdict.since) == (EXCLUDED, ago(12))
        assert EXCLUDE_LABEL in verdict.message


@pytest.mark.parametrize(
    ("kind", "verdict", "gone"),
    [
        (NeedKind.CHECK, Verdict(health=Health.HEALTHY, standing=Standing.HEALTHY), True),
        (NeedKind.CHECK, Verdict(health=Health.SOON, standing=Standing.SOON), False),
        (NeedKind.CHECK, Verdict(health=Health.UNHEALTHY, standing=Standing.UNHEALTHY), False),
        (NeedKind.CHECK, Verdict(health=Health.SKIPPED, standing=Standing.EXCLUDED, reason=EXCLUDED), False),
        (NeedKind.CHECK, None, True),
        (NeedKind.PERSON, Verdict(health=Health.HEALTHY, standing=Standing.HEALTHY), False),
        (NeedKind.CLEAN_UP, None, False),
    ],
)
def test_a_need_is_gone_only_when_its_check_calls_the_node_healthy_or_no_longer_covers_it(
    kind: NeedKind, verdict: Verdict | None, gone: bool
) -> None:
    assert need_gone(Need(kind=kind), verdict) is gone


def test_before_a_control_plane_is_initialized_no_node_is_looked_up() -> None:
    """Cluster API: the Node of its first member is not Ready before there is a network."""
    check, cluster = cluster_api("m"), replace(PROD, control_plane_initialized=False)
    machine, node = a_machine(control_plane=True), a_node("n1", "False", 3600)
    target = JudgedTarget(machine.key, node=node, machine=machine)
    for target.cluster, health in ((cluster, Health.SKIPPED), (PROD, Health.UNHEALTHY)):
        assert rules_of(check).judge(target, NOW).health is health


# Objects of which hardly anything can be read: they count against every limit, and are never acted upon (S18).

UNREADABLE = "Expected `array`, got `str` - at `$.status.conditions`"


def only_check(ledger: Ledger) -> CheckReport:
    parts = ledger.report_parts(NOW)
    assert parts.candidates == ()
    (check,) = parts.checks
    return check


def test_a_node_that_cannot_be_read_uses_up_the_budget_and_is_no_candidate() -> None:
    of_nodes = a_check(unhealthyConditions=[{"type": "Ready", "status": "False", "duration": "10s"}])
    ledger = ledger_of(of_nodes, a_node("node-1"), replace(a_node("node-2", "False"), unreadable=UNREADABLE))
    check = only_check(ledger)
    assert (check.total, check.healthy, check.unhealthy, check.allowed) == (2, 1, 0, False)
    (row,) = [row for row in ledger.report_parts(NOW).rows if row.node == "node-2"]
    assert row.reason == "Unreadable"
    ledger.put_node(a_node("node-2"), NOW)
    assert only_check(ledger).healthy == 2


@pytest.mark.parametrize("dialect", [Dialect.OPENSHIFT, Dialect.CLUSTER_API])
@pytest.mark.parametrize("what", ["node", "machine", "failed machine", "machine of which a person asks it"])
def test_a_machine_that_cannot_be_read_or_whose_node_cannot_is_not_judged(dialect: Dialect, what: str) -> None:
    asked = {REMEDIATE_ANNOTATION: ""} if "person" in what else {}
    ailing = {"unreadable": "" if what == "node" else UNREADABLE, "phase": "Failed" if "failed" in what else "Running"}
    machines = (a_machine("m1", dialect), a_machine("m2", dialect, node_name="n2", annotations=asked, **ailing))
    node = replace(a_node("n2", "Unknown"), unreadable=UNREADABLE if what == "node" else "")
    check = openshift("workers") if dialect is Dialect.OPENSHIFT else cluster_api("workers")
    found = only_check(ledger_of(check, PROD, *machines, a_node("n1"), node))
    assert (found.total, found.healthy, found.unhealthy) == (2, 1, 0)


def test_a_start_up_with_an_unknown_beginning_does_not_run_out() -> None:
    """S18: the moment that could not be read may be the latest of all."""
    ledger = ledger_of(cluster_api("prod"), PROD)
    for since, unhealthy in ((ago(3600), 1), (None, 0), (NOW, 0)):
        ready = Condition(type="InfrastructureReady", status="True", since=since)
        ledger.put_machine(a_machine(node_name="", created=ago(7200), conditions=(ready,)), NOW)
        assert ledger.report_parts(NOW).checks[0].unhealthy == unhealthy


# Another controller at work on the same health checks: who is, and for how long that counts.

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
