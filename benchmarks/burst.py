"""K of N nodes fail at once: how soon is each isolated, off, and back in service, and was anything done that must not be done?

Everything is real but the cluster: a Temporal dev server and one worker with its settings as shipped, and the simulated cluster
in this process; its machines boot in 5 s. The cap on permits and the health check's circuit breaker let all of them pass: speed
is what is measured. Half of the nodes hang in their kernels, on the others pods go on writing without control. Moments are the
API server's and the devices' own, each counted from the node's deadline: a second after its condition's time-out
(`policy/values/times.py`).

Ends with 1, and says which nodes, if one is not recovered, or is found guilty by the judge of the system's tests
(`tests/system/witness.py`: off more than once, freed before the proof, two writers, marks left); if a node was touched that is
well; if more were in hand than there are permits; or if a power-off reached its device when the last live reading of the Node
was older than its window.

    python -m benchmarks.burst [--bursts 50/60 200/210] [--thousand] [--platform gce] [--cap N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from benchmarks.stage.figures import Spread, number, printed, table
from benchmarks.stage.processes import resident_megabytes
from benchmarks.stage.running import DATABASE, Spent, Stage, stage
from benchmarks.stage.sightings import Sighting, Sightings
from simulator.cluster import SimulatedCluster
from simulator.objects import name_of, namespace_of, node_of
from simulator.workloads import NAMESPACE
from tests.system.harness import Pace
from tests.system.witness import Before, left_over
from tests.system.witness import judge as judged
from workflows.kit.options import ACT_WINDOW

BOOT = 5.0
FAULTS = ("kernel-hangs", "kubelet-stops")
NODES_PER_SECOND = 100
"""Heartbeats that the simulated API server is given: beyond that kubelets of larger clusters have them less often, up to the ten
seconds of real ones."""
ASKED_AT_ONCE = 20
MOMENTS = ("cordoned", "off", "freed", "in_service")
WANTED = {
    (50, "cordoned"): "P50 <= 2",
    (200, "cordoned"): "P50 <= 6",
    (1000, "cordoned"): "max <= 30",
    (1000, "in_service"): "max <= 90",
    (50, "in_service"): "P50 <= 12, P99 <= 16",
    (200, "in_service"): "P50 <= 22, P99 <= 35",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`broken` of `nodes` fail. cap: permits; members: pods with single-writer volumes; their nodes fail first; patience: seconds
    until all must be back."""

    broken: int
    nodes: int
    platform: str = "gce"
    cap: int
    members: int
    pace: Pace
    duration: timedelta = timedelta(seconds=5)
    patience: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One burst. spent: CPU from the first node's fall until the last episode's end, or until patience ended."""

    shape: Shape
    after_deadline: dict[str, Spread]
    deadlines: timedelta
    """Between the first and the last node's deadline."""
    passed_over: float | None
    """Seconds for which a node waited for its cordon while one with a later deadline had it; None where all had the same."""
    spent: Spent
    seconds: float
    most_in_hand: int
    oldest_look: timedelta | None
    worker_megabytes: float
    problems: list[str]

    def as_json(self) -> dict[str, Any]:
        """Seconds, megabytes, counts."""
        return {
            "broken": self.shape.broken,
            "nodes": self.shape.nodes,
            "platform": self.shape.platform,
            "cap": self.shape.cap,
            "members": self.shape.members,
            "afterDeadline": {name: spread.as_json() for name, spread in self.after_deadline.items()},
            "deadlinesWithin": self.deadlines.total_seconds(),
            "passedOver": self.passed_over,
            "cpu": self.spent.as_json(),
            "seconds": self.seconds,
            "mostInHand": self.most_in_hand,
            "oldestLook": self.oldest_look.total_seconds() if self.oldest_look is not None else None,
            "workerMegabytes": self.worker_megabytes,
            "problems": self.problems,
        }


async def burst(shape: Shape) -> Outcome:
    """Start it all, break the nodes in one moment, see them come back, and judge."""
    async with stage(
        platform=shape.platform,
        nodes=shape.nodes,
        pace=shape.pace,
        duration=shape.duration,
        cap=shape.cap,
        min_healthy="0%",
        members=shape.members,
    ) as running:
        loop = asyncio.get_running_loop()
        before, began = running.spent(), loop.time()
        befores = [_break(running, node, FAULTS[index % len(FAULTS)]) for index, node in enumerate(_victims(running, shape))]
        seen = [running.sightings.nodes[each.node] for each in befores]
        await _until_back(seen, shape.patience)
        results = await _judge_episodes(running, [each for each in seen if each.in_service is not None])
        spent, seconds = running.spent() - before, loop.time() - began
        ages = [age for _, age in running.sightings.look_ages() if age is not None]
        return Outcome(
            shape=shape,
            after_deadline={moment: Spread.of(_after_deadline(seen, moment, shape.duration)) for moment in MOMENTS},
            deadlines=_deadlines_within(seen, shape.duration),
            passed_over=passed_over([(deadline, each.cordoned) for each in seen if (deadline := each.deadline(shape.duration))]),
            spent=spent,
            seconds=seconds,
            most_in_hand=running.sightings.most_under_way,
            oldest_look=max(ages, default=None),
            worker_megabytes=resident_megabytes(running.worker.pid),
            problems=[*results, *broken_rules(running.system.cluster, running.sightings, cap=shape.cap)],
        )


def _victims(running: Stage, shape: Shape) -> list[str]:
    """Those with a database first: a burst in which nothing can be written twice proves nothing."""
    cluster = running.system.cluster
    members = [pod for pod in cluster.view.pods if namespace_of(pod) == NAMESPACE and name_of(pod).startswith(f"{DATABASE}-")]
    hosts = dict.fromkeys(node_of(pod) for pod in members)
    return list(dict.fromkeys([*hosts, *cluster.nodes]))[: shape.broken]


def _break(running: Stage, node: str, how: str) -> Before:
    before = running.system.break_node(node, how)
    running.sightings.expect(before)
    return before


async def _until_back(seen: Sequence[Sighting], patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            while any(each.in_service is None for each in seen):  # noqa: ASYNC110 - what is looked at is in this process
                await asyncio.sleep(0.1)
    except TimeoutError:
        return  # who is missing is named where it is judged


async def _judge_episodes(running: Stage, seen: Sequence[Sighting]) -> list[str]:
    """What is wrong with the fencing of each node that is back, beginning with its name."""
    slots = asyncio.Semaphore(ASKED_AT_ONCE)

    async def judge_one(each: Sighting) -> list[str]:
        async with slots:
            try:
                result = await running.system.ended(each.before, seconds=60)
            except AssertionError as error:
                return [f"its episode did not end: {error}"]
            found = judged(running.system.cluster, running.system.witness, each.before, result)
            return [*found, *await left_over(running.system.cluster, each.before)]

    problems = await asyncio.gather(*(judge_one(each) for each in seen))
    return [f"{each.node}: {problem}" for each, said in zip(seen, problems, strict=True) for problem in said]


def broken_rules(cluster: SimulatedCluster, sightings: Sightings, *, cap: int) -> list[str]:
    """What must not have happened, whatever we say of it ourselves, in sentences that name the node."""
    found = [f"{each.node}: not recovered: {_how_far(each)}" for each in sightings.nodes.values() if each.in_service is None]
    found += [f"two writers: {violation}" for violation in cluster.storage.violations]
    if (most := sightings.most_under_way) > cap:
        found.append(f"{most} nodes were in hand at once, and there were {cap} permits")
    for seen, age in sightings.look_ages():
        if age is None:
            found.append(f"{seen.node}: switched off without a live look at it")
        elif age > ACT_WINDOW:
            found.append(f"{seen.node}: switched off {age.total_seconds():.1f} s after the last live look at it")
    return [*found, *sightings.strangers]


def _how_far(seen: Sighting) -> str:
    moments = {"not Ready": seen.sick_since, "cordoned": seen.cordoned, "off": seen.off, "freed": seen.freed}
    return ", ".join(f"{what} {moment:%H:%M:%S}" for what, moment in moments.items() if moment is not None) or "never not Ready"


def _after_deadline(seen: Sequence[Sighting], moment: str, duration: timedelta) -> list[float]:
    found: list[float] = []
    for each in seen:
        at: datetime | None = getattr(each, moment)
        deadline = each.deadline(duration)
        if at is not None and deadline is not None:
            found.append((at - deadline).total_seconds())
    return found


def _deadlines_within(seen: Sequence[Sighting], duration: timedelta) -> timedelta:
    known = [deadline for each in seen if (deadline := each.deadline(duration)) is not None]
    return max(known) - min(known) if known else timedelta(0)


def passed_over(waits: Sequence[tuple[datetime, datetime | None]]) -> float | None:
    """Of pairs of deadline and cordon: the longest for which anybody waited after one with a later deadline was served."""
    acted = sorted((deadline, at) for deadline, at in waits if at is not None)
    longest: float | None = None
    served: datetime | None = None  # the earliest cordon of all nodes with a deadline later than this one
    for _, group in itertools.groupby(reversed(acted), key=lambda wait: wait[0]):
        cordons = [at for _, at in group]
        if served is not None:
            longest = max(longest or 0.0, (max(cordons) - served).total_seconds())
        served = min([*cordons, served] if served is not None else cordons)
    return longest


def show(outcome: Outcome) -> str:
    """The table for people."""
    shape = outcome.shape
    head = [
        f"{shape.broken} of {shape.nodes} at once, {shape.platform}, s after the deadline",
        "nodes",
        "P50",
        "P99",
        "max",
        "wanted",
    ]
    rows = [
        [
            moment.replace("_", " "),
            str(spread.count),
            *(number(value, 1) for value in (spread.median, spread.p99, spread.largest)),
            WANTED.get((shape.broken, moment), ""),
        ]
        for moment, spread in outcome.after_deadline.items()
    ]
    cpu, look = outcome.spent, outcome.oldest_look
    oldest = number(look.total_seconds() if look is not None else None, 1)
    lines = [
        table(head, rows),
        f"deadlines within {outcome.deadlines.total_seconds():.0f} s, passed over for at most {number(outcome.passed_over, 1)} s",
        f"at most {outcome.most_in_hand} in hand at once, {shape.cap} permits; oldest look acted upon {oldest} s",
        f"CPU in {outcome.seconds:.0f} s: {cpu.ours:.1f} s ({_by_whom(cpu)})",
        f"the worker's memory: {outcome.worker_megabytes:.0f} MB",
        *(f"PROBLEM {problem}" for problem in outcome.problems),
    ]
    return "\n".join(lines) + "\n"


def _by_whom(cpu: Spent) -> str:
    ours = f"worker {cpu.worker.itself:.1f}, its children {cpu.worker.children:.1f}, Temporal {cpu.temporal.total:.1f}"
    return f"{ours}; beside it the simulated cluster {cpu.simulator.total:.1f}"


def _shape(text: str, options: argparse.Namespace) -> Shape:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 0 < int(found[1]) <= int(found[2]):
        raise SystemExit(f"--bursts {text}: expected K/N such as 50/60, K at most N")
    broken, nodes = int(found[1]), int(found[2])
    heartbeat = min(max(nodes / NODES_PER_SECOND, 1.0), 10.0)
    return Shape(
        broken=broken,
        nodes=nodes,
        platform=options.platform,
        cap=options.cap or min(nodes, 1000),
        members=min(options.members, nodes),
        pace=Pace(heartbeat=heartbeat, grace=4 * heartbeat, boot=BOOT, pod_garbage=options.pod_garbage),
        patience=options.patience or 90 + broken * 1.5,
    )


def main() -> int:
    """Measure and print; 1 where a burst was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.burst", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--bursts", nargs="+", default=["50/60", "200/210"], metavar="K/N", help="K of N nodes, one after the other"
    )
    parser.add_argument("--thousand", action="store_true", help="also 1000 of 1050; needs minutes and some GB")
    parser.add_argument("--platform", default="gce", choices=("gce", "ipmi", "redfish", "aws"))
    parser.add_argument("--cap", type=int, help="permits (default: as many as nodes, at most 1000)")
    parser.add_argument("--members", type=int, default=12, help="pods with a volume that only one may write to")
    parser.add_argument(
        "--pod-garbage",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="between two looks of the collector of pods of nodes that are out of service; 20 in a real cluster",
    )
    parser.add_argument("--patience", type=float, metavar="SECONDS", help="until all must be back")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wanted = [*options.bursts, *(["1000/1050"] if options.thousand else [])]
    shapes = [_shape(each, options) for each in wanted]
    outcomes = []
    for shape in shapes:
        outcomes.append(asyncio.run(burst(shape)))
        if not options.json:
            print(show(outcomes[-1]), flush=True)
    if options.json:
        print(printed([each.as_json() for each in outcomes]))
    return 1 if any(each.problems for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
