"""The truth about power: what is logged, what devices are told, and how another process steers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine, PowerCommand, RefusedError


@pytest.fixture
async def chassis() -> AsyncIterator[Chassis]:
    async with Chassis() as running:
        yield running


@pytest.fixture
async def http(chassis: Chassis) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(chassis.url) as session:
        yield session


async def test_listeners_hear_what_took_effect_and_nothing_else() -> None:
    machine = Machine("node-1")
    heard: list[PowerCommand] = []
    machine.on_change(heard.append)
    await machine.set_power("on", "pdu")
    machine.set_faults(ignore_off=True)
    await machine.set_power("off", "pdu")
    machine.set_faults()
    await machine.reset("pdu")
    await machine.set_power("off", "pdu")
    await machine.pulse_nmi("pdu")
    assert [entry.command for entry in heard] == ["reset", "off", "nmi"]
    assert [entry.outcome for entry in machine.log] == ["done", "ignored", "done", "done", "done"]


async def test_what_hangs_is_dropped_undone_when_the_fault_is_cleared() -> None:
    machine = Machine("node-1")
    machine.set_faults(hang=True)
    command = asyncio.create_task(machine.set_power("off", "ipmi_sim"))
    await asyncio.sleep(0)
    machine.set_faults()
    with pytest.raises(RefusedError):
        await command
    assert machine.power == "on"
    assert machine.log == []


async def test_another_process_puts_faults_in_force_and_mends_them(chassis: Chassis, http: aiohttp.ClientSession) -> None:
    chassis.machine("node-1")
    async with http.put("/machines/node-1/faults", json={"refuse": True}) as answer:
        assert (await answer.json())["refuse"] is True
    async with http.put("/machines/node-1/power", params={"device": "pdu"}, json={"power": "off"}) as answer:
        assert answer.status == 503
    async with http.put("/machines/node-1/faults", json={}) as answer:
        assert (await answer.json())["refuse"] is False
    async with http.get("/machines") as answer:
        assert await answer.json() == {"node-1": "on"}
    async with http.get("/machines/node-1/log") as answer:
        log = await answer.json()
    assert [(entry["device"], entry["command"], entry["outcome"]) for entry in log["commands"]] == [("pdu", "off", "refused")]


async def test_a_command_whose_answer_is_lost_is_carried_out_and_questions_are_answered(
    chassis: Chassis, http: aiohttp.ClientSession
) -> None:
    machine = chassis.machine("node-1")
    machine.set_faults(lose_answers=True)
    command = asyncio.create_task(http.put("/machines/node-1/power", params={"device": "redfish"}, json={"power": "off"}))
    async with asyncio.timeout(5):
        await machine.wait_for("off")
    async with http.get("/machines/node-1/power", params={"device": "redfish"}) as answer:
        assert await answer.json() == {"power": "off"}
    async with http.put("/machines/node-1/power", json={"power": "on"}) as answer:
        assert answer.status == 200, "a hand at the switch hears of nothing that a device loses"
    assert not command.done()
    machine.set_faults()
    assert (await command).status == 503
    assert [(entry.command, entry.outcome) for entry in machine.log] == [("off", "done"), ("on", "done")]
