"""Workers come and go in ordinary life too: one of two is lost, then the other is told to stop in the middle of a power-off, and
then one is lost while nothing happens.

One system for both, in this order.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from policy.episode.messages import episode_id, scanner_id
from simulator.bmc.machine import Machine
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.witness import Before, PowerLog
from tests.system.worker_process import KillOrder, When, WorkerProcess
from workflows.kit import options
from workflows.scanner.story import AT_REST

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

VICTIM = "demo/database-0"
DRAINING = "stopping: running activities get time to end"
POWER_OFF = "power-management.power-off"
SCAN = "scan.observe-cluster"
WAIT = timedelta(seconds=4)
"""Of a scan, so that it soon rests."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4) as running:
        for _ in range(2):
            await running.start_worker()
        await running.apply_policy()
        await running.warden.start_scanner(running.cluster_name, wait=WAIT)
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


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_worker_that_is_lost_while_all_rests_is_missed_by_the_other_one(system: System, how: str) -> None:
    """By the cluster Lease, long before Temporal would miss it. One that goes on later takes it from no successor (S38)."""
    while sum(each.alive for each in system.workers) < 2:
        await system.start_worker()
    await system.settled()
    scanner = system.warden.client.get_workflow_handle(scanner_id(system.cluster_name))
    resting: list[WorkerProcess] = []

    async def rests() -> bool:
        status = await system.scanner()
        pending = (await scanner.describe()).raw_description.pending_activities
        who = {each.last_worker_identity.partition("@")[0] for each in pending if each.activity_type.name == SCAN}
        resting[:] = [each for each in system.workers if str(each.pid) in who]
        return status is not None and status.wait == AT_REST * WAIT and len(resting) == 1

    await system.until(rests, "its scan rests", seconds=40)
    (lost,) = resting
    known = await _reports(scanner)
    if how == "killed":
        await lost.kill()
    else:
        os.kill(lost.pid, signal.SIGSTOP)

    async def is_missed() -> bool:
        return await _reports(scanner) > known

    await system.until(is_missed, "the other worker misses its scan", seconds=options.LOST_REST.total_seconds() / 2)
    before = system.break_node(system.node_of_pod(VICTIM))
    result = await system.ended(before)
    assert await system.judge(before, result) == []
    if how == "frozen":
        lost.thaw()
        await system.until(rests, "its scan rests again", seconds=60)
        assert lost.alive


async def _reports(scanner: WorkflowHandle[Any, Any]) -> int:
    """How often its scan was reported as lost."""
    return len(
        [
            event
            async for event in scanner.fetch_history_events()
            if event.workflow_execution_signaled_event_attributes.signal_name == "scan_is_lost"
        ]
    )


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
