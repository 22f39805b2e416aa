"""What only observes touches nothing, at the last moment too; what it saw is recorded once, whatever is killed."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from policy.episode.messages import Outcome
from policy.history.spells import OBSERVATION, Ending, ObservationRecord, Spell
from policy.values.mode import Mode
from starter.errors import SilentError
from tests.system.fixtures import MakeSystem, Standing
from tests.system.harness import System
from tests.system.questions import commands, is_open
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import KillOrder, When

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

WAIT = timedelta(seconds=20)
"""Before the machine is switched off: longer than load delays what is said meanwhile."""
NODE = "node-2"
SICK = (NODE, "node-3")
RECORD = "observations.record"
WORKER, TEMPORAL, API = "worker", "Temporal", "API server"
VICTIMS = [(WORKER,), (TEMPORAL,), (API,)]
if os.environ.get("NODEWARDEN_TEST_EVERY_KILL"):
    VICTIMS += [(WORKER, TEMPORAL), (WORKER, API), (TEMPORAL, API), (WORKER, TEMPORAL, API)]


async def test_a_mode_that_is_taken_back_while_the_off_is_waited_for_leaves_the_machine_on(standing: Standing) -> None:
    """S52: the mode is asked at the last look before each act, as a hold is. What is said in the very second of the off is tried
    in `tests/cluster/acts/test_last_look.py`."""
    async with standing() as system:
        await system.start_worker()
        await system.apply_policy(plan={"waitBeforePower": f"{WAIT.seconds}s"})
        await system.start_scanner()
        before = system.break_node(NODE)
        episode = system.warden.episode(system.cluster_name, NODE)

        async def waits() -> bool:
            return (await episode.status()).doing == "waits before power-management"

        await system.until(waits, "only the wait is left", tolerate=True)
        assert (await system.live_node(NODE))["spec"].get("unschedulable")
        await system.warden.scanner(system.cluster_name).set_mode("observe", who="ada", reason="taken back")
        assert commands(system, NODE) == []
        result = await system.ended(before)
        assert commands(system, NODE) == []
        assert result.off_proof is None
        assert result.outcome is not Outcome.RECOVERED
        assert "its mode is observe" in result.message


# Spells --------------------------------------------------------------------------------------------------------------


class Watched:
    """A system in mode observe, and its spells."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.scanner = system.warden.scanner(system.cluster_name)

    async def spells(self) -> dict[str, Spell]:
        """Those that are not recorded yet, by node."""
        return {each.node: each for each in (await self.scanner.spells()).spells}

    async def has_spells(self, *nodes: str, held: str = "") -> dict[str, Spell]:
        """Wait until these are open, and held by that last."""

        async def are_open() -> bool:
            spells = await self.spells()
            codes = {each.held[-1].code for each in spells.values() if each.ended is None}
            return sorted(spells) == sorted(nodes) and codes <= ({held} if held else codes)

        await self.system.until(are_open, f"spells of {nodes}, held by {held or 'anything'}", seconds=60, tolerate=True)
        return await self.spells()

    async def records(self, count: int) -> list[ObservationRecord]:
        """All that Temporal lists, once there are so many; all of them have completed."""
        found: list[ObservationRecord] = []

        async def are_listed() -> bool:
            runs = [run async for run in self.system.warden.client.list_workflows(f"WorkflowType = '{OBSERVATION}'")]
            of = self.system.warden.client.get_workflow_handle
            found[:] = [await of(run.id, run_id=run.run_id, result_type=ObservationRecord).result() for run in runs]
            return len(found) >= count

        await self.system.until(are_listed, f"{count} records", tolerate=True)
        assert len({each.workflow_id for each in found}) == len(found)
        return found

    async def came_back(self, spell: Spell, then: Spell) -> None:
        """What was recorded is the spell that was open then, ended when the node was Ready again."""
        conditions = (await self.system.live_node(spell.node))["status"]["conditions"]
        (ready,) = (each["lastTransitionTime"] for each in conditions if each["type"] == "Ready")
        assert (spell.due, spell.since, spell.uid, spell.mode) == (then.due, then.since, then.uid, Mode.OBSERVE)
        assert (spell.ending, spell.ended) == (Ending.CAME_BACK, datetime.fromisoformat(ready)), spell.traces
        assert [each.code for each in spell.held[: len(then.held)]] == [each.code for each in then.held]
        assert all(each.until is not None for each in spell.held)


@asynccontextmanager
async def away(system: System, victims: Sequence[str]) -> AsyncIterator[None]:
    """They are killed; within the block they are away, after it they are back."""
    if WORKER in victims:
        await system.workers[-1].kill()
    if TEMPORAL in victims:
        await system.temporal.kill()
    if API in victims:
        await system.kill_api()
    yield
    if API in victims:
        await system.start_api()
    if TEMPORAL in victims:
        await system.temporal.start()
    if WORKER in victims:
        await system.start_worker()


@asynccontextmanager
async def killed_at(system: System, when: When, victims: Sequence[str]) -> AsyncIterator[None]:
    """What the block brings about is recorded; just before or just after that the victims are killed."""
    worker = system.workers[-1]
    worker.obey(KillOrder(when=when, activity=RECORD, freezes=True))
    yield
    await system.until(lambda: worker.obeyed, f"the worker stands still {when.value} {RECORD}", seconds=10)
    async with away(system, victims):
        if worker.alive:
            worker.thaw()


async def play(system: System, victims: Sequence[str]) -> None:
    """Kill at each step: open; held by another thing; over, not recorded; recorded, the scanner does not know; node-days due."""
    began = datetime.now(UTC)
    watched = Watched(system)
    await system.start_worker()
    await system.apply_policy()
    await system.start_scanner(mode=Mode.OBSERVE)
    for node in SICK:
        system.break_node(node, "kubelet-stops")
    opened = await watched.has_spells(*SICK)
    async with away(system, victims):
        await asyncio.sleep(0.5)
    assert {node: each.due for node, each in (await watched.has_spells(*SICK)).items()} == {
        node: each.due for node, each in opened.items()
    }
    await watched.scanner.pause(who="ada", reason="a look at the switch")
    held = await watched.has_spells(*SICK, held="Paused")
    async with away(system, victims):
        await asyncio.sleep(0.5)
    await watched.has_spells(*SICK, held="Paused")
    async with killed_at(system, When.BEFORE, victims):
        system.cluster.heal_node(SICK[0])
    await watched.has_spells(SICK[1])
    async with killed_at(system, When.AFTER, victims):
        system.cluster.heal_node(SICK[1])
    await watched.has_spells()
    async with killed_at(system, When.BEFORE, victims):
        stopping = asyncio.create_task(watched.scanner.stop(who="ada", reason="the end"))
    with suppress(SilentError):  # the worker may have been killed before it answered
        await stopping
    assert await watched.scanner.ended()
    records = await watched.records(3)
    ((days,),) = [each.days for each in records if each.days]
    assert 0 < days.seconds <= 6 * (datetime.now(UTC) - began).total_seconds()
    recorded = [spell for each in records for spell in each.spells]
    assert sorted(each.node for each in recorded) == list(SICK)
    for spell in recorded:
        assert spell.due == opened[spell.node].due
        await watched.came_back(spell, held[spell.node])
    assert [commands(system, node) for node in SICK] == [[], []]
    assert not any([await is_open(system, node) for node in SICK])


async def _shown(system: System, victims: Sequence[str]) -> None:
    try:
        await play(system, victims)
    except BaseException as error:
        error.add_note(f"killed: {', '.join(victims)}")
        await system.show_logs()
        raise


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def reset(system: System, workflow_id: str) -> None:
    """To the end of its first task."""
    handle = system.warden.client.get_workflow_handle(workflow_id)
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            break
    await system.warden.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=system.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=(await handle.describe()).run_id or ""),
            reason="test",
            request_id=uuid.uuid4().hex,
            workflow_task_finish_event_id=event.event_id,
        )
    )


async def outlive(system: System) -> None:
    """Its scanner is terminated, and the next one is reset."""
    watched = Watched(system)
    await system.start_worker()
    await system.apply_policy()
    await system.start_scanner(mode=Mode.OBSERVE)
    system.break_node(NODE, "kubelet-stops")
    opened = (await watched.has_spells(NODE))[NODE]
    await system.warden.client.get_workflow_handle(watched.scanner.workflow_id).terminate("an accident")
    await system.start_scanner(mode=Mode.OBSERVE)
    then = (await watched.has_spells(NODE))[NODE]
    assert then == replace(opened, held=then.held)
    await reset(system, watched.scanner.workflow_id)
    then = (await watched.has_spells(NODE))[NODE]
    assert then == replace(opened, held=then.held)
    system.cluster.heal_node(NODE)
    await watched.has_spells()
    ((spell,),) = [each.spells for each in await watched.records(1)]
    await watched.came_back(spell, opened)


async def test_each_spell_is_recorded_once_whatever_is_killed_at_each_step_and_whatever_becomes_of_the_scanner(
    make_system: MakeSystem, tmp_path: Path
) -> None:
    """With its content, and node-days too. Side by side: nearly all of it is waiting."""
    async with AsyncExitStack() as stack:
        lanes = []
        for victims in VICTIMS:
            mortal = await stack.enter_async_context(TemporalServer(_made(tmp_path / "-".join(victims))))
            lanes.append((await make_system(nodes=6, temporal=mortal), victims))
        await asyncio.gather(outlive(await make_system(nodes=6)), *(_shown(*lane) for lane in lanes))
