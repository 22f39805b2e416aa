"""What one plain fencing costs: in Temporal's history, in CPU, in requests, and in time as the cluster sees it.

Everything is real but the cluster: a Temporal dev server and a worker as processes, the simulated API server over HTTP, machines
of a simulated Compute Engine or behind BMCs. Nodes under a database hang one after the other, and each is fenced until it works.
CPU is what the kernel has counted for the worker, all that it started, and Temporal, less what they use in the same time while
nothing happens; beside it stands what as many activities use that do nothing (`stage/floor.py`). Moments are the API server's
and the devices' own; each is counted from the node's deadline, which is a second after its condition's time-out
(`policy/values/times.py`).

    python -m benchmarks.episode [--platforms gce ipmi] [--fencings 10] [--pod-garbage 0.5] [--encrypted] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import mean
from typing import Any

from temporalio.client import Client

from benchmarks.stage import floor
from benchmarks.stage.figures import number, printed, table
from benchmarks.stage.histories import HistoryCost, history_cost
from benchmarks.stage.processes import cpu_time
from benchmarks.stage.running import DATABASE, Spent, Stage, stage
from benchmarks.stage.sightings import Sighting
from policy.episode.messages import EpisodeResult, Outcome, scanner_id
from simulator.workloads import NAMESPACE
from tests.system.harness import Pace
from tests.system.questions import episode
from tests.system.witness import judge as judged
from tests.system.witness import left_over

DURATION = timedelta(seconds=1)
NODES, ZONES = 4, 2
PATIENCE = 90.0
AFTERWARDS = 2.0
"""Seconds after an episode's end in which its node's check is written and the scanner hears of it, which takes a second."""

TARGETS: dict[str, str] = {
    "activities": "<= 16",
    "events": "<= 110",
    "history, KB": "<= 40",
    "CPU, s": "<= 0.25 gce, 0.45 ipmi",
}
MOMENTS = ("cordoned", "off", "freed", "in_service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """One fencing. spent: as the kernel counted it, with `seconds` how long that took; scanner_events: that it added to the
    scanner's history, None where that began anew meanwhile."""

    history: HistoryCost
    spent: Spent
    seconds: float
    requests: Counter[str]
    scanner_events: int | None
    after_deadline: dict[str, float | None]
    problems: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All fencings on one platform. idle: CPU of one second in which nothing happens, of the worker and of Temporal. floor: CPU
    of one fencing that does nothing."""

    platform: str
    fencings: Sequence[Fencing]
    idle_worker: float
    idle_temporal: float
    floor_worker: float
    floor_temporal: float

    def figures(self) -> dict[str, float | None]:
        """The averages, by the names that the table gives them."""
        each = self.fencings
        idle = mean(one.seconds for one in each)
        worker = mean(one.spent.worker.itself for one in each) - self.idle_worker * idle
        children = mean(one.spent.worker.children for one in each)
        temporal = mean(one.spent.temporal.total for one in each) - self.idle_temporal * idle
        scanner = [one.scanner_events for one in each if one.scanner_events is not None]
        found: dict[str, float | None] = {
            "activities": mean(one.history.activities for one in each),
            "workflow tasks": mean(one.history.workflow_tasks for one in each),
            "events": mean(one.history.events for one in each),
            "history, KB": mean(one.history.kilobytes for one in each),
            "events of the scanner": mean(scanner) if scanner else None,
            "requests to the API server": mean(one.requests.total() for one in each),
            "CPU, s": worker + children + temporal,
            "  of the worker": worker,
            "  of processes it started": children,
            "  of Temporal": temporal,
            "CPU of the bare floor, s": self.floor_worker + self.floor_temporal,
            "  of a bare worker": self.floor_worker,
            "  of Temporal for it": self.floor_temporal,
        }
        for moment in MOMENTS:
            seen = [after for one in each if (after := one.after_deadline[moment]) is not None]
            found[f"deadline to {moment.replace('_', ' ')}, s"] = mean(seen) if seen else None
        return found

    def by_activity(self) -> dict[str, float]:
        """How often each activity is asked for in one fencing, the most frequent first."""
        return _per_fencing([each.history.by_activity for each in self.fencings])

    def by_event(self) -> dict[str, float]:
        """How often each type of event is in the history of one fencing, the most frequent first."""
        return _per_fencing([each.history.by_event for each in self.fencings])

    def by_request(self) -> dict[str, float]:
        """How often each kind of request is made in one fencing, the most frequent first."""
        return _per_fencing([each.requests for each in self.fencings])

    @property
    def problems(self) -> list[str]:
        """Whatever was not as it should have been."""
        return [f"{self.platform}: {problem}" for each in self.fencings for problem in each.problems]


def _per_fencing(counts: Sequence[Counter[str]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return {name: count / len(counts) for name, count in total.most_common()}


async def measure(
    platform: str, *, fencings: int, pod_garbage: float, idle: float, warm_up: int = 1, encrypted: bool = False
) -> Measured:
    """Fence one node after the other, in one system; the first ones are not counted."""
    pace = Pace(pod_garbage=pod_garbage)
    async with stage(
        platform=platform, nodes=NODES, zones=ZONES, pace=pace, duration=DURATION, cap=1, encrypted=encrypted
    ) as running:
        for _ in range(warm_up):
            await _fence(running)
        rest = [await _at_rest(running, idle / 2)]
        found = [await _fence(running) for _ in range(fencings)]
        rest.append(await _at_rest(running, idle / 2))
        idle_temporal = sum(each.temporal.total for each in rest) / idle
        floor_worker, floor_temporal = await _floor(running, fencings, idle_temporal)
    return Measured(
        platform=platform,
        fencings=found,
        idle_worker=sum(each.worker.total for each in rest) / idle,
        idle_temporal=idle_temporal,
        floor_worker=floor_worker,
        floor_temporal=floor_temporal,
    )


async def _floor(running: Stage, fencings: int, idle_temporal: float) -> tuple[float, float]:
    """CPU seconds of one fencing that does nothing: of a worker without anything of ours, and of the same Temporal server."""
    client, loop = await Client.connect(running.temporal.address), asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="nodewarden-bench-") as folder:
        worker = await floor.start_worker(running.temporal.address, "default", Path(folder) / "floor.log")
        try:
            await floor.fence(client, 1)
            before, bare, began = running.spent().temporal.total, cpu_time(worker.pid).total, loop.time()
            await floor.fence(client, fencings)
            spent = running.spent().temporal.total - before - idle_temporal * (loop.time() - began)
            return (cpu_time(worker.pid).total - bare) / fencings, spent / fencings
        finally:
            worker.terminate()
            await worker.wait()


async def _at_rest(running: Stage, seconds: float) -> Spent:
    before = running.spent()
    await asyncio.sleep(seconds)
    return running.spent() - before


async def _fence(running: Stage) -> Fencing:
    system = running.system
    node = system.node_of_pod(f"{NAMESPACE}/{DATABASE}-0")
    scanner = system.warden.client.get_workflow_handle(scanner_id(system.cluster_name))
    told = await scanner.describe()
    loop = asyncio.get_running_loop()
    spent, requests, began = running.spent(), running.requests(), loop.time()
    before = system.break_node(node)
    seen = running.sightings.expect(before)
    # No status is asked for: the answering process would pay for it.
    await system.until(lambda: seen.cordoned is not None, f"{node} is cordoned", seconds=PATIENCE)
    result: EpisodeResult = await asyncio.wait_for(episode(system, node).result(), PATIENCE)
    await asyncio.sleep(AFTERWARDS)
    spent, requests, seconds = running.spent() - spent, running.requests() - requests, loop.time() - began
    told_now = await scanner.describe()
    same = told.run_id == told_now.run_id
    problems = judged(system.cluster, system.witness, before, result) + await left_over(system.cluster, before)
    if result.outcome is Outcome.RECOVERED:
        await system.settled(seconds=PATIENCE)
    return Fencing(
        history=await history_cost(system.warden.client, episode(system, node).id, since=before.at),
        spent=spent,
        seconds=seconds,
        requests=requests,
        scanner_events=told_now.history_length - told.history_length if same else None,
        after_deadline=_after_deadline(seen),
        problems=[f"{node}: {problem}" for problem in problems],
    )


def _after_deadline(seen: Sighting) -> dict[str, float | None]:
    deadline = seen.deadline(DURATION)
    moments = {name: getattr(seen, name) for name in MOMENTS}
    return {
        name: (moment - deadline).total_seconds() if moment is not None and deadline is not None else None
        for name, moment in moments.items()
    }


def show(measured: Sequence[Measured]) -> str:
    """The table for people."""
    columns = [each.figures() for each in measured]
    head = ["one plain fencing, average", *(each.platform for each in measured), "wanted"]
    rows = [
        [name, *(number(column[name], 0 if _is_a_count(name) else 2) for column in columns), TARGETS.get(name, "")]
        for name in columns[0]
    ]
    lines = [table(head, rows), ""]
    for each in measured:
        all_counts = (("activities", each.by_activity()), ("events", each.by_event()), ("requests", each.by_request()))
        for what, counts in all_counts:
            lines.append(f"{each.platform}, {what} of one: {', '.join(f'{name} {count:g}' for name, count in counts.items())}")
        idle = (each.idle_worker + each.idle_temporal) * 100
        lines.append(f"{each.platform}, taken off: {idle:.1f} % of a core, which worker and Temporal use while nothing happens")
    return "\n".join(lines)


def _is_a_count(name: str) -> bool:
    return not name.endswith(", s") and not name.startswith("  ")


def as_json(measured: Sequence[Measured]) -> dict[str, Any]:
    """The same for programs; seconds, kilobytes, counts."""
    return {
        each.platform: {
            "fencings": len(each.fencings),
            "average": {name.strip(): value for name, value in each.figures().items()},
            "activities": each.by_activity(),
            "events": each.by_event(),
            "requests": each.by_request(),
            "idleCores": {"worker": each.idle_worker, "temporal": each.idle_temporal},
            "problems": each.problems,
        }
        for each in measured
    }


async def _measure_all(options: argparse.Namespace) -> list[Measured]:
    return [
        await measure(
            platform,
            fencings=options.fencings,
            pod_garbage=options.pod_garbage,
            idle=options.idle,
            encrypted=options.encrypted,
        )
        for platform in options.platforms
    ]


def main() -> int:
    """Measure and print; 1 where a fencing was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.episode", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--platforms", nargs="+", default=["gce", "ipmi"], choices=("gce", "ipmi", "redfish", "aws"))
    parser.add_argument("--fencings", type=int, default=10, help="on each platform, one after the other, after one to warm up")
    parser.add_argument(
        "--pod-garbage",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="between two looks of the collector of pods of nodes that are out of service; 20 in a real cluster",
    )
    parser.add_argument(
        "--idle", type=float, default=20, metavar="SECONDS", help="in which nothing happens, half before, half after"
    )
    parser.add_argument("--encrypted", action="store_true", help="with keys for what Temporal is told")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = asyncio.run(_measure_all(options))
    print(printed(as_json(measured)) if options.json else show(measured))
    problems = [problem for each in measured for problem in each.problems]
    for problem in problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
