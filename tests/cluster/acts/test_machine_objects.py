"""What one Machine says, whosever it is: whose, whether it goes and what holds that up, whether it will ever work."""

from __future__ import annotations

from typing import Any

import pytest

from activities.cluster.api.machine_paths import set_of
from activities.cluster.objects.machine_objects import (
    condition_of_machine,
    controller_of,
    failure_of,
    node_of,
    phase_of,
    waits_for,
)
from policy.values.object_refs import ObjectRef

OPENSHIFT, CLUSTER_API, MCM = "machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta2", "machine.sapcloud.io/v1alpha1"


def a_machine(version: str = OPENSHIFT, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "m", "namespace": "n"} | fields.pop("metadata", {})
    return {"apiVersion": version, "kind": "Machine", "metadata": metadata, **fields}


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (
            a_machine(
                CLUSTER_API, status={"conditions": [{"type": "Deleting", "status": "True", "message": "Drain: 2 pods left"}]}
            ),
            "Deleting: Drain: 2 pods left",
        ),
        (
            a_machine(status={"conditions": [{"type": "Drained", "status": "False", "reason": "Draining"}]}),
            "Drained: Draining",
        ),
        (
            a_machine(CLUSTER_API, metadata={"annotations": {"pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "ada"}}),
            "its hooks pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
        ),
        (
            a_machine(spec={"lifecycleHooks": {"preDrain": [{"name": "EtcdQuorumOperator", "owner": "etcd"}]}}),
            "its hooks preDrain EtcdQuorumOperator",
        ),
        (a_machine(metadata={"finalizers": ["machine.machine.openshift.io"]}), "its finalizers machine.machine.openshift.io"),
        (a_machine(status={"conditions": [{"type": "Drained", "status": "True", "reason": "Drained"}]}), ""),
        (a_machine(), ""),
    ],
    ids=["drain of Cluster API", "drain of OpenShift", "hook", "lifecycle hook", "finalizer", "drained", "nothing"],
)
def test_what_its_deletion_waits_for_is_told(machine: dict[str, Any], said: str) -> None:
    """Drain, hooks, instance and object: whichever it is that does not go on."""
    assert waits_for(machine) == said


@pytest.mark.parametrize(
    ("machine", "failed"),
    [
        (a_machine(status={"phase": "Failed"}), "its phase is Failed"),
        (a_machine(status={"phase": "Running"}), ""),
        (a_machine(MCM, status={"currentStatus": {"phase": "Failed"}}), "its phase is Failed"),
        (a_machine(status={"errorReason": "InsufficientResources", "errorMessage": "quota"}), "InsufficientResources: quota"),
        (a_machine(CLUSTER_API, status={"failureMessage": "no image"}), "no image"),
    ],
)
def test_whether_it_will_ever_work(machine: dict[str, Any], failed: str) -> None:
    assert failure_of(machine) == failed


def test_the_newer_generation_of_a_condition_goes_first() -> None:
    old, new = {"type": "OwnerRemediated", "status": "True"}, {"type": "OwnerRemediated", "status": "False"}
    machine = a_machine(CLUSTER_API, status={"v1beta2": {"conditions": [new]}, "conditions": [old]})
    assert condition_of_machine(machine, "OwnerRemediated")["status"] == "False"
    deprecated = {"v1beta1": {"conditions": [old]}}
    assert condition_of_machine(a_machine(CLUSTER_API, status={"deprecated": deprecated}), "OwnerRemediated")["status"] == "True"
    assert condition_of_machine(a_machine(), "OwnerRemediated") == {}


def test_its_node_phase_and_owner_in_each_spelling() -> None:
    owners = [{"kind": "Other", "name": "x"}, {"kind": "MachineSet", "name": "s", "controller": True}]
    machine = a_machine(metadata={"ownerReferences": owners}, status={"phase": "Running", "nodeRef": {"name": "node-1"}})
    assert (controller_of(machine), phase_of(machine), node_of(machine)) == ("MachineSet/s", "Running", "node-1")
    theirs = a_machine(MCM, metadata={"labels": {"node": "node-2"}}, status={"currentStatus": {"phase": "Running"}})
    assert (controller_of(theirs), phase_of(theirs), node_of(theirs)) == ("", "Running", "node-2")
    assert node_of(a_machine(metadata={"labels": {"node": "node-2"}})) == "", "a label of that name is only theirs"


@pytest.mark.parametrize(
    ("version", "owner", "found"),
    [
        (OPENSHIFT, "MachineSet/s", True),
        (CLUSTER_API, "MachineSet/s", True),
        (MCM, "MachineSet/s", True),
        (CLUSTER_API, "KubeadmControlPlane/s", False),
        (OPENSHIFT, "", False),
    ],
)
def test_only_a_machine_set_has_a_number_of_replicas_to_be_asked(version: str, owner: str, found: bool) -> None:
    ref = ObjectRef(api_version=version, kind="Machine", name="m", namespace="n")
    place = set_of(ref, owner)
    assert (place is not None) is found
    assert place is None or (place[0].api_version, place[1]) == (version, "s")
