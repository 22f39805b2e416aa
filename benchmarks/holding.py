"""What machines that are kept cost while nothing happens: in a scanner's memory, and as open workflows of one worker.

The scanner's side is pure computation: a report with N machines on hold that are as they should be, and the change of one of
them; a small and a large N in the same run show whether anything walks over them. The workers' side is a real Temporal server on
the loopback, a worker with an activity that answers that the machine is kept for 72 hours, and N open preservations: threads
and tasks of the worker's process before and after, its memory, and its CPU while it idles.

    python -m benchmarks.holding [--held 10000] [--open 10000] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import sys
import threading
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio import activity
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.contracts import search_attributes
from activities.contracts.evidence import Collected, CollectRequest, Sealed, SealRequest
from activities.contracts.preservation import Hold, HoldRequest
from activities.contracts.target import PublishRequest
from policy.episode.messages import episode_id
from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, Condition, NodeView
from policy.preservation.machine_snapshot import (
    BY_A_USER,
    CONDITION,
    KEPT_ON_REQUEST,
    PRIORITY_ANNOTATION,
    PRIORITY_OURS,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
)
from policy.preservation.preservation_index import PreservationIndex
from policy.preservation.requests import LAST_APPLIED_ANNOTATION
from policy.values.machine_apis import MCM
from policy.values.object_refs import ObjectRef
from workers.plugin import PLUGIN
from workflows.definitions.episodes import Preservation
from workflows.episode.state import PreservationHistory
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EXPIRY = NOW + timedelta(hours=72)
SMALL = 100
CLUSTER = "bench"
AT_ONCE = 50


def held(number: int, book: PreservationIndex, *, note: str = "") -> None:
    """One machine that is kept on request, with everything written."""
    stamp = EXPIRY.strftime("%Y-%m-%dT%H:%M:%SZ")
    said = Condition(type=CONDITION, status="True", reason=BY_A_USER, message=f"Machine preserved until {stamp}.")
    words = {PRESERVE_ANNOTATION: "now", SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_OURS: "true", "note": note}
    name = f"node-{number:05d}"
    book.put_node(NodeView(name=name, uid=f"uid-{number}", annotations=words, conditions=(said,)))
    machine = MachineView(
        api=MCM,
        name=f"m-{number}",
        namespace="shoot",
        node_name=name,
        phase="Running",
        controller="MachineSet/set",
        expiry=EXPIRY,
        annotations={LAST_APPLIED_ANNOTATION: "now", PRIORITY_ANNOTATION: KEPT_ON_REQUEST, PRIORITY_OURS: KEPT_ON_REQUEST},
    )
    ref = ObjectRef(api_version="machine.sapcloud.io/v1alpha1", kind="Machine", name=machine.name, namespace="shoot")
    book.put_machine(ref, machine, NOW)


def of_the_scanner(count: int) -> tuple[float, float, float]:
    """Microseconds of a report and of one machine's change up to the report; megabytes that the machines take."""
    gc.collect()
    tracemalloc.start()
    book = PreservationIndex()
    for number in range(count):
        held(number, book)
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    book.needs(NOW, lambda _: "")
    reports, changes = [], []
    for turn in range(200):
        start = time.perf_counter()
        needs, _ = book.needs(NOW, lambda _: "")
        reports.append(time.perf_counter() - start)
        assert not needs
        start = time.perf_counter()
        held(turn % count, book, note=str(turn))
        book.needs(NOW, lambda _: "")
        changes.append(time.perf_counter() - start)
    return statistics.median(reports) * 1e6, statistics.median(changes) * 1e6, megabytes


@activity.defn(name="preservation.hold")
async def hold(request: HoldRequest) -> Hold:
    """It is kept, and nothing has to be written."""
    now = datetime.now(UTC)
    return Hold(at=now, phase="Running:Preserved", preserved=True, expiry=now + timedelta(hours=72), machine_uid=request.node)


@activity.defn(name="evidence.collect")
async def collect(request: CollectRequest) -> Collected:  # noqa: ARG001 - whatever is asked for
    """There is a directory, and nothing worth keeping."""
    return Collected()


@activity.defn(name="evidence.seal")
async def seal(request: SealRequest) -> Sealed:
    """Written."""
    return Sealed(path=f"/evidence/{request.bundle.node}", sha256="0" * 64, files=0, size=0)


@activity.defn(name="target.publish")
async def tell(request: PublishRequest) -> None:
    """Told."""


async def of_the_worker(count: int, seconds: float) -> None:
    """Open so many, and look at the process while they wait."""
    temporal = str(Path(sys.executable).with_name("temporal"))
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal, plugins=[PLUGIN], search_attributes=search_attributes.ALL
    ) as env:
        workflows = Worker(env.client, task_queue=WORKFLOW_QUEUE, workflows=[Preservation])
        acts = Worker(env.client, task_queue=cluster_queue(CLUSTER), activities=[hold, collect, seal, tell])
        async with workflows, acts:
            await asyncio.sleep(2)
            before = _process(), await _idle(seconds)
            start = time.perf_counter()
            await _open(env.client, count)
            opened = time.perf_counter() - start
            await asyncio.sleep(3)
            after = _process(), await _idle(seconds)
    print(f"\n{count} open preservations, opened in {opened:.0f} s; one worker's process, idle for {seconds:g} s")
    print(f"{'':34}{'before':>12}{'with them':>14}")
    for title, index in (("threads", 0), ("asyncio tasks", 1), ("memory, MB", 2)):
        print(f"{title:34}{before[0][index]:12.0f}{after[0][index]:14.0f}")
    print(f"{'CPU, ms per second':34}{before[1]:12.1f}{after[1]:14.1f}")


async def _open(client: Client, count: int) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        node = f"node-{number:05d}"
        request = PreservationHistory(cluster=CLUSTER, node=node, keep=False, holder="bench")
        async with room:
            handle = await client.start_workflow(
                Preservation.run, request, id=episode_id(CLUSTER, node), task_queue=WORKFLOW_QUEUE
            )
            while (await handle.query(Preservation.status)).waiting_until is None:  # noqa: ASYNC110 - there is nothing to wait on
                await asyncio.sleep(1)  # a question costs more than the answer: one that is not cached is told its whole story

    await asyncio.gather(*(one(number) for number in range(count)))


def _process() -> tuple[int, int, float]:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 1e6
    return threading.active_count(), len(asyncio.all_tasks()), resident


async def _idle(seconds: float) -> float:
    """CPU milliseconds per second of this process while no request comes in."""
    start = time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - start) * 1000 / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held", type=int, default=10_000)
    parser.add_argument("--open", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    small, large = of_the_scanner(SMALL), of_the_scanner(options.held)
    print(f"{'':34}{SMALL:>8} held{options.held:>16} held   ratio")
    for title, index in (("a report, us", 0), ("one machine's change, us", 1)):
        print(f"{title:34}{small[index]:13.1f}{large[index]:21.1f}{large[index] / small[index]:8.1f}")
    print(f"{'memory, MB':34}{small[2]:13.1f}{large[2]:21.1f}")
    asyncio.run(of_the_worker(options.open, options.seconds))


if __name__ == "__main__":
    main()
