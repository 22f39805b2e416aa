"""The bare floor: what Temporal alone needs from an event in a long poll, over a scanner, to the first activity of each episode.

No cluster, no policy, no state: an activity that answers at a given moment, a workflow that starts one child per victim, and a
child with one activity that says when it began. What a real system takes beyond this is its own. Beside it a workflow of as
many activities as a fencing has, and whatever a real fencing costs more than this is its own.

    python -m benchmarks.stage.floor ADDRESS NAMESPACE      the worker, until it is ended
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from tests.system import mortal

QUEUE, ACTS = "floor", "floor-acts"
FENCING_ACTS, TOLD, ANSWERED = 20, 1_300, 400
"""A plain fencing's activities and those of the scanner for it, and how many bytes each is told and answers."""
AHEAD = timedelta(seconds=1.5)
"""So long before its moment a long poll is under way, as a scanner's is."""
TIME_OUT = timedelta(seconds=60)


@activity.defn
async def wait_for_event(at: float) -> float:
    """The long poll: it answers when something has happened. Seconds since the epoch."""
    await asyncio.sleep(max(0.0, at - time.time()))
    return at


@activity.defn
async def begin() -> float:
    """The first activity of an episode: when a worker began it."""
    return time.time()


@activity.defn
async def act(told: str) -> str:
    """Any act of a fencing: it does nothing."""
    return told[:ANSWERED]


@workflow.defn(sandboxed=False)
class FloorFencing:
    """As many activities as a fencing has, one after the other, on another task queue than its own. Outside the sandbox, as
    episodes are."""

    @workflow.run
    async def run(self) -> None:
        """Carry them out."""
        for _ in range(FENCING_ACTS):
            await workflow.execute_activity(act, "x" * TOLD, task_queue=ACTS, start_to_close_timeout=TIME_OUT)


@workflow.defn
class FloorEpisode:
    """One victim."""

    @workflow.run
    async def run(self) -> float:
        """Answers when its first activity began."""
        return await workflow.execute_activity(begin, start_to_close_timeout=TIME_OUT)


@workflow.defn
class FloorScanner:
    """Waits for one event and opens an episode for each victim."""

    @workflow.run
    async def run(self, at: float, victims: int) -> list[float]:
        """Answers how many seconds after the event the first activity of each victim began."""
        heard = await workflow.execute_activity(wait_for_event, at, start_to_close_timeout=TIME_OUT)
        begun = await asyncio.gather(*(workflow.execute_child_workflow(FloorEpisode.run) for _ in range(victims)))
        return [each - heard for each in begun]


async def delays(client: Client, *, rounds: int, victims: int) -> list[float]:
    """Seconds from each round's event to the first activity of each of its victims."""
    found: list[float] = []
    for number in range(rounds):
        at = datetime.now(UTC) + AHEAD
        identity = f"floor-{victims}-{number}-{at.timestamp()}"
        found += await client.execute_workflow(FloorScanner.run, args=[at.timestamp(), victims], id=identity, task_queue=QUEUE)
    return found


async def fence(client: Client, times: int) -> None:
    """So many fencings of the floor, one after the other."""
    for number in range(times):
        await client.execute_workflow(FloorFencing.run, id=f"floor-fencing-{number}", task_queue=QUEUE)


async def start_worker(address: str, namespace: str, log: Path) -> asyncio.subprocess.Process:
    """The floor's worker as a process of its own, which dies with us."""
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *mortal.command(sys.executable, "-m", __name__, address, namespace),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=Path(__file__).parents[2],
        )


async def main(address: str, namespace: str) -> None:
    """Serve."""
    client = await Client.connect(address, namespace=namespace)
    workflows = [FloorScanner, FloorEpisode, FloorFencing]
    stories = Worker(client, task_queue=QUEUE, workflows=workflows, activities=[wait_for_event, begin])
    await asyncio.gather(stories.run(), Worker(client, task_queue=ACTS, activities=[act]).run())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
