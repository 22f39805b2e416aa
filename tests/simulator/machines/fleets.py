"""Small fast clusters whose nodes are Machines, and a health check's pen: what condemns a Machine in the eyes of its owner."""

from __future__ import annotations

from typing import Any

from simulator.cluster import SimulatedCluster
from simulator.machine_systems.contract import MachineSettings, without_condition
from simulator.machine_systems.remediation import HEALTH_CHECK_SUCCEEDED, OWNER_REMEDIATED, WAITING
from simulator.machines import Fleet, MachineOptions
from simulator.objects import JsonObject, condition_of
from tests.simulator.cluster.conftest import small_cluster

FAST = MachineSettings(
    create=0.05, switch_off=0.05, destroy=0.05, remove_node=0.05, health_timeout=0.4, preflight_retry=0.1, terminates_after=0.2
)


def with_machines(system: str, *, options: dict[str, Any] | None = None, **changes: Any) -> SimulatedCluster:
    """Three workers in one zone, whose machines come and go in a moment."""
    machines = MachineOptions(**{"system": system, "settings": FAST, **(options or {})})
    return small_cluster(**{"nodes": 3, "zones": 1, "demo_workloads": False, "machines": machines, **changes})


async def judge(fleet: Fleet, name: str, *, healthy: bool) -> None:
    """What a health check thinks of a Machine; where it is not healthy its owner is asked to remediate it."""
    machine = fleet.machine(name)
    assert machine is not None
    others: list[JsonObject] = without_condition(machine, HEALTH_CHECK_SUCCEEDED)
    if not healthy and condition_of(machine, OWNER_REMEDIATED) is None:
        others.append(condition(OWNER_REMEDIATED, "False", WAITING))
    opinion = condition(HEALTH_CHECK_SUCCEEDED, "True" if healthy else "False", "AsJudged")
    await fleet.set_status(name, {"conditions": [*others, opinion]})


def condition(kind: str, status: str, reason: str) -> JsonObject:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "as judged",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def answer(fleet: Fleet, name: str) -> str:
    """The reason of a Machine's OwnerRemediated, "" where it has none."""
    machine = fleet.machine(name)
    found = condition_of(machine, OWNER_REMEDIATED) if machine is not None else None
    return str(found["reason"]) if found is not None else ""
