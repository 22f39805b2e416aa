"""Admission where there are more candidates than a report has room for."""

from __future__ import annotations

from dataclasses import replace

from policy.episode.permits import Permit, PermitState
from policy.objects.nodes import Condition
from policy.scan.admission import admit
from policy.scan.scan_report import MAXIMUM_CANDIDATES
from tests.policy.builders import NOW, a_check, a_node, a_permit, a_report, ago, ledger_of

SPARED = 3


def test_those_just_let_in_are_counted_under_the_checks_they_were_well_under_though_no_report_has_room_for_them() -> None:
    """S14, S17: their marks are not seen yet, and candidates that nobody holds go first into a report."""
    total = MAXIMUM_CANDIDATES * 2
    ill = (Condition(type="Ready", status="True", since=ago(9000)), Condition(type="Slow", status="True", since=ago(9000)))
    nodes = [a_node(f"n{number:03}", conditions=ill) for number in range(total)]
    slow = a_check("slow", minHealthy=0, unhealthyConditions=[{"type": "Slow", "status": "True", "duration": "60s"}])
    strict = a_check("strict", minHealthy=total - SPARED)
    ledger = ledger_of(slow, strict, *nodes)

    def admitted(permits: list[Permit]) -> list[Permit]:
        parts = ledger.report_parts(NOW, tuple(permit.node for permit in permits))
        report = replace(a_report(), **{name: getattr(parts, name) for name in parts.__dataclass_fields__})
        found = admit(report, permits, cap=50, now=NOW).admitted
        return [a_permit(each.node, PermitState.RESERVED, healthy_under=each.healthy_under) for each in found]

    first = admitted([])
    assert len(first) == SPARED
    assert admitted(first) == []


def test_those_whom_another_check_can_not_spare_crowd_nobody_out() -> None:
    """S17 holds them back, and nobody else: the one dead node of another check has its place in the report."""
    total = MAXIMUM_CANDIDATES + 10
    slow = a_check("slow", minHealthy=0, unhealthyConditions=[{"type": "Slow", "status": "True", "duration": "60s"}])
    strict = a_check("strict", minHealthy=total)
    other = a_check("other", selector={"matchLabels": {"pool": "other"}})
    ill = (Condition(type="Ready", status="True", since=ago(9000)), Condition(type="Slow", status="True", since=ago(9000)))
    crowd = [a_node(f"n{number:03}", conditions=ill) for number in range(total)]
    dead = [a_node(f"z{number}", "Unknown" if number == 0 else "True", 600, labels={"pool": "other"}) for number in range(5)]
    parts = ledger_of(slow, strict, other, *crowd, *dead).report_parts(NOW)
    report = replace(a_report(), **{name: getattr(parts, name) for name in parts.__dataclass_fields__})
    assert [each.node for each in admit(report, [], cap=50, now=NOW).admitted] == ["z0"]
