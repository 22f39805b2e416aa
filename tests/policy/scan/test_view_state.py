"""Whether a view may be acted on (S18), and when two views are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from policy.scan.scan_report import ClusterLease, ReportParts, ViewState
from policy.scan.view_state import LargestLately, digest, view_fault, view_state
from tests.policy.builders import NOW, a_check, a_node, ago, ledger_of

SETTLE = timedelta(minutes=5)


@pytest.mark.parametrize(
    ("previous", "size", "fault"),
    [
        (0, 0, False),
        (0, 12, False),
        (12, 12, False),
        (12, 7, False),
        (12, 6, True),
        (12, 0, True),
        (1, 0, True),
        (3, 2, False),
        (12, 99, False),
    ],
)
def test_an_empty_or_halved_inventory_is_a_fault_of_the_view(previous: int, size: int, fault: bool) -> None:
    """S18."""
    found = view_fault(previous, size, shrunk_since=None, now=NOW, accept_after=SETTLE)
    assert bool(found) is fault
    if fault:
        assert f"fell from {previous} nodes to {size}" in found


def test_the_largest_inventory_of_the_last_while_is_what_others_are_compared_with() -> None:
    """S18: whatever it fell by in between; and one of long ago is none of them."""
    largest = LargestLately()
    sizes = [(0, 12), (60, 11), (120, 9), (130, 10), (299, 8), (301, 8), (431, 7), (900, 3), (910, 5)]
    found = [largest.note(size, timedelta(seconds=at), within=SETTLE) for at, size in sizes]
    assert found == [12, 12, 12, 12, 12, 11, 8, 3, 5]
    largest.forget()
    assert largest.note(4, timedelta(seconds=911), within=SETTLE) == 4


@pytest.mark.parametrize(("age", "fault"), [(0, True), (299.9, True), (300, False), (-60, True)])
def test_a_smaller_inventory_is_the_new_truth_after_a_while(age: float, fault: bool) -> None:
    """S18: or a cluster that was scaled down on purpose would never be looked after again."""
    assert bool(view_fault(12, 2, shrunk_since=ago(age), now=NOW, accept_after=SETTLE)) is fault


@pytest.mark.parametrize(
    ("synced", "heard", "fault", "expected"),
    [
        (None, None, "", ViewState(synced=False, stale="the watch cache is not complete yet")),
        (600, None, "", ViewState(synced=False, stale="the watch cache is not complete yet")),
        (600, 61, "", ViewState(synced=True, stale="a watch has been silent since 2026-03-01T11:58:59Z")),
        (600, 61, "the API server does not answer", ViewState(synced=True, stale="the API server does not answer")),
        (9, 1, "the API server does not answer", ViewState(synced=True, stale="the API server does not answer")),
        (9, 1, "", ViewState(synced=True, stale="the cluster has been watched for less than 10s")),
        (600, 1, "half of it is gone", ViewState(synced=True, stale="half of it is gone")),
        (10, 60, "", ViewState(synced=True)),
    ],
)
def test_a_view_is_fresh_only_when_it_is_complete_recent_and_settled(
    synced: float | None, heard: float | None, fault: str, expected: ViewState
) -> None:
    """S18."""
    found = view_state(
        synced_at=None if synced is None else ago(synced),
        confirmed_until=None if heard is None else ago(heard),
        now=NOW,
        silence_limit=timedelta(minutes=1),
        grace=timedelta(seconds=10),
        fault=fault,
    )
    assert found == expected


def some_parts() -> ReportParts:
    nodes = [
        a_node("a", "Unknown", 60),
        a_node("b", "False", 3),
        a_node("c", mark="i"),
        *(a_node(f"h-{index}") for index in range(6)),
    ]
    return ledger_of(a_check(), *nodes).report_parts(NOW, watching={"b", "gone", "a"})


def digest_of(parts: ReportParts, *, stale: str = "", held: bool = True, problem: str = "") -> str:
    return digest(
        parts, view=ViewState(synced=True, stale=stale), lease=ClusterLease(held=held, problem=problem), cluster_uid="u"
    )


PRINT_DIGEST = "from tests.policy.scan.test_view_state import digest_of, some_parts; print(digest_of(some_parts()))"


def test_every_process_computes_the_same_digest_whatever_its_hash_seed() -> None:
    root = Path(__file__).parents[3]
    other = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST],
        cwd=root,
        env=os.environ | {"PYTHONHASHSEED": "4242", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert other.stdout.strip() == digest_of(some_parts())


def test_what_only_people_see_does_not_change_the_digest() -> None:
    before = ledger_of(a_check(), a_node("a"), a_node("b"))
    after = ledger_of(a_check(), a_node("a", unschedulable=True), a_node("b"))
    assert before.report_parts(NOW).rows != after.report_parts(NOW).rows
    assert digest_of(before.report_parts(NOW)) == digest_of(after.report_parts(NOW))
    assert digest_of(some_parts(), problem="renewed 3 s late") == digest_of(some_parts())


@pytest.mark.parametrize(
    "change",
    [
        {"inventory": 99},
        {"checks": ()},
        {"candidates": ()},
        {"candidates_left_out": 1},
        {"seen_nodes": ()},
        {"control_plane": replace(some_parts().control_plane, ready=9)},
        {"rows": ()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_decisions_depend_on_changes_the_digest(change: dict[str, object]) -> None:
    assert digest_of(replace(some_parts(), **change)) != digest_of(some_parts())  # type: ignore[arg-type]


def test_a_stale_view_and_a_lost_lease_change_the_digest() -> None:
    assert len({digest_of(some_parts()), digest_of(some_parts(), stale="quiet"), digest_of(some_parts(), held=False)}) == 3
