"""Whether an episode's reason still stands, as read; that it is read live is `tests/cluster/acts/test_last_look.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from policy.checks.verdict import JudgedTarget
from policy.episode.fencing_requests import FINALIZER
from policy.episode.gate import Weight
from policy.episode.messages import Need, NeedKind
from policy.episode.need_now import NeedSeen, need_now
from policy.objects.machines import MachineView, WorkloadCluster
from policy.objects.nodes import Condition, NodeView, Taint
from policy.objects.remediations import GIVEN_UP_ANNOTATION
from policy.preservation.machine_snapshot import CONDITION, TAINT
from policy.values.machine_apis import CLUSTER_API
from policy.values.object_refs import ObjectRef
from tests.policy.builders import NOW, a_node, check_object, check_ref

VETOED, UNLICENSED, GONE = Weight.VETOED, Weight.NOT_LICENSED, Weight.NEED_GONE
SICK, WELL, LATELY = a_node(ready="Unknown", age=60), a_node(), a_node(ready="Unknown", age=5)
OF_CHECK = Need(kind=NeedKind.CHECK, check=check_ref())
OF_OBJECT = Need(
    kind=NeedKind.FOREIGN_OBJECT, object_uid="u-1", check=ObjectRef(api_version="x/v1", kind="FenceAgentsRemediation", name="n")
)
PERSON, CLEAN_UP, TO_CUT_OFF = (Need(kind=kind) for kind in (NeedKind.PERSON, NeedKind.CLEAN_UP, NeedKind.PRESERVATION))
MACHINE_CHECK = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "workers", "namespace": "capi", "uid": "u", "generation": 1},
    "spec": {
        "clusterName": "prod",
        "selector": {"matchLabels": {"pool": "a"}},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "10s"}],
    },
}


def of(*nodes: NodeView, **fields: Any) -> NeedSeen:
    return NeedSeen(**{"asking": check_object(), "targets": [JudgedTarget(each.name, node=each) for each in nodes], **fields})


def machine(node: NodeView, *, known: bool = True, **fields: Any) -> JudgedTarget:
    name = {
        "namespace": "capi",
        "name": f"of-{node.name}",
        "node_name": node.name,
        "cluster_name": "prod",
        "labels": {"pool": "a"},
    }
    view = MachineView(api=CLUSTER_API, controller="MachineSet/set", **name, **fields)
    target = JudgedTarget(view.key, node=node, machine=view)
    if known:
        up = {"control_plane_initialized": True, "infrastructure_ready": True}
        target.cluster = WorkloadCluster(namespace="capi", name="prod", **up)
    return target


def of_machines(*targets: JudgedTarget, **fields: Any) -> NeedSeen:
    return NeedSeen(asking=MACHINE_CHECK, targets=targets, **fields)


def asked(**metadata: Any) -> NeedSeen:
    return NeedSeen(asking={"metadata": {"name": "n", "uid": "u-1", **metadata}})


KEPT = replace(
    SICK,
    conditions=(*SICK.conditions, Condition(type=CONDITION, status="True", since=NOW)),
    taints=(Taint(key=TAINT, effect="NoSchedule"),),
)


@dataclass(frozen=True)
class Case:
    """weight: None where the need stands."""

    title: str
    need: Need
    seen: NeedSeen
    weight: Weight | None
    words: str = ""
    unhealthy: bool = False
    soon: bool = False

    def __str__(self) -> str:
        return self.title


CASES = [
    Case("a person who is believed", PERSON, NeedSeen(), None),
    Case("S42 a person who is not", PERSON, NeedSeen(unattested="nobody has verified it"), UNLICENSED, "nobody has verified it"),
    Case("left-overs on a healthy node", CLEAN_UP, NeedSeen(node=WELL), None),
    Case(
        "S42 left-overs are no reason to disrupt", CLEAN_UP, NeedSeen(node=WELL, destructive=True), UNLICENSED, "disrupts nothing"
    ),
    Case("left-overs of a node that is gone", CLEAN_UP, NeedSeen(), None),
    Case("marks of a sick node, which may have got as far as off", CLEAN_UP, NeedSeen(node=SICK), VETOED, "no mere left-overs"),
    Case("what is not kept as failed", TO_CUT_OFF, NeedSeen(node=SICK, preserving=True), GONE, "does not say that it is kept"),
    Case("what is gone is kept no more", TO_CUT_OFF, NeedSeen(preserving=True), GONE, "does not say that it is kept"),
    Case("S21 what is kept is cut off by its preservation", TO_CUT_OFF, NeedSeen(node=KEPT, preserving=True), None),
    Case("S21 and by nobody else", TO_CUT_OFF, NeedSeen(node=KEPT, held_by="held by X"), VETOED, "may cut it off; held by X"),
    Case("an object that still asks", OF_OBJECT, asked(), None, unhealthy=True),
    Case("an object that was deleted", OF_OBJECT, NeedSeen(), GONE, "was deleted"),
    Case("another object of its name", OF_OBJECT, asked(uid="u-2"), GONE, "was deleted"),
    Case("an object that goes", OF_OBJECT, asked(deletionTimestamp="now"), GONE, "is being deleted"),
    Case("an object that was given up", OF_OBJECT, asked(annotations={GIVEN_UP_ANNOTATION: "x"}), GONE, "has timed out"),
    Case("an object in others' hands", OF_OBJECT, asked(finalizers=[FINALIZER]), VETOED, "in the hands of"),
    Case(
        "an object that was taken over",
        OF_OBJECT,
        replace(asked(finalizers=[FINALIZER]), takeover=True),
        None,
        unhealthy=True,
    ),
    Case("a check that finds it unhealthy", OF_CHECK, of(SICK), None, unhealthy=True),
    Case("a check that finds it healthy", OF_CHECK, of(WELL), GONE, "finds the node healthy"),
    Case("a check whose time runs", OF_CHECK, of(LATELY), VETOED, "", soon=True),
    Case("a check that selects nobody", OF_CHECK, of(), GONE, "no longer selects"),
    Case("a check that selects others", OF_CHECK, of(replace(SICK, labels={})), GONE, "no longer selects"),
    Case("a check that was deleted", OF_CHECK, of(SICK, asking=None), GONE, "was deleted"),
    Case("a paused check", OF_CHECK, of(SICK, asking=check_object(pauseRequests=["us"])), VETOED, "is paused", unhealthy=True),
    Case("a check that can't be read", OF_CHECK, of(SICK, asking=check_object(unhealthyConditions=[])), UNLICENSED, "be read"),
    Case("one Machine that needs it is enough", OF_CHECK, of_machines(machine(WELL), machine(SICK)), None, unhealthy=True),
    Case("a Machine of no known Cluster", OF_CHECK, of_machines(machine(SICK, known=False)), VETOED, "there is no Cluster prod"),
    Case("a veto weighs more than an end", OF_CHECK, of_machines(machine(WELL), machine(LATELY)), VETOED, soon=True),
    Case("a Machine that others delete", OF_CHECK, of_machines(machine(SICK, deleting=True)), VETOED),
    Case("S20 one that we delete", OF_CHECK, of_machines(machine(SICK, deleting=True), deletes_it=True), None, unhealthy=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_read_of_it_says_whether_it_stands(case: Case) -> None:
    found = need_now(case.need, case.seen, NOW)
    assert (found.objection.weight if found.objection is not None else None) is case.weight, found
    assert case.words in (found.objection.reason if found.objection is not None else "")
    assert (found.unhealthy, found.soon) == (case.unhealthy, case.soon)
