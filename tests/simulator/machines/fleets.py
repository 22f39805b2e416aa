"""Small fast clusters whose nodes are Machines, and a health check's pen: what condemns a Machine in the eyes of its owner."""

from __future__ import annotations

from typing import Any

from simulator.cluster import SimulatedCluster
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import JsonObject
from tests.simulator.cluster.conftest import small_cluster

FAST = MachineSettings(
    create=0.05, switch_off=0.05, destroy=0.05, remove_node=0.05, health_timeout=0.4, preflight_retry=0.1, terminates_after=0.2
)


def with_machines(system: str, *, options: dict[str, Any] | None = None, **changes: Any) -> SimulatedCluster:
    """Three workers in one zone, whose machines come and go in a moment."""
    machines = MachineOptions(**{"system": system, "settings": FAST, **(options or {})})
    return small_cluster(**{"nodes": 3, "zones": 1, "demo_workloads": False, "machines": machines, **changes})


def condition(kind: str, status: str, reason: str) -> JsonObject:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "as judged",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
