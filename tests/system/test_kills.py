"""The kill matrix: whatever is killed at whatever moment of a fencing, it ends `recovered`; nothing happens twice or too early.

The boundaries are read from the history of an undisturbed run, so a new activity in the story is killed here without anybody
having to think of it. Each row kills once, in an episode of its own; a few small systems take rows side by side, because nearly
all of a row's time is waiting: for the time-out by which Temporal notices a dead worker.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from policy.episode.messages import EpisodeResult, episode_id
from tests import report
from tests.system.fixtures import MakeSystem
from tests.system.harness import Pace, System
from tests.system.witness import Before, PowerLog
from tests.system.worker_process import KillOrder, When, WorkerProcess

pytestmark = [pytest.mark.system]

LANES = int(os.environ.get("NODEWARDEN_TEST_LANES", "6"))
ONLY = re.compile(os.environ.get("NODEWARDEN_TEST_KILLS", ""))
"""For a person who looks into one row: the others are left out."""

LANE_PACE = Pace(heartbeat=0.4, grace=1.5, boot=1.0)
"""Slower than the harness's: many small clusters share this process."""

VICTIM = "demo/database-0"
"""The pod whose node is broken: it has a single-writer volume."""

POLLS = frozenset({"power-management.read-power", "power-management.read-workload", "target.last-look"})
"""Repeated until something comes about: how often differs from run to run, so only the first of a series is a boundary."""

EVERY_KILL = bool(os.environ.get("NODEWARDEN_TEST_EVERY_KILL"))
"""For a night: both sides of every single activity."""

OPENING = "episodes.open"
"""The scanner's activity with which an episode begins; all others are the episode's own."""

TWICE = frozenset({OPENING})
"""Killed on both sides in every run. Of all else a kill before the effect is the easier half of the kill after it: nothing is
there yet that the next attempt could do twice. A command that was sent and not followed yet, and what befalls Temporal, is asked
in `test_chaos.py`."""

TITLE = "kill matrix: SIGKILL at every activity boundary of a fencing"
HEAD = ("killed", "at", "recovered", "off/on seen", "verdict")


@dataclass(slots=True, kw_only=True)
class Row:
    """One kill and what came of it; seconds count from the accident."""

    kill: str
    killed_at: float | None = None
    recovered_at: float | None = None
    offs: int = 0
    ons: int = 0
    problems: list[str] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        """As printed."""
        return (
            self.kill,
            "never" if self.killed_at is None else f"{self.killed_at:.1f} s",
            "never" if self.recovered_at is None else f"{self.recovered_at:.1f} s",
            f"{self.offs}/{self.ons}",
            "; ".join(self.problems) or "ok",
        )


class Lane:
    """One small system that takes one row after the other. `worker` is the one that is alive."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.worker: WorkerProcess

    async def prepare(self) -> None:
        """Everything that an accident needs to be noticed."""
        await self.start_worker()
        await self.system.apply_policy()
        await self.system.start_scanner()

    async def start_worker(self) -> None:
        self.worker = await self.system.start_worker()

    async def run(self, kill: Kill) -> Row:
        """Break the victim's node, let the kill happen, wait for the end, judge."""
        row = Row(kill=str(kill))
        await self.system.settled()
        before = await self._break(kill)
        try:
            async with kill.armed(self, before, row):
                result = await self.system.ended(before, seconds=120)
            await self._judge(row, before, result)
        except AssertionError as error:
            row.problems.append(str(error))
        if row.killed_at is None:
            row.problems.append("the moment never came")
        return row

    async def _break(self, kill: Kill) -> Before:
        node = self.system.node_of_pod(VICTIM)
        kill.arm(self)
        return self.system.break_node(node)

    async def _judge(self, row: Row, before: Before, result: EpisodeResult) -> None:
        power = PowerLog.of(self.system.cluster.chassis.machine(before.node), before)
        row.recovered_at = (result.ended - before.at).total_seconds()
        row.offs, row.ons = power.count("off"), power.count("on")
        row.problems += await self.system.judge(before, result)


class Kill:
    """The worker kills itself just before or after an activity, and another one is started. `arm` comes before the accident.

    takes_long: an act with one attempt is given up only when its whole time is over; begun last, it would keep all waiting.
    """

    def __init__(self, order: KillOrder) -> None:
        self._order = order
        self.takes_long = order.activity.endswith(("power-off", "power-on", "taint-out-of-service"))

    def __str__(self) -> str:
        return str(self._order)

    def arm(self, lane: Lane) -> None:
        lane.worker.obey(self._order)

    @asynccontextmanager
    async def armed(self, lane: Lane, before: Before, row: Row) -> AsyncIterator[None]:
        async def replace() -> None:
            await lane.worker.wait()
            row.killed_at = _since(before)
            await lane.start_worker()

        async with _meanwhile(replace()):
            yield
            lane.worker.forget_order()


@asynccontextmanager
async def _meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do this beside the block; what is not done when the block ends is dropped, what failed is raised."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()


def _since(before: Before) -> float:
    return (datetime.now(UTC) - before.at).total_seconds()


async def boundaries(system: System, before: Before) -> list[KillOrder]:
    """The sides of each activity that an undisturbed episode ran, in its order, from the opening on."""
    handle = system.warden.client.get_workflow_handle(episode_id(system.cluster_name, before.node))
    counts: dict[str, int] = {}
    activities = [(OPENING, 1)]
    after_timer = False
    async for event in handle.fetch_history_events():
        if event.HasField("timer_started_event_attributes"):
            after_timer = True
        if event.HasField("activity_task_scheduled_event_attributes"):
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            counts[name] = counts.get(name, 0) + 1
            after_timer = after_timer and name in POLLS
            if not after_timer and (EVERY_KILL or counts[name] == 1):
                activities.append((name, counts[name]))
    return [
        KillOrder(when=when, activity=name, occurrence=number)
        for name, number in activities
        for when in When
        if EVERY_KILL or when is When.AFTER or name in TWICE
    ]


@pytest.mark.timeout(600)
async def test_a_kill_at_any_boundary_changes_nothing_but_the_time(make_system: MakeSystem) -> None:
    """S1, S2, S33, S34, S35: recovered; one off and one on; no pod lost before the proof; no mark, lease or permit left."""
    began = datetime.now(UTC)
    # The reference runs alone, and before the other systems: its history says what there is to kill.
    lanes = [Lane(await make_system(nodes=3, cluster_name="lane-1", pace=LANE_PACE))]
    await lanes[0].prepare()
    orders = await reference_orders(lanes[0].system)
    more = [await make_system(nodes=3, cluster_name=f"lane-{number}", pace=LANE_PACE) for number in range(2, LANES + 1)]
    lanes += [Lane(system) for system in more]
    await asyncio.gather(*(lane.prepare() for lane in lanes[1:]))
    table = [kill for kill in map(Kill, orders) if ONLY.search(str(kill))]
    rows: dict[int, Row] = {}
    waiting = deque(sorted(table, key=lambda kill: not kill.takes_long))

    async def work(lane: Lane) -> None:
        while waiting:
            kill = waiting.popleft()
            rows[table.index(kill)] = row = await lane.run(kill)
            print(*row.cells(), flush=True)

    try:
        await asyncio.gather(*(work(lane) for lane in lanes))
    finally:
        report.table(TITLE, HEAD, [rows[number].cells() for number in sorted(rows)])
        seconds = (datetime.now(UTC) - began).total_seconds()
        report.say(TITLE, f"{len(rows)} kills in {seconds:.0f} s, {len(lanes)} systems side by side")
    assert {row.kill: row.problems for row in rows.values() if row.problems} == {}
    assert len(rows) == len(table)


async def reference_orders(system: System) -> list[KillOrder]:
    """Run an episode that nothing disturbs, hold it to the same standard, and read its boundaries."""
    await system.settled()
    before = system.break_node(system.node_of_pod(VICTIM))
    result = await system.ended(before)
    assert await system.judge(before, result) == []
    orders = await boundaries(system, before)
    steps = {
        "isolation.pin-target",
        "power-management.power-off",
        "power-management.power-on",
        "recovery.mark-schedulable",
    }
    assert steps <= {order.activity for order in orders}
    return orders
