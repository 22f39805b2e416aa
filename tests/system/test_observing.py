"""What only observes touches nothing, at the last moment too; what it saw is recorded once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta

import pytest

from policy.episode.messages import Outcome
from policy.observation.spells import OBSERVATION, Ending, ObservationRecord, Spell
from policy.values.mode import Mode
from simulator.resources import NODES
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, is_open
from tests.system.worker_process import ROOT, KillOrder, When

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


async def nodewarden(system: System, *words: str) -> tuple[int, str]:
    """The code of a command as at a keyboard, and what it printed, with one space between words."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NODEWARDEN_", "KUBECONFIG"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "starter.cli", *words,
        env=environment | {"NODEWARDEN_CONFIG": str(system.config), "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, " ".join(printed.decode().split())


async def test_modes_are_set_shown_and_taken_back_by_commands(standing: Standing) -> None:
    async with standing() as system:
        await system.start_worker()
        await system.apply_policy()
        await system.start_scanner()
        name, labels = system.cluster_name, {"metadata": {"labels": {"rack": "r1"}}}
        await system.client.patch(NODES.path(NODE), labels)

        async def set_mode(*words: str) -> tuple[int, str]:
            return await nodewarden(system, "mode", *words, "--reason", "first rack")

        async def shown(*words: str) -> str:
            return (await nodewarden(system, "mode", *words))[1]

        assert await set_mode("set", "observe") == (0, f"{name}: the mode of all nodes is observe")
        armed = f"{name}: the mode of nodes with rack=r1 is repair; 1 other rule: see `nodewarden mode`"
        assert await set_mode("set", "repair", "-l", "rack=r1") == (0, armed)
        code, answer = await set_mode("set", "repair", "-l", "rack=r9")
        assert (code, answer.endswith("; no node has rack=r9 now")) == (0, True)
        assert (await shown()).count("it covers no node now") == 1
        found = json.loads(await shown("-o", "json"))
        assert {line["mode"]: NODE in line["nodes"] for line in found["nodes"]} == {"observe": False, "repair": True}
        assert [rule["selector"] for rule in found["idle"]] == ["rack=r9"]
        assert (await set_mode("unset", "-l", "rack=r1"))[0] == 0
        found = json.loads(await shown("-o", "json"))
        assert [line["mode"] for line in found["nodes"]] == ["observe"]
        known = "there are rules for all nodes; nodes with rack=r9"
        assert (await set_mode("unset", "-l", "rack=r2"))[1].endswith(f"no rule is for exactly these nodes: {known}")
        refused = {
            ("set", "bogus"): (2, "expected observe, cordon, drain or repair, got 'bogus'"),
            ("set", "repair", "-l", "rack in"): (3, "expected"),
            ("set", "repair", NODE, "-l", "rack=r1"): (3, "expected nodes by name or a selector, got both"),
            ("set", "repair", "node-77"): (4, "node-77: there is no such Node or Machine"),
        }
        for words, (code, said) in refused.items():
            ended, printed = await set_mode(*words)
            assert (ended, said in printed) == (code, True), printed
        assert json.loads(await shown("-o", "json"))["rules"] == found["rules"]


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
