"""Machines of Gardener's machine-controller-manager (MCM), as of August 2026: phases that come and go, traces of preservation.

Preserving is nodewarden's work here and not simulated: nothing here writes expiries or `auto-preserved`. But a writer of them is
heard, as MCM's own controllers hear them: in the order of scaling down, by the limit of failures, and before a Failed Machine is
deleted, where that is switched on at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from simulator.machine_systems.contract import (
    DELETES_FAILED,
    KNOWS_NO_EXPIRY,
    Judgement,
    MachineSystem,
    OwnersAct,
    Sighting,
    annotation,
    created_at,
    provider_id_of,
)
from simulator.objects import READY, JsonObject, name_of, seconds_of, timestamp
from simulator.resources import Resource

API_VERSION = "machine.sapcloud.io/v1alpha1"
PRESERVE = "node.machine.sapcloud.io/preserve"
LAST_APPLIED = "node.machine.sapcloud.io/last-applied-node-preserve-value"
PRIORITY = "machinepriority.machine.sapcloud.io"
MARKED_AT = "machine.sapcloud.io/marked-for-deletion-time"
KEEPING = frozenset({"now", "when-failed", "auto-preserved"})

DEFAULT_PRIORITY = 3
PHASES_FIRST_TO_GO = ("Terminating", "Failed", "CrashLoopBackOff", "Unknown", "Pending", "Available", "Running")
SICK_UNLESS_FALSE = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"


class Gardener(MachineSystem):
    """A Failed Machine is Running again when its Node is well again, unless it was deleted."""

    name = "gardener"
    crds = "gardener"
    namespace = "shoot--simulated"
    machines = Resource(api_version=API_VERSION, kind="Machine", plural="machines")
    machine_sets = Resource(api_version=API_VERSION, kind="MachineSet", plural="machinesets")
    finalizer = "machine.sapcloud.io/machine-controller-manager"
    # The label of a MachineDeployment there; here a set stands for one, and the limit of failures counts by this label.
    set_label = "name"

    def machine_spec(self, name: str) -> JsonObject:
        return {"class": {"apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": name}}

    def labels_with(self, node: str) -> dict[str, str]:
        return {"node": node}

    def phase(self, machine: JsonObject) -> str:
        return str(_current(machine).get("phase") or "")

    def node_named(self, machine: JsonObject) -> str:
        return str((machine["metadata"].get("labels") or {}).get("node", ""))

    # The phases

    def judge(self, seen: Sighting) -> Judgement:
        machine, phase = seen.machine, self.phase(seen.machine)
        if not provider_id_of(machine):
            return self._without_instance(seen)
        status: JsonObject = {}
        conditions = (machine.get("status") or {}).get("conditions") or []
        if seen.node is not None:
            of_node = (seen.node.get("status") or {}).get("conditions") or []
            if _signs(of_node) != _signs(conditions):
                status["conditions"] = conditions = of_node
        wanted = phase if phase and phase != "CrashLoopBackOff" else "Pending"
        if seen.node is not None and _is_healthy(machine, conditions):
            wanted = "Running"
        elif phase == "Running" and conditions:
            wanted = "Unknown"
        look_again = None
        if wanted == phase and phase in {"Pending", "Unknown"}:
            left = self._limit(seen, phase) - (seen.age if phase == "Pending" else seen.in_phase)
            if left >= 0:
                look_again = left + 0.01
            elif phase == "Pending" or self._may_fail(seen):
                wanted = "Failed"
            else:
                look_again = 0.5
        if wanted != phase:
            status |= _moved(wanted, *_reason(phase, wanted))
        return Judgement(status=status, look_again=look_again)

    def _without_instance(self, seen: Sighting) -> Judgement:
        """The phase stays empty until the provider has answered."""
        if not seen.refused or self.phase(seen.machine) == "Failed":
            return Judgement()
        limit = self._limit(seen, "Pending")
        wanted = "Failed" if seen.age > limit else "CrashLoopBackOff"
        status = _moved(wanted, "Create", "Failed") if wanted != self.phase(seen.machine) else {}
        return Judgement(status=status, look_again=max(limit - seen.age, 0.0) + 0.01 if wanted != "Failed" else None)

    @staticmethod
    def _limit(seen: Sighting, phase: str) -> float:
        own = seen.machine["spec"].get("creationTimeout" if phase == "Pending" else "healthTimeout")
        if own:
            return seconds_of(own)
        return seen.settings.creation_timeout if phase == "Pending" else seen.settings.health_timeout

    def _may_fail(self, seen: Sighting) -> bool:
        """Whether one more Machine may be given up. Those that go are counted twice, for their replacements to come."""
        of_one = (seen.machine["metadata"].get("labels") or {}).get(self.set_label)
        on_their_way = 0
        for each in seen.siblings:
            if of_one is None or (each["metadata"].get("labels") or {}).get(self.set_label) != of_one:
                continue
            phase = self.phase(each)
            if phase not in {"Unknown", "Running"}:
                on_their_way += _current(each).get("preserveExpiryTime") is None
                on_their_way += phase == "Terminating"
        return on_their_way < seen.settings.failed_at_once

    def deleting(self, machine: JsonObject) -> JsonObject:
        if self.phase(machine) == "Terminating":
            return {}
        status = _moved("Terminating", "Delete", "Processing")
        status["currentStatus"]["preserveExpiryTime"] = None
        return status

    # What its set does

    def deletion_rank(self, machine: JsonObject, machine_set: JsonObject) -> tuple[Any, ...]:
        now = datetime.now(UTC)
        expiry = _expiry(machine) if annotation(machine_set, KNOWS_NO_EXPIRY) != "true" else None
        kept: tuple[Any, ...] = (0,)
        if expiry is not None and expiry > now:
            automatic = annotation(machine, PRESERVE) == "auto-preserved"
            kept = (1, 0 if automatic else 1, expiry)
        try:
            priority = int(annotation(machine, PRIORITY) or DEFAULT_PRIORITY)
        except ValueError:
            priority = DEFAULT_PRIORITY
        marked = _moment(annotation(machine, MARKED_AT))
        phase = self.phase(machine)
        of_phase = PHASES_FIRST_TO_GO.index(phase) if phase in PHASES_FIRST_TO_GO else 0
        return (kept, priority, (0, marked) if marked else (1,), of_phase, created_at(machine), name_of(machine))

    def owners_act(self, machine: JsonObject, node: JsonObject | None, machine_set: JsonObject) -> OwnersAct:
        if self.phase(machine) != "Failed" or annotation(machine_set, DELETES_FAILED) != "true":
            return OwnersAct()
        expiry = _expiry(machine)
        if expiry is not None:
            left = (expiry - datetime.now(UTC)).total_seconds()
            return OwnersAct(delete=True) if left <= 0 else OwnersAct(look_again=left + 0.01)
        if self.node_named(machine) and node is None:
            # As shipped: what cannot be read cannot be preserved.
            return OwnersAct(delete=True)
        of_node = annotation(node, PRESERVE)
        effective = of_node if of_node or annotation(machine, LAST_APPLIED) else annotation(machine, PRESERVE)
        return OwnersAct(delete=effective not in KEEPING)

    def set_status(self, counts: Mapping[str, int], machines: Sequence[JsonObject]) -> JsonObject:
        failed = [each for each in machines if self.phase(each) == "Failed"]
        return {
            **counts,
            "preservedFailedReplicas": sum(1 for each in failed if _expiry(each) is not None),
            "autoPreserveFailedMachineCount": sum(1 for each in machines if annotation(each, PRESERVE) == "auto-preserved"),
        }


def _current(machine: JsonObject) -> JsonObject:
    return dict((machine.get("status") or {}).get("currentStatus") or {})


def _moved(phase: str, operation: str, state: str) -> JsonObject:
    now = timestamp()
    return {
        "currentStatus": {"phase": phase, "timeoutActive": phase in {"Pending", "Unknown"}, "lastUpdateTime": now},
        "lastOperation": {"type": operation, "state": state, "description": f"is {phase} now", "lastUpdateTime": now},
    }


def _reason(before: str, after: str) -> tuple[str, str]:
    """The operation that a change of phase belongs to, and how far it is."""
    operation = "Create" if before in {"", "Pending", "CrashLoopBackOff"} else "HealthCheck"
    return operation, {"Running": "Successful", "Failed": "Failed"}.get(after, "Processing")


def _signs(conditions: Sequence[JsonObject]) -> set[tuple[str, str]]:
    return {(each["type"], each["status"]) for each in conditions}


def _is_healthy(machine: JsonObject, conditions: Sequence[JsonObject]) -> bool:
    sick_unless_false = str(machine["spec"].get("nodeConditions") or SICK_UNLESS_FALSE).split(",")
    for each in conditions:
        if each["type"] == READY and each["status"] != "True":
            return False
        if each["type"] in sick_unless_false and each["status"] != "False":
            return False
    return bool(conditions)


def _expiry(machine: JsonObject) -> datetime | None:
    return _moment(str(_current(machine).get("preserveExpiryTime") or ""))


def _moment(text: str) -> datetime | None:
    """A moment as Kubernetes writes it; None for anything else, for which MCM has no use either."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
