"""What only observes touches nothing, at the last moment too; what it saw is recorded once, whatever is killed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from policy.episode.messages import Outcome
from policy.observation.spells import OBSERVATION, Ending, ObservationRecord, Spell
from policy.values.mode import Mode
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, is_open
from tests.system.worker_process import KillOrder, When

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

WAIT = timedelta(seconds=9)
"""Before the machine is switched off."""
NODE = "node-2"


async def test_a_mode_that_is_taken_back_a_second_before_the_off_leaves_the_machine_on(standing: Standing) -> None:
    """S52: the mode is asked at the last look before each act, as a hold is."""
    async with standing() as system:
        await system.start_worker()
        await system.apply_policy(plan={"waitBeforePower": f"{WAIT.seconds}s"})
        await system.start_scanner()
        before = system.break_node(NODE)

        async def is_marked() -> bool:
            return bool((await system.live_node(NODE))["spec"].get("unschedulable"))

        await system.until(is_marked, "the node is cordoned")
        soon = before.at + WAIT - timedelta(seconds=2)  # the command takes a second: it is verified before the scanner takes it
        await system.until(lambda: datetime.now(UTC) >= soon, "a second is left")
        assert commands(system, NODE) == []
        await system.warden.scanner(system.cluster_name).set_mode("observe", who="ada", reason="taken back")
        assert commands(system, NODE) == []
        result = await system.ended(before)
        assert commands(system, NODE) == []
        assert result.off_proof is None
        assert result.outcome is not Outcome.RECOVERED
        assert "its mode is observe" in result.message


async def open_spells(system: System) -> list[Spell]:
    return [each for each in (await system.warden.scanner(system.cluster_name).spells()).spells if each.ended is None]


async def recorded(system: System) -> list[Spell]:
    """All records of spells, in the order of Temporal."""
    query = f"WorkflowType = '{OBSERVATION}' AND ExecutionStatus = 'Completed'"
    runs = [run async for run in system.warden.client.list_workflows(query)]
    of = system.warden.client.get_workflow_handle
    records = [await of(run.id, run_id=run.run_id, result_type=ObservationRecord).result() for run in runs]
    return [spell for record in records for spell in record.spells]


async def test_a_spell_is_recorded_once_though_the_worker_is_killed_while_it_lasts_and_while_it_is_recorded(
    standing: Standing,
) -> None:
    async with standing() as system:
        first = await system.start_worker()
        await system.apply_policy()
        await system.start_scanner(mode=Mode.OBSERVE)
        system.break_node(NODE, "kubelet-stops")

        async def has_spell() -> bool:
            return [each.node for each in await open_spells(system)] == [NODE]

        await system.until(has_spell, "the spell is open")
        await first.kill()
        second = await system.start_worker()
        second.obey(KillOrder(when=When.AFTER, activity="observations.record"))
        await system.until(has_spell, "the spell is open still", tolerate=True)
        system.cluster.heal_node(NODE)
        await system.until(lambda: not second.alive, "the worker is killed once the record is made", seconds=60)
        await system.start_worker()

        async def is_told() -> bool:
            return not (await system.warden.scanner(system.cluster_name).spells()).spells

        await system.until(is_told, "the scanner has nothing to record any more", seconds=60, tolerate=True)

        async def is_found() -> bool:
            return bool(await recorded(system))

        await system.until(is_found, "Temporal lists the record")
        (spell,) = await recorded(system)
        assert (spell.node, spell.ending, spell.mode) == (NODE, Ending.CAME_BACK, Mode.OBSERVE)
        assert commands(system, NODE) == []
        assert not await is_open(system, NODE)
