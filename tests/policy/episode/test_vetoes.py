"""Who is taking a node or its Machine away, and what follows for those who would act on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.episode.gate import HOLD_ANNOTATION
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView, Taint
from policy.scan.candidates import failing
from policy.scan.explanation import explain
from policy.scan.ledger import Ledger
from policy.scan.scan_report import Candidate
from policy.values.machine_apis import OPENSHIFT
from tests.policy.builders import NOW, a_check, a_node, ledger_of, put

NODE = "node-1"
SICK = a_node(NODE, "Unknown", 60)
MACHINE = MachineView(api=OPENSHIFT, namespace="machines", name="m-1", node_name=NODE, controller="MachineSet/set")


def tainted(key: str, value: str = "") -> NodeView:
    return replace(SICK, taints=(Taint(key=key, effect="NoSchedule", value=value),))


def chosen(key: str, value: str = "") -> MachineView:
    return replace(MACHINE, annotations={key: value})


TAKEN = [
    (tainted("ToBeDeletedByClusterAutoscaler", "1732262400"), None, "the cluster autoscaler"),
    (tainted("karpenter.sh/disrupted"), None, "karpenter"),
    (tainted("karpenter.sh/disruption", "disrupting"), None, "karpenter"),
    (replace(SICK, annotations={"node.machine.sapcloud.io/trigger-deletion-by-mcm": "true"}), None, "machine-controller-manager"),
    (SICK, replace(MACHINE, deleting=True), "Machine m-1 is being deleted"),
    (SICK, chosen("machine.openshift.io/delete-machine", "yes"), "machine.openshift.io/delete-machine"),
    (SICK, chosen("machine.openshift.io/cluster-api-delete-machine", "yes"), "cluster-api-delete-machine"),
    (SICK, chosen("cluster.x-k8s.io/delete-machine"), "cluster.x-k8s.io/delete-machine"),
    (SICK, chosen("machinepriority.machine.sapcloud.io", "1"), "machinepriority.machine.sapcloud.io=1"),
]

NOT_TAKEN = [
    (SICK, MACHINE),
    (tainted("DeletionCandidateOfClusterAutoscaler", "1732262400"), None),
    (tainted("karpenter.sh/unregistered"), None),
    (replace(SICK, annotations={"node.machine.sapcloud.io/trigger-deletion-by-mcm": "false"}), None),
    (SICK, chosen("machine.openshift.io/delete-machine")),
    (SICK, chosen("machinepriority.machine.sapcloud.io", "3")),
]


def on_hold(word: str) -> NodeView:
    return replace(SICK, annotations={HOLD_ANNOTATION: word})


def seen(node: NodeView, machine: MachineView | None = None) -> Ledger:
    return ledger_of(a_check(minHealthy=0), node, *((machine,) if machine is not None else ()))


def candidate(ledger: Ledger) -> Candidate:
    (found,) = ledger.report_parts(NOW).candidates
    return found


class TestCandidates:
    @pytest.mark.parametrize(("node", "machine", "who"), TAKEN)
    def test_it_is_left_alone_and_its_holder_is_named(self, node: NodeView, machine: MachineView | None, who: str) -> None:
        """S20: two systems that act on one machine are worse than either; status, Events and `explain` name the other one."""
        ledger = seen(node, machine)
        assert who in candidate(ledger).refused
        assert failing(ledger.known(NOW), frozenset()) == {}
        (opinion, *_) = explain(ledger.known(NOW), NODE).opinions
        assert who in opinion.target.held_by

    @pytest.mark.parametrize(("node", "machine"), NOT_TAKEN)
    def test_all_others_are_acted_on(self, node: NodeView, machine: MachineView | None) -> None:
        ledger = seen(node, machine)
        assert candidate(ledger).refused == ""
        assert failing(ledger.known(NOW), frozenset()) != {}

    @pytest.mark.parametrize("held", ["", "ada looks at it"])
    def test_a_node_that_a_person_holds_is_not_offered_again_and_again(self, held: str) -> None:
        """S20, S44: the last look would veto it each time; who scans says so first, with how to end it."""
        ledger = seen(on_hold(held))
        assert HOLD_ANNOTATION in candidate(ledger).refused
        assert failing(ledger.known(NOW), frozenset()) == {}
        (opinion, *_) = explain(ledger.known(NOW), NODE).opinions
        assert HOLD_ANNOTATION in opinion.target.held_by
        assert opinion.unblock == (f"`kubectl annotate node {NODE} {HOLD_ANNOTATION}-` ends it",)

    @pytest.mark.parametrize(
        ("before", "after", "word"),
        [
            (on_hold("not now"), on_hold("false"), ""),
            (SICK, tainted("ToBeDeletedByClusterAutoscaler"), "autoscaler"),
            (tainted("ToBeDeletedByClusterAutoscaler"), SICK, ""),
            (MACHINE, chosen("cluster.x-k8s.io/delete-machine"), "cluster.x-k8s.io/delete-machine"),
        ],
        ids=["the end of a hold", "a taint", "its end", "a word on its machine"],
    )
    def test_what_is_said_of_it_is_news_as_soon_as_it_is_there(
        self, before: NodeView | MachineView, after: NodeView | MachineView, word: str
    ) -> None:
        ledger = ledger_of(a_check(minHealthy=0), SICK, before)
        version = ledger.version
        put(ledger, after)
        assert ledger.version != version
        refused = candidate(ledger).refused
        assert word in refused
        assert bool(refused) is bool(word)
