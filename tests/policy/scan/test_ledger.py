"""The ledger: kept up to date change by change, it says what a recount from scratch would say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.checks.brakes import Counts, brake
from policy.checks.healthcheck import HealthCheck
from policy.checks.inventory import ControlPlane
from policy.checks.verdicts import Health
from policy.objects.nodes import CONTROL_PLANE_LABELS, EXCLUDE_LABEL, MARK_ANNOTATION, Condition, NodeView
from policy.scan.ledger import Ledger
from policy.scan.report import CheckReport
from tests.policy.builders import NOW, WORKER, a_check, a_node, ago, check_ref, judged, mark_text


def ledger_of(*things: HealthCheck | NodeView, now: datetime = NOW) -> Ledger:
    ledger = Ledger()
    for thing in things:
        if isinstance(thing, HealthCheck):
            ledger.put_check(thing)
        else:
            ledger.put_node(thing, now)
    return ledger


def only_check(ledger: Ledger, now: datetime = NOW) -> CheckReport:
    (found,) = ledger.report_parts(now).checks
    return found


def numbers(report: CheckReport) -> tuple[int, int, int, int, int, int]:
    return report.total, report.healthy, report.soon, report.unhealthy, report.excluded, report.recovering


# Counting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "expected", "allowed"),
    [
        ([("True", 12), ("True", 12), ("Unknown", 7)], (3, 2, 1, 0, 0, 0), True),
        ([("True", 12), ("True", 12), ("Unknown", 12)], (3, 2, 0, 1, 0, 0), True),
        ([("True", 12)] * 3 + [("Unknown", 12)] * 4, (7, 3, 0, 4, 0, 0), False),
        ([("True", 12), ("Unknown", 3), ("Unknown", 12)], (3, 1, 1, 1, 0, 0), False),
        ([("True", 12), ("True", 12), ("False", 0)], (3, 2, 1, 0, 0, 0), True),
        ([], (0, 0, 0, 0, 0, 0), True),
    ],
)
def test_the_shipped_operators_cases_are_counted_alike(
    nodes: list[tuple[str, float]], expected: tuple[int, ...], allowed: bool
) -> None:
    """S17. A node whose timeout still runs is neither healthy nor unhealthy, and lowers the healthy count at once."""
    ledger = ledger_of(a_check(), *(a_node(f"node-{index}", ready, age) for index, (ready, age) in enumerate(nodes)))
    found = only_check(ledger)
    assert (numbers(found), found.allowed) == (expected, allowed)


def test_a_node_counts_as_healthy_again_only_when_its_episode_has_ended() -> None:
    marked = a_node("node-2", mark="incident-1")
    ledger = ledger_of(a_check(), a_node("node-1", "Unknown", 12), a_node("node-3"), marked)
    assert numbers(only_check(ledger)) == (3, 1, 0, 1, 0, 1)
    assert not only_check(ledger).allowed
    ledger.put_node(replace(marked, annotations={}), NOW)
    assert numbers(only_check(ledger)) == (3, 2, 0, 1, 0, 0)
    assert only_check(ledger).allowed


def test_a_paused_check_goes_on_counting() -> None:
    """The shipped operator reports 0 of 0 then; people need the numbers most while something is paused."""
    ledger = ledger_of(a_check(pauseRequests=["me"]), a_node("node-1", "Unknown", 12), a_node("node-2"))
    found = only_check(ledger)
    assert (numbers(found), found.allowed, found.paused) == ((2, 1, 0, 1, 0, 0), False, "me")
    assert ledger.report_parts(NOW).candidates == ()


def test_selection_follows_the_labels_of_nodes() -> None:
    check = a_check(selector={"matchLabels": {"foo": "bar"}})
    ledger = ledger_of(check, a_node("a", labels={"foo": "bar"}), a_node("b", labels={}))
    assert only_check(ledger).total == 1
    ledger.put_node(a_node("b", labels={"foo": "bar"}), NOW)
    assert only_check(ledger).total == 2
    ledger.put_node(a_node("a", "Unknown", 99, labels={}), NOW)
    assert numbers(only_check(ledger)) == (1, 1, 0, 0, 0, 0)


def test_selection_follows_the_check() -> None:
    ledger = ledger_of(a_check(), a_node("a", labels={"foo": "bar"}), a_node("b", "Unknown", 99))
    assert only_check(ledger).unhealthy == 1
    ledger.put_check(a_check(selector={"matchLabels": {"foo": "bar"}}))
    assert numbers(only_check(ledger)) == (1, 1, 0, 0, 0, 0)
    ledger.remove_check("NodeHealthCheck/workers")
    assert ledger.report_parts(NOW).checks == ()
    assert ledger.next_due is None


def test_a_check_that_becomes_bad_admits_nothing_and_the_others_go_on() -> None:
    other = a_check("others", selector={"matchLabels": {"foo": "bar"}})
    sick = a_node("a", "Unknown", 99, labels={WORKER: ""})
    healthy = [a_node(f"n-{index}", labels={WORKER: "", "foo": "bar"}) for index in range(2)]
    other_sick = a_node("b", "Unknown", 99, labels={"foo": "bar"})
    ledger = ledger_of(a_check(), other, sick, other_sick, *healthy)
    assert {candidate.node for candidate in ledger.report_parts(NOW).candidates} == {"a", "b"}
    ledger.put_bad_check(check_ref(), "NodeHealthCheck/workers: spec.minHealthy: no")
    parts = ledger.report_parts(NOW)
    assert [candidate.node for candidate in parts.candidates] == ["b"]
    bad = next(report for report in parts.checks if report.ref == check_ref())
    assert (bad.allowed, bad.total, bad.error) == (False, 0, "NodeHealthCheck/workers: spec.minHealthy: no")
    ledger.put_check(a_check())
    assert {candidate.node for candidate in ledger.report_parts(NOW).candidates} == {"a", "b"}


def test_control_plane_members_are_counted_by_either_label() -> None:
    old, new = ({label: ""} for label in CONTROL_PLANE_LABELS)
    ledger = ledger_of(a_node("a", labels=old), a_node("b", "False", 1, labels=new), a_node("c"))
    assert ledger.report_parts(NOW).control_plane == ControlPlane(members=2, ready=1)
    ledger.remove_node("a")
    ledger.put_node(a_node("b", labels=new), NOW)
    assert ledger.report_parts(NOW).control_plane == ControlPlane(members=1, ready=1)


# Time ---------------------------------------------------------------------------------------------------------------


def test_a_timeout_expires_at_next_due_and_not_a_moment_before() -> None:
    ledger = ledger_of(a_check(), a_node("a", "Unknown", 4), a_node("b"), a_node("c"))
    due = ledger.next_due
    assert due == NOW + timedelta(seconds=7)
    version = ledger.version
    ledger.advance(NOW + timedelta(seconds=6))
    assert (ledger.version, ledger.next_due, only_check(ledger, NOW).soon) == (version, due, 1)
    ledger.advance(due)
    assert ledger.version != version
    assert ledger.next_due is None
    assert [candidate.node for candidate in ledger.report_parts(due).candidates] == ["a"]


def test_a_deadline_that_was_overtaken_is_dropped() -> None:
    ledger = ledger_of(a_check(), a_node("a", "Unknown", 4), a_node("b", "Unknown", 1))
    ledger.put_node(a_node("a"), NOW)
    assert ledger.next_due == NOW + timedelta(seconds=10)
    ledger.remove_node("b")
    assert ledger.next_due is None


def test_a_clock_that_steps_back_makes_the_sick_soon_again() -> None:
    """S18: a clock that ran ahead for a moment must not leave nodes unhealthy for good."""
    ledger = ledger_of(a_check(), a_node("a", "Unknown", 4))
    ledger.advance(NOW + timedelta(hours=1))
    assert only_check(ledger, NOW + timedelta(hours=1)).unhealthy == 1
    assert only_check(ledger, NOW).soon == 1
    assert ledger.next_due == NOW + timedelta(seconds=7)


def test_a_flapping_node_does_not_pile_up_deadlines() -> None:
    ledger = ledger_of(a_check(unhealthyConditions=[{"type": "Ready", "status": "Unknown", "duration": "100h"}]))
    for second in range(20_000):
        ledger.put_node(a_node("a", "Unknown", -second), NOW)
    assert len(ledger._deadlines) < 2_000
    assert ledger.next_due == NOW + timedelta(hours=100, seconds=20_000)


# The version --------------------------------------------------------------------------------------------------------


def test_heartbeats_and_what_nobody_decides_by_leave_the_version_alone() -> None:
    node = a_node("a", "Unknown", 99)
    ledger = ledger_of(a_check(), node)
    before = ledger.version
    ledger.put_node(replace(node, resource_version="77"), NOW)
    ledger.put_node(replace(node, annotations={"someone": "else"}, resource_version="78"), NOW)
    ledger.put_node(
        replace(node, conditions=(*node.conditions, Condition(type="DiskPressure", status="False")), resource_version="79"), NOW
    )
    ledger.put_check(a_check())
    ledger.advance(NOW + timedelta(days=1))
    ledger.report_parts(NOW + timedelta(days=1))
    assert ledger.version == before


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "another"},
        {"boot_id": "another"},
        {"provider_id": "another"},
        {"system_uuid": "another"},
        {"unschedulable": True},
        {"deleting": True},
        {"labels": {WORKER: "", "topology.kubernetes.io/zone": "z"}},
        {"labels": {}},
        {"annotations": {MARK_ANNOTATION: mark_text("i")}},
        {"conditions": (Condition(type="Ready", status="False", since=ago(99)),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_a_report_may_show_changes_the_version(change: dict[str, object]) -> None:
    node = a_node("a", "Unknown", 99)
    ledger = ledger_of(a_check(), node)
    before = ledger.version
    ledger.put_node(replace(node, **change), NOW)  # type: ignore[arg-type]
    assert ledger.version != before


# Any history --------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """What there is at the end of a history, for the recount."""

    checks: dict[str, HealthCheck]
    nodes: dict[str, NodeView]
    now: datetime = NOW


CHECKS = {
    "workers": [a_check("workers"), a_check("workers", minHealthy=1), a_check("workers", pauseRequests=["me"])],
    "pool": [
        a_check("pool", selector={"matchLabels": {"pool": "a"}}, minHealthy=None, maxUnhealthy="60%"),
        a_check("pool", selector={"matchLabels": {"pool": "b"}}),
    ],
    "disks": [
        a_check(
            "disks",
            selector={"matchExpressions": [{"key": EXCLUDE_LABEL, "operator": "DoesNotExist"}]},
            minHealthy="20%",
            unhealthyConditions=[
                {"type": "DiskPressure", "status": "True", "duration": "20s"},
                {"type": "Ready", "status": "Unknown", "duration": "40s"},
            ],
        )
    ],
}

conditions_of_ready = st.builds(
    Condition,
    type=st.just("Ready"),
    status=st.sampled_from(["True", "False", "Unknown"]),
    since=st.sampled_from([None, ago(60), ago(11), ago(10), ago(5), NOW, NOW + timedelta(seconds=15)]),
)
conditions_of_disk = st.builds(
    Condition, type=st.just("DiskPressure"), status=st.sampled_from(["True", "False"]), since=st.sampled_from([ago(30), NOW])
)
nodes = st.builds(
    lambda name, ready, disk, pool, worker, excluded, member, mark, version, unschedulable: a_node(
        name,
        conditions=(ready, disk),
        labels={"pool": pool} | worker | excluded | member,
        mark=mark,
        resource_version=version,
        unschedulable=unschedulable,
    ),
    st.sampled_from(["n1", "n2", "n3", "n4", "n5"]),
    conditions_of_ready,
    conditions_of_disk,
    st.sampled_from(["a", "b"]),
    st.sampled_from([{WORKER: ""}, {}]),
    st.sampled_from([{}, {}, {EXCLUDE_LABEL: "true"}]),
    st.sampled_from([{}, {}, {CONTROL_PLANE_LABELS[0]: ""}]),
    st.sampled_from(["", "", "incident-1"]),
    st.sampled_from(["1", "2"]),
    st.booleans(),
)
steps = st.one_of(
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("remove-node"), st.sampled_from(["n1", "n2", "n3"])),
    st.tuples(st.just("check"), st.sampled_from([check for variants in CHECKS.values() for check in variants])),
    st.tuples(st.just("bad-check"), st.sampled_from(sorted(CHECKS))),
    st.tuples(st.just("remove-check"), st.sampled_from(sorted(CHECKS))),
    st.tuples(st.just("time"), st.sampled_from([timedelta(seconds=5), timedelta(seconds=20), -timedelta(seconds=7)])),
)


def apply(step: tuple[str, object], world: World, ledger: Ledger) -> None:
    match step:
        case ("node", NodeView() as node):
            world.nodes[node.name] = node
            ledger.put_node(node, world.now)
        case ("remove-node", str() as name):
            world.nodes.pop(name, None)
            ledger.remove_node(name)
        case ("check", HealthCheck() as check):
            world.checks[check.ref.key] = check
            ledger.put_check(check)
        case ("bad-check", str() as name):
            world.checks.pop(check_ref(name).key, None)
            ledger.put_bad_check(check_ref(name), "bad")
            ledger.remove_check("NodeHealthCheck/never-there")
        case ("remove-check", str() as name):
            world.checks.pop(check_ref(name).key, None)
            ledger.remove_check(check_ref(name).key)
        case ("time", timedelta() as passed):
            world.now += passed
            ledger.advance(world.now)


def recount(world: World, check: HealthCheck) -> Counts:
    """The counts of one check, found the slow way."""
    tally: Counter[str] = Counter()
    for node in world.nodes.values():
        if check.selector.matches(node.labels):
            tally[judged(check, node, world.now).standing.value] += 1
    return Counts(**tally)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25))
def test_after_any_history_the_ledger_says_what_a_recount_says(history: list[tuple[str, object]]) -> None:
    world, ledger = World(checks={}, nodes={}), Ledger()
    for step in history:
        version, before = ledger.version, ledger.report_parts(world.now)
        apply(step, world, ledger)
        after = ledger.report_parts(world.now)
        if ledger.version == version:
            assert after == before
        reports = {report.ref.key: report for report in after.checks if not report.error}
        assert set(reports) == set(world.checks)
        for key, check in world.checks.items():
            expected = recount(world, check)
            assert numbers(reports[key]) == (
                expected.total,
                expected.healthy,
                expected.soon,
                expected.unhealthy,
                expected.excluded,
                expected.recovering,
            )
            assert reports[key].allowed == brake(check, expected).allowed
        members = [node for node in world.nodes.values() if node.control_plane]
        assert after.control_plane == ControlPlane(members=len(members), ready=sum(node.ready for node in members))
        fresh = ledger_of(*world.checks.values(), *world.nodes.values(), now=world.now).report_parts(world.now)
        assert replace(after, checks=()) == replace(fresh, checks=())


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=20))
def test_every_candidate_is_unhealthy_and_no_check_that_selects_it_has_its_brake_closed(
    history: list[tuple[str, object]],
) -> None:
    """S17: of several checks over one node the strictest counts."""
    world, ledger = World(checks={}, nodes={}), Ledger()
    for step in history:
        apply(step, world, ledger)
    parts = ledger.report_parts(world.now)
    assert len({candidate.node for candidate in parts.candidates}) == len(parts.candidates)
    for candidate in parts.candidates:
        node = world.nodes[candidate.node]
        assert judged(world.checks[candidate.check.key], node, world.now).health in {Health.UNHEALTHY, Health.SKIPPED}
        for check in world.checks.values():
            if check.selector.matches(node.labels):
                assert brake(check, recount(world, check)).allowed
