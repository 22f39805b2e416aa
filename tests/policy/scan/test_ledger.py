"""The ledger: kept up to date change by change, it says what a recount from scratch would say."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from policy.checks.inventory import ControlPlane
from policy.episode.notices import KnownNode
from policy.objects.nodes import CONTROL_PLANE_LABELS, Condition
from policy.scan.ledger import Ledger
from policy.scan.scan_report import CheckReport
from tests.policy.builders import NOW, a_check, a_node, ledger_of


def only_check(ledger: Ledger, now: datetime = NOW) -> CheckReport:
    (found,) = ledger.report_parts(now).checks
    return found


def numbers(report: CheckReport) -> tuple[int, int, int, int, int, int]:
    return report.total, report.healthy, report.soon, report.unhealthy, report.excluded, report.recovering


def test_selection_follows_the_labels_of_nodes() -> None:
    check = a_check(selector={"matchLabels": {"foo": "bar"}})
    ledger = ledger_of(check, a_node("a", labels={"foo": "bar"}), a_node("b", labels={}))
    assert only_check(ledger).total == 1
    ledger.put_node(a_node("b", labels={"foo": "bar"}), NOW)
    assert only_check(ledger).total == 2
    ledger.put_node(a_node("a", "Unknown", 99, labels={}), NOW)
    assert numbers(only_check(ledger)) == (1, 1, 0, 0, 0, 0)


def test_a_removal_is_news_where_there_was_something_to_remove() -> None:
    ledger = ledger_of(a_check(), a_node("a"))
    before = ledger.version, ledger.report_parts(NOW)
    ledger.remove_check("NodeHealthCheck/never-there")
    ledger.remove_node("never-there")
    assert (ledger.version, ledger.report_parts(NOW)) == before
    ledger.remove_check("NodeHealthCheck/workers")
    assert ledger.version != before[0]
    assert ledger.report_parts(NOW).checks == ()


@pytest.mark.parametrize("label", CONTROL_PLANE_LABELS)
def test_control_plane_members_are_counted_by_either_label(label: str) -> None:
    new = {label: ""}
    ledger = ledger_of(a_node("a", labels={CONTROL_PLANE_LABELS[0]: ""}), a_node("b", "False", 1, labels=new), a_node("c"))
    assert ledger.report_parts(NOW).control_plane == ControlPlane(members=2, ready=1)
    ledger.remove_node("a")
    ledger.put_node(a_node("b", labels=new), NOW)
    assert ledger.report_parts(NOW).control_plane == ControlPlane(members=1, ready=1)


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


def test_a_flapping_node_does_not_pile_up_deadlines() -> None:
    ledger = ledger_of(a_check(unhealthyConditions=[{"type": "Ready", "status": "Unknown", "duration": "100h"}]))
    for second in range(5_000):
        ledger.put_node(a_node("a", "Unknown", -second), NOW)
    assert len(ledger._deadlines) == 1
    assert ledger.next_due == NOW + timedelta(hours=100, seconds=5_000)


def test_heartbeats_and_fields_without_effect_leave_the_version_alone() -> None:
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


def test_of_a_node_its_labels_and_the_checks_that_cover_it_are_known_as_long_as_it_is_there() -> None:
    gpu = a_check(selector={"matchLabels": {"kind": "gpu"}})
    ledger = ledger_of(gpu, a_node("a", labels={"kind": "gpu"}), a_node("b", labels={}))
    assert ledger.described("a") == KnownNode(labels={"kind": "gpu"}, checks=frozenset({"NodeHealthCheck/workers"}))
    assert ledger.described("b") == KnownNode(labels={}, checks=frozenset())
    ledger.put_node(a_node("b", unreadable="its labels are no map"), NOW)
    ledger.remove_node("a")
    assert (ledger.described("a"), ledger.described("b")) == (None, None)
