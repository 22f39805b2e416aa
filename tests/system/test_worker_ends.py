"""Workers come and go in ordinary life too: one of two is lost, and then the other is told to stop in the middle of a power-off.

One system for both, in this order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from policy.episode.messages import episode_id
from simulator.bmc.machine import Machine
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.witness import Before, PowerLog
from tests.system.worker_process import KillOrder, When

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

VICTIM = "demo/database-0"
DRAINING = "stopping: running activities get time to end"
POWER_OFF = "power-management.power-off"


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4) as running:
        for _ in range(2):
            await running.start_worker()
        await running.apply_policy()
        await running.start_scanner()
        yield running


async def test_the_other_worker_goes_on_with_what_the_lost_one_had(system: System) -> None:
    """S33, S34: the survivor waits the lost act out, reads, and sends nothing twice; nobody starts anything by hand."""
    await system.settled()
    workers = system.workers
    for worker in workers:
        worker.obey(KillOrder(when=When.AFTER, activity=POWER_OFF))
    before = system.break_node(system.node_of_pod(VICTIM))
    await system.until(lambda: not all(worker.alive for worker in workers), "one of the workers is lost", seconds=30)
    (survivor,) = [worker for worker in workers if worker.alive]
    assert survivor.forget_order()
    result = await system.ended(before)
    assert await system.judge(before, result) == []
    assert survivor.alive


async def test_a_worker_told_to_stop_ends_its_power_off_first(system: System) -> None:
    """S33, S34: SIGTERM between the off and its answer; the act is reported and needs no waiting out, the next worker goes on."""
    await system.settled()
    (worker,) = [each for each in system.workers if each.alive]
    node = system.node_of_pod(VICTIM)
    struck = asyncio.Event()

    async def stop_now(machine: Machine, command: str) -> None:
        if command != "off" or struck.is_set():
            return
        struck.set()
        worker.terminate()
        await system.until(lambda: DRAINING in worker.log.read_text(), "the worker has heard SIGTERM", seconds=10)

    machine = system.cluster.chassis.machine(node)
    machine.after_set = stop_now
    before = system.break_node(node)
    await asyncio.wait_for(struck.wait(), 30)
    assert await worker.wait() == 0
    await system.start_worker()
    result = await system.ended(before)
    assert await system.judge(before, result) == []
    assert await _attempts(system, before, POWER_OFF) == ["started 1", "completed"]
    assert PowerLog.of(machine, before).count("off") == 1


async def _attempts(system: System, before: Before, activity: str) -> list[str]:
    """What history tells of each attempt at an activity of the node's last episode."""
    told: list[str] = []
    ours: set[int] = set()
    handle = system.warden.client.get_workflow_handle(episode_id(system.cluster_name, before.node))
    async for event in handle.fetch_history_events():
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity:
            ours.add(event.event_id)
        if _scheduled_by(event) in ours:
            name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_ACTIVITY_TASK_").lower()
            attempt = event.activity_task_started_event_attributes.attempt
            told.append(f"{name} {attempt}" if attempt else name)
    return told


def _scheduled_by(event: HistoryEvent) -> int:
    """The id of the event with which the activity of this event was scheduled; 0 where it is about none."""
    kinds = ("started", "completed", "failed", "timed_out", "canceled")
    return max(getattr(event, f"activity_task_{kind}_event_attributes").scheduled_event_id for kind in kinds)
