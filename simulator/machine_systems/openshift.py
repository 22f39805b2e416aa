"""Machines of OpenShift's machine-api: a Failed one is Failed for ever, and the phase is never taken back, no matter what set
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.machine_systems.contract import Judgement, MachineSystem, Sighting, annotation, created_at, provider_id_of
from simulator.objects import JsonObject, is_terminating, key_of, name_of, phase_of, timestamp, uid_of
from simulator.resources import Resource

API_VERSION = "machine.openshift.io/v1beta1"
MACHINE = "machine.openshift.io/machine"
DELETE_FIRST = ("machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine")


class OpenShift(MachineSystem):
    """Its controller does not look at a Node's health; that is a MachineHealthCheck's."""

    name = "openshift"
    crds = "openshift"
    namespace = "openshift-machine-api"
    machines = Resource(api_version=API_VERSION, kind="Machine", plural="machines")
    machine_sets = Resource(api_version=API_VERSION, kind="MachineSet", plural="machinesets")
    finalizer = "machine.machine.openshift.io"
    set_label = "machine.openshift.io/cluster-api-machineset"
    delete_first = DELETE_FIRST[0]
    node_group = "machine.openshift.io/cluster-api-autoscaler-node-group-"

    def machine_spec(self, name: str) -> JsonObject:
        return {"providerSpec": {"value": {"kind": "SimulatedMachineProviderConfig", "name": name}}}

    def labels(self, zone: str) -> dict[str, str]:
        return {
            **super().labels(zone),
            "machine.openshift.io/cluster-api-cluster": "simulated",
            "machine.openshift.io/cluster-api-machine-role": "worker",
            "machine.openshift.io/cluster-api-machine-type": "worker",
        }

    def ties(self, machine: JsonObject) -> dict[str, str]:
        return {MACHINE: key_of(machine)}

    def phase(self, machine: JsonObject) -> str:
        return phase_of(machine)

    def node_named(self, machine: JsonObject) -> str:
        return str(((machine.get("status") or {}).get("nodeRef") or {}).get("name", ""))

    def judge(self, seen: Sighting) -> Judgement:
        machine, phase = seen.machine, self.phase(seen.machine)
        if phase == "Failed":
            return Judgement()
        status: JsonObject = {}
        if not provider_id_of(machine):
            status["phase"] = "Failed" if seen.refused else "Provisioning"
            if seen.refused:
                status |= {"errorReason": "InvalidConfiguration", "errorMessage": "the provider refuses to make an instance"}
        elif not seen.has_instance:
            status |= {"phase": "Failed", "errorMessage": "can't find created instance"}
        else:
            known = (machine.get("status") or {}).get("nodeRef") or {}
            if seen.node is not None and known.get("uid") != uid_of(seen.node):
                status["nodeRef"] = {"kind": "Node", "name": name_of(seen.node), "uid": uid_of(seen.node)}
            status["phase"] = "Running" if known or seen.node is not None else "Provisioned"
        if status == {"phase": phase}:
            return Judgement()
        return Judgement(status={**status, "lastUpdated": timestamp()})

    def deleting(self, machine: JsonObject) -> JsonObject:
        return {} if self.phase(machine) == "Deleting" else {"phase": "Deleting", "lastUpdated": timestamp()}

    def deletion_rank(self, machine: JsonObject, machine_set: JsonObject) -> tuple[Any, ...]:
        """Those marked for it and those with an error are equal to it, then those without a Node; the policy says the rest."""
        status = machine.get("status") or {}
        marked = is_terminating(machine) or any(annotation(machine, key) for key in DELETE_FIRST)
        first = 0 if marked or status.get("errorReason") or status.get("errorMessage") else 1
        match machine_set["spec"].get("deletePolicy") or "Random":
            case "Oldest":
                return (first, created_at(machine), name_of(machine))
            case "Newest":
                return (first, -created_at(machine), name_of(machine))
            case _:
                return (first, bool(status.get("nodeRef")), name_of(machine))

    def set_status(self, counts: Mapping[str, int], machines: Sequence[JsonObject]) -> JsonObject:  # noqa: ARG002
        return {**counts, "fullyLabeledReplicas": counts["replicas"]}
