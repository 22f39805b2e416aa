"""Machines of Cluster API as its versions 1.9 and 1.10 serve them: v1beta1 alone, with two generations of conditions on each.

Decisions are made by the older ones, in `status.conditions`; the newer ones in `status.v1beta2` are for those who look on. So a
Machine that its set has begun to remediate says OwnerRemediated=True in the older generation, and False with a reason in the
newer; one that has to wait is told so in the newer alone. Limits of remediation and control planes are left to
`cluster_api.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.machine_systems.cluster_api import CLUSTER_NAME, ClusterApi, health_of
from simulator.machine_systems.contract import Judgement, OwnersAct, SetSighting, Sighting, provider_id_of
from simulator.machine_systems.remediation import DELETING, OWNER_REMEDIATED, acts_of_set
from simulator.objects import JsonObject, condition_of, name_of, timestamp, uid_of
from simulator.resources import Resource

API_VERSION = "cluster.x-k8s.io/v1beta1"
NODE_HEALTHY = "NodeHealthy"


class ClusterApiV1beta1(ClusterApi):
    """The same Machines in the older spelling."""

    name = "cluster-api-v1beta1"
    crds = "cluster-api-v1beta1"
    machines = Resource(api_version=API_VERSION, kind="Machine", plural="machines")
    machine_sets = Resource(api_version=API_VERSION, kind="MachineSet", plural="machinesets")
    clusters = Resource(api_version=API_VERSION, kind="Cluster", plural="clusters")

    def machine_spec(self, name: str) -> JsonObject:
        reference = {"apiVersion": "infrastructure.simulated/v1beta1", "kind": "SimulatedMachine", "name": name}
        return {"clusterName": CLUSTER_NAME, "bootstrap": {"dataSecretName": name}, "infrastructureRef": reference}

    def cluster_status(self) -> JsonObject:
        conditions = [{"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": timestamp()}]
        return {"phase": "Provisioned", "controlPlaneReady": True, "infrastructureReady": True, "conditions": conditions}

    def judge(self, seen: Sighting) -> Judgement:
        machine, known = seen.machine, seen.machine.get("status") or {}
        has_instance = bool(provider_id_of(machine))
        status: JsonObject = {}
        ready = {"bootstrapReady": True, **({"infrastructureReady": True} if has_instance else {})}
        if any(known.get(field) != value for field, value in ready.items()):
            status |= ready
        if seen.node is not None and not known.get("nodeRef"):
            status["nodeRef"] = {"apiVersion": "v1", "kind": "Node", "name": name_of(seen.node), "uid": uid_of(seen.node)}
        refers = bool(known.get("nodeRef") or seen.node is not None)
        if refers:
            status |= with_older(machine, NODE_HEALTHY, *health_of(seen.node))
        phase = "Running" if refers and has_instance else "Provisioned" if has_instance else "Provisioning"
        if known.get("failureReason") or known.get("failureMessage"):
            phase = "Failed"
        if phase != self.phase(machine):
            status |= {"phase": phase, "lastUpdated": timestamp()}
        return Judgement(status=status)

    def owners_acts(self, seen: SetSighting) -> list[tuple[JsonObject, OwnersAct]]:
        return [(machine, _in_both(machine, act)) for machine, act in acts_of_set(seen)]

    def set_status(self, counts: Mapping[str, int], machines: Sequence[JsonObject]) -> JsonObject:  # noqa: ARG002
        return {**counts, "fullyLabeledReplicas": counts["replicas"]}


def with_older(machine: JsonObject, kind: str, status: str, reason: str = "", message: str = "") -> JsonObject:
    """A status with this condition among those of the older generation; {} where nothing about it has changed.

    Such a condition has no reason and no message that are empty, and a severity where it is False.
    """
    before = condition_of(machine, kind)
    wanted: JsonObject = {"type": kind, "status": status, "lastTransitionTime": timestamp()}
    if status != "True":
        wanted |= {field: text for field, text in (("reason", reason), ("message", message)) if text}
    if status == "False":
        wanted["severity"] = "Warning"
    if before is not None and before["status"] == status:
        wanted["lastTransitionTime"] = before["lastTransitionTime"]
    return {} if before == wanted else {"conditions": [*_others((machine.get("status") or {}).get("conditions"), kind), wanted]}


def _others(conditions: Sequence[JsonObject] | None, kind: str) -> list[JsonObject]:
    return [dict(each) for each in conditions or () if each["type"] != kind]


def _in_both(machine: JsonObject, act: OwnersAct) -> OwnersAct:
    """What `remediation.py` says of OwnerRemediated, in both generations."""
    status = machine.get("status") or {}
    newer = _others((status.get("v1beta2") or {}).get("conditions"), OWNER_REMEDIATED)
    said = condition_of({"status": act.status}, OWNER_REMEDIATED)
    if not act.status:
        return act
    if said is None:
        older = _others(status.get("conditions"), OWNER_REMEDIATED)
        return OwnersAct(status={"conditions": older, "v1beta2": {"conditions": newer}}, look_again=act.look_again)
    before = condition_of({"status": status.get("v1beta2") or {}}, OWNER_REMEDIATED)
    if before is not None and (before["reason"], before["message"]) == (said["reason"], said["message"]):
        return OwnersAct(delete=act.delete, look_again=act.look_again)
    both: JsonObject = {"v1beta2": {"conditions": [*newer, {**said, "lastTransitionTime": timestamp()}]}}
    if said["reason"] == DELETING:
        both |= with_older(machine, OWNER_REMEDIATED, "True")
    return OwnersAct(status=both, delete=act.delete, look_again=act.look_again)
