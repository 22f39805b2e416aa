"""Machines of Cluster API in v1beta2: one Cluster of the name `simulated`; its nodes are in the cluster that manages it. The
older version is `cluster_api_v1beta1.py`.

Its owner remediates: a MachineSet deletes those Machines that a health check has condemned (`remediation.py`), and so does a
KubeadmControlPlane (`control_plane.py`). The phase Failed is what its versions before v1beta2 had; here it lasts as long as a
failureReason or failureMessage stands in the status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.machine_systems.contract import (
    Judgement,
    MachineSystem,
    OwnersAct,
    SetSighting,
    Sighting,
    created_at,
    provider_id_of,
    with_condition,
)
from simulator.machine_systems.remediation import HEALTH_CHECK_SUCCEEDED, acts_of_set
from simulator.objects import (
    READY,
    JsonObject,
    condition_of,
    condition_status,
    controller_of,
    is_terminating,
    name_of,
    namespace_of,
    owner_reference,
    phase_of,
    timestamp,
)
from simulator.resources import Resource

API_VERSION = "cluster.x-k8s.io/v1beta2"
CLUSTER_NAME = "simulated"
MACHINE_DEPLOYMENTS = Resource(api_version=API_VERSION, kind="MachineDeployment", plural="machinedeployments")
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
DELETE_FIRST = "cluster.x-k8s.io/delete-machine"
NODE_HEALTHY = "NodeHealthy"


class ClusterApi(MachineSystem):
    """Its sets belong to MachineDeployments only where those are to limit how many Machines are remediated at once."""

    name = "cluster-api"
    crds = "cluster-api-v1beta2"
    namespace = "clusters"
    machines = Resource(api_version=API_VERSION, kind="Machine", plural="machines")
    machine_sets = Resource(api_version=API_VERSION, kind="MachineSet", plural="machinesets")
    clusters = Resource(api_version=API_VERSION, kind="Cluster", plural="clusters")
    finalizer = "machine.cluster.x-k8s.io"
    set_label = "cluster.x-k8s.io/set-name"
    delete_first = DELETE_FIRST
    node_group = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"

    def machine_spec(self, name: str) -> JsonObject:
        reference = {"apiGroup": "infrastructure.simulated", "kind": "SimulatedMachine", "name": name}
        return {"clusterName": CLUSTER_NAME, "bootstrap": {"dataSecretName": name}, "infrastructureRef": reference}

    def set_fields(self) -> JsonObject:
        return {"clusterName": CLUSTER_NAME}

    def labels(self, zone: str) -> dict[str, str]:
        return {**super().labels(zone), "cluster.x-k8s.io/cluster-name": CLUSTER_NAME}

    def machine_deployment(self, name: str, *, replicas: int, max_in_flight: int | str) -> JsonObject:
        """A MachineDeployment that has no controller here: all that it does is to limit remediations, also by its replicas."""
        return {
            "apiVersion": MACHINE_DEPLOYMENTS.api_version,
            "kind": MACHINE_DEPLOYMENTS.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "clusterName": CLUSTER_NAME,
                "replicas": replicas,
                "remediation": {"maxInFlight": max_in_flight},
                "selector": {"matchLabels": {DEPLOYMENT_NAME: name}},
                "template": {"metadata": {"labels": {DEPLOYMENT_NAME: name}}, "spec": self.machine_spec(name)},
            },
        }

    def belonging(self, machine_set: JsonObject, deployment: JsonObject) -> JsonObject:
        """A MachineSet, before it is created, as one of this MachineDeployment."""
        label = {DEPLOYMENT_NAME: name_of(deployment)}
        metadata, template = machine_set["metadata"], machine_set["spec"]["template"]
        metadata = {**metadata, "labels": metadata["labels"] | label, "ownerReferences": [owner_reference(deployment)]}
        template = {**template, "metadata": {"labels": template["metadata"]["labels"] | label}}
        return {**machine_set, "metadata": metadata, "spec": {**machine_set["spec"], "template": template}}

    def cluster(self) -> JsonObject:
        """The Cluster that the Machines belong to."""
        return {
            "apiVersion": self.clusters.api_version,
            "kind": self.clusters.kind,
            "metadata": {"name": CLUSTER_NAME, "namespace": self.namespace},
            "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}},
        }

    def cluster_status(self) -> JsonObject:
        """It is up for as long as there are Machines."""
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": timestamp()}
            for kind in ("ControlPlaneInitialized", "InfrastructureReady")
        ]
        initialization = {"controlPlaneInitialized": True, "infrastructureProvisioned": True}
        return {"phase": "Provisioned", "initialization": initialization, "conditions": conditions}

    def ties(self, machine: JsonObject) -> dict[str, str]:
        owner = controller_of(machine) or {}
        owned = {"cluster.x-k8s.io/owner-kind": owner["kind"], "cluster.x-k8s.io/owner-name": owner["name"]} if owner else {}
        return {
            "cluster.x-k8s.io/cluster-name": CLUSTER_NAME,
            "cluster.x-k8s.io/cluster-namespace": namespace_of(machine),
            "cluster.x-k8s.io/machine": name_of(machine),
            **owned,
        }

    def phase(self, machine: JsonObject) -> str:
        return phase_of(machine)

    def node_named(self, machine: JsonObject) -> str:
        return str(((machine.get("status") or {}).get("nodeRef") or {}).get("name", ""))

    def judge(self, seen: Sighting) -> Judgement:
        machine, known = seen.machine, seen.machine.get("status") or {}
        has_instance = bool(provider_id_of(machine))
        status: JsonObject = {}
        ready = {"bootstrapDataSecretCreated": True, **({"infrastructureProvisioned": True} if has_instance else {})}
        if known.get("initialization") != ready:
            status["initialization"] = ready
        if seen.node is not None and not known.get("nodeRef"):
            status["nodeRef"] = {"name": name_of(seen.node)}
        refers = bool(known.get("nodeRef") or seen.node is not None)
        if refers and (conditions := with_condition(machine, NODE_HEALTHY, *health_of(seen.node))) is not None:
            status["conditions"] = conditions
        phase = "Running" if refers and has_instance else "Provisioned" if has_instance else "Provisioning"
        older = (known.get("deprecated") or {}).get("v1beta1") or {}
        if older.get("failureReason") or older.get("failureMessage"):
            phase = "Failed"
        if phase != self.phase(machine):
            status |= {"phase": phase, "lastUpdated": timestamp()}
        return Judgement(status=status)

    def deleting(self, machine: JsonObject) -> JsonObject:
        return {} if self.phase(machine) == "Deleting" else {"phase": "Deleting", "lastUpdated": timestamp()}

    def deletion_rank(self, machine: JsonObject, machine_set: JsonObject) -> tuple[Any, ...]:
        if is_terminating(machine):
            first = 0
        elif DELETE_FIRST in (machine["metadata"].get("annotations") or {}):
            first = 1
        elif not _is_healthy(machine):
            first = 2
        else:
            first = 3
        age = {"Oldest": created_at(machine), "Newest": -created_at(machine)}
        order = (machine_set["spec"].get("deletion") or {}).get("order", "Random")
        return (first, age.get(order, 0.0) if first == 3 else 0.0, name_of(machine))

    def owners_acts(self, seen: SetSighting) -> list[tuple[JsonObject, OwnersAct]]:
        return acts_of_set(seen)

    def set_status(self, counts: Mapping[str, int], machines: Sequence[JsonObject]) -> JsonObject:  # noqa: ARG002
        return {**counts, "upToDateReplicas": counts["replicas"]}


def health_of(node: JsonObject | None) -> tuple[str, str, str]:
    """Status, reason and message of the condition NodeHealthy."""
    if node is None:
        return "False", "NodeDeleted", "its Node is gone"
    match condition_status(node, READY):
        case "True":
            return "True", "NodeHealthy", ""
        case "False":
            return "False", "NodeNotHealthy", "its Node says Ready=False"
        case _:
            return "Unknown", "NodeHealthyUnknown", "nothing is heard of its Node"


def _is_healthy(machine: JsonObject) -> bool:
    if not (machine.get("status") or {}).get("nodeRef"):
        return False
    conditions = (condition_of(machine, kind) for kind in (NODE_HEALTHY, HEALTH_CHECK_SUCCEEDED))
    return not any(condition is not None and condition["status"] == "False" for condition in conditions)
