"""What the simulated machine controllers ask of a system of Machines: Gardener's, OpenShift's or Cluster API's.

The controllers (`controllers/machine_set.py`, `controllers/machine.py`) make, judge and take down Machines in the same way for
all three; how each spells a Machine, which phases it knows and which Machine goes first is one module each. A system decides
from what it is shown and touches nothing.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from simulator.objects import (
    JsonObject,
    condition_of,
    is_terminating,
    name_of,
    namespace_of,
    owner_reference,
    timestamp,
)
from simulator.resources import Resource

ZONE = "topology.kubernetes.io/zone"
DELETES_FAILED = "simulator/deletes-failed"
"""Our own annotation of a MachineSet: "true" where it deletes its Failed Machines by itself, as Gardener's does."""
KNOWS_NO_EXPIRY = "simulator/knows-no-expiry"
"""The same: "true" where its controller is one of before Machines could be preserved, and asks for their priority alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """How long machines take, in seconds. The two time-outs are Gardener's defaults; a Machine's own beat them.

    failed_at_once: how many Machines with the same label `name` Gardener lets be Failed or on their way at the same time before
    it leaves the others Unknown; preserved ones do not count. preflight_retry: when a set of Cluster API looks again if its
    preflight checks have failed. terminates_after: how long an instance lasts that its provider has accepted and cannot start.
    """

    create: float = 5.0
    switch_off: float = 2.0
    destroy: float = 2.0
    remove_node: float = 1.0
    health_timeout: float = 600.0
    creation_timeout: float = 1200.0
    failed_at_once: int = 1
    preflight_retry: float = 15.0
    terminates_after: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a machine controller sees of one Machine. `in_phase` and `age` are seconds on its own clock."""

    machine: JsonObject
    node: JsonObject | None
    has_instance: bool
    refused: bool
    """Its provider does not want to make an instance for it."""
    in_phase: float
    age: float
    settings: MachineSettings
    siblings: Sequence[JsonObject] = ()
    """All Machines of its namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The status that a Machine gets, as a merge patch, and in how many seconds it is looked at without an event."""

    status: JsonObject = field(default_factory=dict)
    look_again: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersAct:
    """What a MachineSet does with one of its Machines whatever its number of replicas, and when it looks at it again. The status
    is written before the Machine is deleted, so that a controller which ends in between finds it again."""

    status: JsonObject = field(default_factory=dict)
    delete: bool = False
    look_again: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSighting:
    """What a MachineSet controller sees of one set.

    machines: all of it, also those being deleted. deployment: the MachineDeployment that it belongs to, None where it belongs to
    none. preflight: why nothing is made or remediated now, "" where it may be.
    """

    machine_set: JsonObject
    machines: Sequence[JsonObject]
    node_of: Callable[[JsonObject], JsonObject | None]
    settings: MachineSettings
    deployment: JsonObject | None = None
    preflight: str = ""


class MachineSystem(ABC):
    """One spelling of Machines and MachineSets, and its rules."""

    name: ClassVar[str]
    crds: ClassVar[str]
    """The folder of `crds/` with its kinds."""
    namespace: ClassVar[str]
    """Where the simulator puts its objects."""
    machines: ClassVar[Resource]
    machine_sets: ClassVar[Resource]
    finalizer: ClassVar[str]
    set_label: ClassVar[str]
    """The label by which a MachineSet knows its Machines."""
    delete_first: ClassVar[str] = ""
    """The annotation of a Machine that is to go first when its set gets smaller, where an autoscaler knows one."""
    node_group: ClassVar[str] = ""
    """What an autoscaler's annotations of a MachineSet begin with, where it knows this system's."""

    # Objects

    @abstractmethod
    def machine_spec(self, name: str) -> JsonObject:
        """The spec of a Machine of a MachineSet, before it has an instance."""

    def set_fields(self) -> JsonObject:
        """What the spec of a MachineSet holds beside replicas, selector and template."""
        return {}

    def labels(self, zone: str) -> dict[str, str]:
        """What a Machine is labelled with, apart from its set."""
        return {"role": "worker", ZONE: zone}

    def machine_set(self, name: str, *, zone: str, replicas: int, deletes_failed: bool = False) -> JsonObject:
        selected = {self.set_label: name}
        return {
            "apiVersion": self.machine_sets.api_version,
            "kind": self.machine_sets.kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"role": "worker"},
                "annotations": {DELETES_FAILED: "true"} if deletes_failed else {},
            },
            "spec": {
                **self.set_fields(),
                "replicas": replicas,
                "selector": {"matchLabels": selected},
                "template": {
                    "metadata": {"labels": {**self.labels(zone), **selected}},
                    "spec": self.machine_spec(name),
                },
            },
        }

    def machine_of(self, machine_set: JsonObject) -> JsonObject:
        """A new Machine, as its set creates it: without a name of its own, with an owner and the finalizer."""
        template = copy.deepcopy(machine_set["spec"]["template"])
        metadata = template.get("metadata") or {}
        return {
            "apiVersion": self.machines.api_version,
            "kind": self.machines.kind,
            "metadata": {
                "generateName": f"{name_of(machine_set)}-",
                "namespace": namespace_of(machine_set),
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [owner_reference(machine_set)],
                "finalizers": [self.finalizer],
            },
            "spec": template["spec"],
        }

    def labels_with(self, node: str) -> dict[str, str]:  # noqa: ARG002 - most say it in the status
        """What a Machine is labelled with once its instance is there."""
        return {}

    def ties(self, machine: JsonObject) -> dict[str, str]:  # noqa: ARG002 - not every system has them
        """The annotations that a Node gets when it belongs to this Machine."""
        return {}

    # Rules

    @abstractmethod
    def phase(self, machine: JsonObject) -> str:
        """The phase it is in, "" before it has one."""

    @abstractmethod
    def node_named(self, machine: JsonObject) -> str:
        """The name of its Node as the Machine has it, "" before it has one."""

    @abstractmethod
    def judge(self, seen: Sighting) -> Judgement:
        """The status of a Machine that is not being deleted."""

    @abstractmethod
    def deleting(self, machine: JsonObject) -> JsonObject:
        """The status of a Machine that is being deleted, as a merge patch; {} where it says so already."""

    @abstractmethod
    def deletion_rank(self, machine: JsonObject, machine_set: JsonObject) -> tuple[Any, ...]:
        """When a set has too many Machines, those with the smallest rank go first."""

    def owners_act(self, machine: JsonObject, node: JsonObject | None, machine_set: JsonObject) -> OwnersAct:  # noqa: ARG002
        """What its set does with a Machine that is not being deleted."""
        return OwnersAct()

    def owners_acts(self, seen: SetSighting) -> list[tuple[JsonObject, OwnersAct]]:
        """What a set does with its Machines, each for itself or with an eye on the others."""
        standing = [machine for machine in seen.machines if not is_terminating(machine)]
        return [(machine, self.owners_act(machine, seen.node_of(machine), seen.machine_set)) for machine in standing]

    def set_status(self, counts: Mapping[str, int], machines: Sequence[JsonObject]) -> JsonObject:  # noqa: ARG002
        """The status of a MachineSet. counts: replicas, readyReplicas, availableReplicas, observedGeneration."""
        return dict(counts)


def provider_id_of(machine: JsonObject) -> str:
    return str(machine["spec"].get("providerID") or "")


def annotation(obj: JsonObject | None, key: str) -> str:
    """An annotation's value, "" where there is none."""
    return str((obj["metadata"].get("annotations") or {}).get(key, "")) if obj is not None else ""


def created_at(obj: JsonObject) -> float:
    """When it was created, in seconds since 1970."""
    return datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp()


def with_condition(machine: JsonObject, condition_type: str, status: str, reason: str, message: str) -> list[JsonObject] | None:
    """All conditions of a status with this one as it is now; None where nothing about it has changed.

    The list is replaced as a whole by a merge patch, so the others are in it as they were.
    """
    before = condition_of(machine, condition_type)
    if before is not None and (before["status"], before["reason"], before.get("message", "")) == (status, reason, message):
        return None
    turned = before is None or before["status"] != status
    after = {
        "type": condition_type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp() if turned or before is None else before["lastTransitionTime"],
    }
    return [*without_condition(machine, condition_type), after]


def with_conditions(machine: JsonObject, said: Mapping[str, tuple[str, str, str]]) -> list[JsonObject] | None:
    """The same for several: status, reason and message by type."""
    changed: list[JsonObject] | None = None
    for condition_type, (status, reason, message) in said.items():
        listed = with_condition(machine, condition_type, status, reason, message)
        if listed is not None:
            changed = listed
            machine = {**machine, "status": {**(machine.get("status") or {}), "conditions": listed}}
    return changed


def without_condition(machine: JsonObject, condition_type: str) -> list[JsonObject]:
    known = (machine.get("status") or {}).get("conditions") or ()
    return [dict(each) for each in known if each.get("type") != condition_type]
