"""The judge itself: when two containers count as two writers of one volume. No cluster is needed for that."""

from __future__ import annotations

import pytest

from simulator.storage import SharedStorage, Violation, WriterState

pytestmark = pytest.mark.timeout(10)


def begin(storage: SharedStorage, pod_uid: str, node: str, *, exclusive: bool = False) -> None:
    storage.begin(volume="v", pod="demo/database-0", pod_uid=pod_uid, node=node, boot_id="b", exclusive=exclusive)


def test_one_writer_after_the_other_is_no_violation() -> None:
    storage = SharedStorage()
    begin(storage, "a", "node-1")
    storage.end(volume="v", pod_uid="a")
    begin(storage, "b", "node-2")
    assert storage.violations == []
    assert [(each.pod_uid, each.state) for each in storage.intervals] == [("a", WriterState.ENDED), ("b", WriterState.WRITING)]
    assert storage.intervals[0].end is not None


def test_two_writers_on_two_nodes_are_a_violation_that_stays() -> None:
    storage = SharedStorage()
    heard: list[Violation] = []
    storage.on_violation(heard.append)
    begin(storage, "a", "node-1")
    begin(storage, "b", "node-2")
    storage.end(volume="v", pod_uid="a")
    assert len(storage.violations) == 1
    assert storage.violations == heard
    violation = storage.violations[0]
    assert (violation.first.node, violation.second.node, violation.certain) == ("node-1", "node-2", True)
    assert "node-1 wrote" in str(violation)


def test_two_pods_of_one_node_may_share_a_volume_unless_it_is_exclusive() -> None:
    shared, exclusive = SharedStorage(), SharedStorage()
    for pod_uid in ("a", "b"):
        begin(shared, pod_uid, "node-1")
        begin(exclusive, pod_uid, "node-1", exclusive=True)
    assert shared.violations == []
    assert len(exclusive.violations) == 1


def test_a_hung_writer_counts_because_it_may_go_on() -> None:
    storage = SharedStorage()
    begin(storage, "a", "node-1")
    storage.suspend(volume="v", pod_uid="a")
    begin(storage, "b", "node-2")
    assert [each.certain for each in storage.violations] == [False]
    storage.resume(volume="v", pod_uid="a")
    assert [each.certain for each in storage.violations] == [False, True]
