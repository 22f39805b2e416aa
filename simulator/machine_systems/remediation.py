"""Which condemned Machines a MachineSet of Cluster API deletes: the newest first, as many at once as its MachineDeployment wants.

A health check condemns by two conditions: HealthCheckSucceeded=False is its opinion, OwnerRemediated=False its request. The owner
answers in the second, with its reason; a Machine that it deletes is told so before it is deleted. Without a MachineDeployment, or
without a limit in it, all go at once. Left out, knowingly: revisions, of which only the newest is remediated.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.machine_systems.contract import OwnersAct, SetSighting, created_at, with_condition, without_condition
from simulator.objects import JsonObject, condition_of, condition_status, is_terminating, name_of

HEALTH_CHECK_SUCCEEDED, OWNER_REMEDIATED = "HealthCheckSucceeded", "OwnerRemediated"
REMEDIATE = "cluster.x-k8s.io/remediate-machine"
DEFERRED, CANNOT, DELETING = "RemediationDeferred", "CannotBeRemediated", "MachineDeleting"
"""The owner's reasons of OwnerRemediated."""


def is_condemned(machine: JsonObject) -> bool:
    """Its owner is asked to remediate it, whether or not it is being deleted by now."""
    return condition_status(machine, HEALTH_CHECK_SUCCEEDED) == "False" and condition_status(machine, OWNER_REMEDIATED) == "False"


def is_spared(machine: JsonObject) -> bool:
    """It was condemned, and the check has taken its opinion back."""
    return condition_status(machine, HEALTH_CHECK_SUCCEEDED) == "True" and condition_status(machine, OWNER_REMEDIATED) == "False"


def says_remediate(machine: JsonObject) -> bool:
    """A person wants it remediated before all others."""
    return REMEDIATE in (machine["metadata"].get("annotations") or {})


def told(machine: JsonObject, reason: str, message: str) -> JsonObject:
    """The status with the owner's answer; {} where it stands there already."""
    listed = with_condition(machine, OWNER_REMEDIATED, "False", reason, message)
    return {"conditions": listed} if listed is not None else {}


def released(machine: JsonObject) -> JsonObject:
    """The status without the request."""
    return {"conditions": without_condition(machine, OWNER_REMEDIATED)}


def acts_of_set(seen: SetSighting) -> list[tuple[JsonObject, OwnersAct]]:
    """One round of a MachineSet."""
    standing = [machine for machine in seen.machines if not is_terminating(machine)]
    acts = [(machine, OwnersAct(status=released(machine))) for machine in standing if is_spared(machine)]
    condemned = sorted(
        filter(is_condemned, standing), key=lambda each: (not says_remediate(each), -created_at(each), name_of(each))
    )
    limit = max_in_flight(seen.deployment)
    free = len(condemned) if limit is None else max(limit - _in_flight(seen.machines), 0)
    for machine in condemned[free:]:
        message = f"it waits for others: its MachineSet remediates {limit} at a time (maxInFlight)"
        acts.append((machine, OwnersAct(status=told(machine, DEFERRED, message))))
    for machine in condemned[:free]:
        if seen.preflight:
            status = told(machine, DEFERRED, seen.preflight)
            acts.append((machine, OwnersAct(status=status, look_again=seen.settings.preflight_retry)))
        else:
            acts.append((machine, OwnersAct(status=told(machine, DELETING, "its MachineSet deletes it"), delete=True)))
    return acts


def max_in_flight(deployment: JsonObject | None) -> int | None:
    """How many Machines may be remediated at once; None for any number. A percentage of the replicas is rounded up."""
    if deployment is None:
        return None
    value = (deployment["spec"].get("remediation") or {}).get("maxInFlight")
    if value is None:
        return None
    if isinstance(value, int):
        return int(value)
    replicas = int(deployment["spec"].get("replicas", 1))
    return -(-int(str(value).removesuffix("%")) * replicas // 100)


def _in_flight(machines: Sequence[JsonObject]) -> int:
    """Those of its Machines that the set has remediated and that are not gone yet."""
    conditions = (condition_of(machine, OWNER_REMEDIATED) for machine in machines if is_terminating(machine))
    return sum(1 for each in conditions if each is not None and (each["status"], each["reason"]) == ("False", DELETING))
