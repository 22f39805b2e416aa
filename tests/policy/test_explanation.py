"""What would unblock a node, in words that are true and that name the right check."""

from __future__ import annotations

from policy.explanation import explain
from policy.machines import SKIP_ANNOTATION
from policy.nodes import EXCLUDE_LABEL
from tests.policy.builders import NOW, WORKER, a_check, a_node
from tests.policy.pools import PROD, a_machine
from tests.policy.test_ledger import ledger_of

SICK = a_node("n1", "Unknown", 60)


def unblocking(*objects: object) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By check: what holds n1 back, and what would unblock it."""
    ledger = ledger_of(*objects)  # type: ignore[arg-type]
    opinions = explain(ledger.known(NOW), "n1").opinions
    return {each.check.check.ref.name: (each.target.held_by, each.unblock) for each in opinions}


def test_the_check_in_the_way_is_named_although_another_is_called_almost_the_same() -> None:
    checks = (a_check("work", minHealthy=1), a_check("workers", pauseRequests=["upgrade"]), a_check("zz", minHealthy=1))
    found = unblocking(*checks, SICK, a_node("n2"))
    for name in ("work", "zz"):
        held_by, unblock = found[name]
        assert held_by.startswith("NodeHealthCheck/workers covers it too")
        assert unblock == ("NodeHealthCheck/workers: end the pause: spec.pauseRequests",)
    assert found["workers"][1] == ("end the pause: spec.pauseRequests",)


def test_whose_turn_it_is_is_told_and_nothing_is_advised() -> None:
    found = unblocking(a_check("a", minHealthy=1), a_check("b", minHealthy=1), SICK, a_node("n2"))
    assert found["a"] == ("", ())
    assert found["b"] == ("NodeHealthCheck/a gives the remedy: of two with one deadline the name decides", ())
    slow = a_check("a", minHealthy=1, unhealthyConditions=[{"type": "Ready", "status": "Unknown", "duration": "50s"}])
    found = unblocking(slow, a_check("b", minHealthy=1), SICK, a_node("n2"))
    assert found["a"] == ("NodeHealthCheck/b gives the remedy: its deadline expired first", ())


def test_a_check_that_can_spare_nobody_says_how_many_must_get_well() -> None:
    disks = a_check("disks", minHealthy=1, unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "1s"}])
    full = a_check("disks", minHealthy=2, unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "1s"}])
    assert unblocking(a_check(minHealthy=1), disks, SICK, a_node("n2"))["workers"] == ("", ())
    held_by, unblock = unblocking(a_check(minHealthy=1), full, SICK, a_node("n2"))["workers"]
    assert "NodeHealthCheck/disks counts it as healthy and can spare no more" in held_by
    assert unblock == ("NodeHealthCheck/disks: its threshold lets none of 2 nodes be remediated",)


def test_a_persons_word_is_to_be_taken_back() -> None:
    excluded = a_node("n1", "Unknown", 60, labels={WORKER: "", EXCLUDE_LABEL: "true"})
    assert unblocking(a_check(minHealthy=1), excluded, a_node("n2"))["workers"][1] == (
        f"remove the label {EXCLUDE_LABEL} from the node",
    )
    ledger = ledger_of(a_check(minHealthy=1), SICK, a_node("n2"))
    ledger.put_cluster(PROD, NOW)
    ledger.put_machine(a_machine(annotations={SKIP_ANNOTATION: ""}), NOW)
    (opinion,) = explain(ledger.known(NOW), "n1").opinions
    assert SKIP_ANNOTATION in opinion.target.held_by
    assert SKIP_ANNOTATION in opinion.unblock[0]
