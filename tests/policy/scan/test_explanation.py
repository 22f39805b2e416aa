"""What would unblock a node, in words that are true and that name the right check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.checks.fence_policies import FencePolicies, StormRule
from policy.objects.machines import SKIP_ANNOTATION, MachineView
from policy.objects.nodes import EXCLUDE_LABEL, Condition, NodeView
from policy.remediation.strategies import Action
from policy.scan.explanation import explain
from tests.policy.builders import NOW, WORKER, a_check, a_node, ago, ledger_of
from tests.policy.fencing_builders import RACK, in_rack, racks
from tests.policy.fencing_builders import ledger_of as tolerant_ledger_of
from tests.policy.pools import PROD, a_machine

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
    assert "NodeHealthCheck/disks counts it as healthy and allows no more disruption" in held_by
    assert unblock == ("NodeHealthCheck/disks: its threshold lets none of 2 nodes be remediated",)


def test_a_persons_word_is_to_be_taken_back() -> None:
    excluded = a_node("n1", "Unknown", 60, labels={WORKER: "", EXCLUDE_LABEL: "true"})
    assert unblocking(a_check(minHealthy=1), excluded, a_node("n2"))["workers"][1] == (
        f"remove the label {EXCLUDE_LABEL} from the node",
    )
    ledger = ledger_of(a_check(minHealthy=1), SICK, a_node("n2"), PROD, a_machine(annotations={SKIP_ANNOTATION: ""}))
    (opinion,) = explain(ledger.known(NOW), "n1").opinions
    assert SKIP_ANNOTATION in opinion.target.held_by
    assert SKIP_ANNOTATION in opinion.unblock[0]


OF_PROD = {"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/cluster-namespace": PROD.namespace}


@pytest.mark.parametrize(
    "whose", [(replace(SICK, annotations=OF_PROD),), (SICK, a_machine())], ids=["its Node says whose it is", "its Machine does"]
)
def test_a_paused_cluster_holds_back_a_check_of_nodes_and_what_ends_it_is_told(whose: tuple[NodeView | MachineView, ...]) -> None:
    """S20, S44."""
    paused = replace(PROD, paused="spec.paused of Cluster prod is true")
    ledger = ledger_of(a_check(minHealthy=1), *whose, a_node("n2"), PROD)
    assert ledger.report_parts(NOW).candidates[0].refused == ""
    version = ledger.version
    ledger.put_cluster(paused, NOW)
    assert ledger.version != version
    (candidate,) = ledger.report_parts(NOW).candidates
    assert candidate.refused == "its Cluster is paused: spec.paused of Cluster prod is true"
    said = "spec.paused of Cluster prod is true: nothing is begun for its nodes"
    assert (said in ledger.report_parts(NOW).checks[0].warnings) is (whose[0].annotations == OF_PROD)
    (opinion,) = explain(ledger.known(NOW), "n1").opinions
    assert (opinion.target.action, opinion.target.held_by) == (Action.NONE, candidate.refused)
    assert opinion.unblock == ("end the pause of the Cluster: spec.paused, or its annotation cluster.x-k8s.io/paused",)


STORM = StormRule(name="racks", percentage=40, scope=RACK)


@pytest.mark.parametrize(
    ("policies", "held_by", "unblock"),
    [
        (FencePolicies(storms=(STORM,)), f"{RACK}=r0: 2 of 5 nodes, 40%, are", f"1 more of the 5 nodes of {RACK}=r0 must become"),
        (FencePolicies(switched_off=("by ada",)), "fencing is switched off: by ada", "switch fencing on again: by ada"),
        (FencePolicies(off_groups=(f"{RACK}=r0",)), f"fencing is switched off for {RACK}=r0", "take its part of the cluster out"),
        (FencePolicies(problem="a typo"), "the fence policies can't be used: a typo", "correct the fence policies: a typo"),
        (
            FencePolicies(skip_lost_storage=True),
            "its condition StorageUnreachable is True",
            "its storage must be reachable again",
        ),
        (FencePolicies(storage_percentage=20), "1 of 5 nodes have lost their storage", "fewer than 20% of the nodes may say"),
    ],
    ids=["storm", "switch", "part", "unusable", "host", "storage"],
)
def test_a_fence_policy_that_holds_a_node_back_is_named_with_what_would_unblock_it(
    policies: FencePolicies, held_by: str, unblock: str
) -> None:
    """S17: whoever waits is told why, and for what."""
    lost = Condition(type="StorageUnreachable", status="True", since=ago(60))
    down = [in_rack("r0-0", "r0", "Unknown", 60), in_rack("r0-1", "r0", "Unknown", 60)]
    sick = replace(down[0], conditions=(*down[0].conditions, lost))
    ledger = tolerant_ledger_of([*racks(1, 5)[2:], sick, down[1]])
    ledger.follow(policies)
    (opinion,) = explain(ledger.known(NOW), "r0-0").opinions
    assert (held_by in opinion.target.held_by, unblock in opinion.unblock[0]) == (True, True), opinion
    assert (len(opinion.unblock), opinion.target.action) == (1, Action.NONE)
