"""A whole system for a benchmark: a Temporal dev server and a worker as processes, and a simulated cluster in this one.

It is the system of `tests/system/harness.py` with the settings that a user has: the tests' own make crashes short, and would make
a busy worker replay. Everything is on the loopback and in a folder that is removed; processes end with the block, or with us.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.stage.processes import CpuTime, cpu_time
from benchmarks.stage.sightings import Sightings
from simulator.resources import STATEFUL_SETS
from simulator.workloads import NAMESPACE as WORKLOADS
from tests.system.harness import Pace, System
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import WorkerProcess
from workers.configuration.process_settings import WorkerSettings
from workers.deployment_keys import new_keys

PLAN: Mapping[str, Any] = {
    "waitBeforePower": "0s",
    "retryInterval": "5s",
    "actDeadline": "15s",
    "offTimeout": "60s",
    "freeTimeout": "5m",
    "bootTimeout": "10m",
}
"""A template's defaults (`policy/fence/plan.py`), but that nothing is waited for before power-off, which is the user's choice."""

DATABASE = "database"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU time since each process began."""

    worker: CpuTime
    temporal: CpuTime
    simulator: CpuTime

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            worker=self.worker - other.worker,
            temporal=self.temporal - other.temporal,
            simulator=self.simulator - other.simulator,
        )

    @property
    def ours(self) -> float:
        """Of the worker, what it starts, and Temporal, in seconds."""
        return self.worker.total + self.temporal.total

    def as_json(self) -> dict[str, float]:
        """Seconds by process."""
        return {
            "worker": self.worker.itself,
            "workersChildren": self.worker.children,
            "temporal": self.temporal.total,
            "simulator": self.simulator.total,
        }


@dataclass(slots=True, kw_only=True)
class Stage:
    """What runs. `duration`: of the check, after which a node that is not Ready is fenced."""

    system: System
    temporal: TemporalServer
    worker: WorkerProcess
    sightings: Sightings
    duration: timedelta

    def spent(self) -> Spent:
        """CPU time up to now."""
        return spent(self.worker, self.temporal)

    def requests(self) -> Counter[str]:
        """How many requests nodewarden has made to the API server, such as `get nodes`, watches and lists included."""
        assert self.system.cluster.api is not None
        found = Counter[str]()
        for (agent, verb, resource), count in self.system.cluster.api.requests.counts.items():
            if agent.startswith("nodewarden/"):
                found[f"{verb} {resource}".strip()] += count
        return found


def spent(worker: WorkerProcess, temporal: TemporalServer) -> Spent:
    """CPU time up to now of a worker, its Temporal server, and of this process with what else it has started."""
    apart = (worker.pid, temporal.pid)
    return Spent(worker=cpu_time(worker.pid), temporal=cpu_time(temporal.pid), simulator=cpu_time(os.getpid(), without=apart))


@asynccontextmanager
async def stage(
    *,
    platform: str,
    nodes: int,
    zones: int = 3,
    pace: Pace,
    duration: timedelta,
    cap: int,
    min_healthy: str = "51%",
    members: int = 3,
    encrypted: bool = False,
) -> AsyncIterator[Stage]:
    """Everything started, the scanner looking, the workloads at rest. members: pods with a volume that one may write to.

    encrypted: with keys for what Temporal is told.
    """
    logging.getLogger("simulator").setLevel(logging.ERROR)  # its controllers say what they do for us
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewarden-bench-")))
        temporal = await stack.enter_async_context(TemporalServer(folder))
        keys = folder / "payload-keys"
        keys.write_text(new_keys())
        system = await stack.enter_async_context(
            System(
                folder / "system",
                temporal=temporal,
                nodes=nodes,
                zones=zones,
                pace=pace,
                platform=platform,
                settings=as_shipped() | ({"temporal": {"payload_keys_file": str(keys)}} if encrypted else {}),
            )
        )
        sightings = Sightings(system.cluster)
        worker = await system.start_worker()
        seconds = f"{duration.total_seconds():g}s"
        conditions = [{"type": "Ready", "status": status, "duration": seconds} for status in ("False", "Unknown")]
        await system.apply_policy(plan=PLAN, check={"unhealthyConditions": conditions, "minHealthy": min_healthy})
        await system.start_scanner(cap=cap)
        if members != 3:
            path = STATEFUL_SETS.path(DATABASE, namespace=WORKLOADS)
            await system.client.patch(path, {"spec": {"replicas": members}})
        await system.settled(seconds=60 + 5 * members)
        yield Stage(system=system, temporal=temporal, worker=worker, sightings=sightings, duration=duration)


def as_shipped() -> dict[str, Any]:
    """What of a worker's settings the tests change, as it is by default."""
    default = WorkerSettings()
    return {
        "worker": {
            "sticky_timeout": f"{default.sticky_timeout.total_seconds():g}s",
            "graceful_shutdown": f"{default.graceful_shutdown.total_seconds():g}s",
        }
    }
