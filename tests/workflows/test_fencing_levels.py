"""Levels of devices: the first whose devices are all proven off fences the node (Pacemaker's topology, S4)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from policy.episodes import Outcome
from policy.plan import PowerDevice
from policy.power import PowerState
from tests.workflows.fencing_run import fencing
from tests.workflows.world import World, plan
from workflows.fencing import Fencing
from workflows.messages import AcknowledgeRequest

BMC = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
PDU_A = PowerDevice(driver="fence_apc_snmp", endpoint="fence_apc_snmp://pdu-a/7")
PDU_B = PowerDevice(driver="fence_apc_snmp", endpoint="fence_apc_snmp://pdu-b/7")
LEVELS = ((BMC,), (PDU_A, PDU_B))


async def test_where_the_first_level_proves_off_the_second_is_never_touched(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(levels=LEVELS))
    async with fencing(env, world) as run:
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.commands == [f"off {BMC.endpoint}", f"on {BMC.endpoint}"]


async def test_a_silent_bmc_is_followed_by_both_power_supplies_and_they_go_on_first(env: WorkflowEnvironment) -> None:
    """S3, S4: silence is never off; the proof is of all devices of the level that answered."""
    world = World(plan=plan(levels=LEVELS), silent={BMC.endpoint})
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.commands == [f"{act} {each.endpoint}" for act in ("off", "on") for each in (PDU_A, PDU_B)]
    assert result.off_proof is not None
    assert {reading.endpoint for reading in result.off_proof.readings} == {PDU_A.endpoint, PDU_B.endpoint}
    assert world.consequences()


async def test_a_device_of_another_level_that_says_on_contradicts_the_proof(env: WorkflowEnvironment) -> None:
    """S1, S2: a BMC that was told off and still says on has power from somewhere, whatever the PDU says."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,)), tries=1, restarts=0), stuck={BMC.endpoint})
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "ipmi://10.0.0.7:623 says on" in status.problem
        assert world.consequences() == []


async def test_one_supply_of_the_last_level_is_not_enough(env: WorkflowEnvironment) -> None:
    """S4."""
    world = World(plan=plan(levels=LEVELS, tries=1, restarts=0), silent={BMC.endpoint, PDU_B.endpoint})
    async with fencing(env, world) as run:
        status = await run.parked()
        assert PDU_B.endpoint in status.problem
        assert world.consequences() == []


async def test_a_level_gets_the_time_that_its_slowest_device_was_given(env: WorkflowEnvironment) -> None:
    patient = PowerDevice(driver="ipmi", endpoint=BMC.endpoint, off_timeout=timedelta(seconds=90))
    world = World(plan=plan(levels=((patient,),), tries=1, restarts=0), stuck={BMC.endpoint})
    async with fencing(env, world) as run:
        assert "not proven within 90 s" in (await run.parked()).problem


async def test_an_off_waits_its_delay_and_a_node_that_comes_back_meanwhile_is_left_alone(env: WorkflowEnvironment) -> None:
    """The delay of one of two that fence each other: who comes back first wins."""
    delayed = PowerDevice(driver="ipmi", endpoint=BMC.endpoint, delay=timedelta(minutes=10))
    world = World(plan=plan(levels=((delayed,),)))
    async with fencing(env, world) as run:
        await run.until(lambda status: "waits its delay" in status.doing)
        world.ready = True
        await run.tell(world.observation())
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.commands == []


async def test_a_dead_device_a_persons_word_and_a_machine_started_by_hand_end_recovered(env: WorkflowEnvironment) -> None:
    """S8, S35: the word is what the restart is counted from, where no off was ever carried out."""
    world = World(plan=plan(tries=1, restarts=0), silent={BMC.endpoint})
    async with fencing(env, world) as run:
        await run.parked()
        world.power[BMC.endpoint] = PowerState.OFF
        await run.handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(who="ada", reason="pulled both plugs"))
        await run.did("taint")
        await run.parked()  # its device can't switch it on again either
        world.power[BMC.endpoint], world.boot_id, world.ready = PowerState.ON, "boot-2", True
        await run.tell(world.observation())
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert not world.cordoned


async def test_a_silent_bmc_that_comes_back_saying_on_takes_the_proof_of_the_supplies_away(env: WorkflowEnvironment) -> None:
    """S1, S2: the PDU said off, but the machine has power. Nothing is freed before the BMC was switched off and says so, too."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,))), silent={BMC.endpoint})
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.silent.clear()
        world.ready = False
        world.gates["event NodePoweredOff"].set()
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.commands[:2] == [f"off {PDU_A.endpoint}", f"off {BMC.endpoint}"]
    assert world.acts.index("taint") > [at for at, act in enumerate(world.acts) if act == "off"][1]


async def test_a_bmc_that_stays_silent_takes_nothing_back(env: WorkflowEnvironment) -> None:
    """S2: silence of a device of another level is no contradiction, however often it is read."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,))), silent={BMC.endpoint})
    async with fencing(env, world) as run:
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.count("taint") == 1
    assert world.commands == [f"off {PDU_A.endpoint}", f"on {PDU_A.endpoint}"]


async def test_a_supply_that_dies_after_its_off_does_not_keep_the_other_one_off(env: WorkflowEnvironment) -> None:
    """S4, S5: both were switched off, and one supply is enough for a machine. Its return decides; a person is told."""
    world = World(plan=plan(levels=((PDU_A, PDU_B),)), enough=1)
    world.gates["note-on"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("note-on")
        world.silent.add(PDU_A.endpoint)
        world.gates["note-on"].set()
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert "event PartlySwitchedOn" in world.acts
    first_on = world.commands.index(f"on {PDU_B.endpoint}")
    assert {f"off {each.endpoint}" for each in (PDU_A, PDU_B)} == set(world.commands[:first_on])


async def test_a_person_is_asked_where_no_supply_can_be_switched_on(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(levels=((PDU_A, PDU_B),), tries=1), enough=1)
    world.gates["note-on"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("note-on")
        world.silent |= {PDU_A.endpoint, PDU_B.endpoint}
        world.gates["note-on"].set()
        assert "no answer" in (await run.parked()).problem
    assert not [each for each in world.commands if each.startswith("on ")]


async def test_what_was_switched_off_before_somebody_switched_it_on_is_switched_on_as_well(env: WorkflowEnvironment) -> None:
    """An off that proves nothing any more (S6) has still taken the power away: without the supply the BMC starts nothing."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,))), silent={BMC.endpoint})
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.silent.clear()
        world.gates["event NodePoweredOff"].set()
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.commands[-2:] == [f"on {PDU_A.endpoint}", f"on {BMC.endpoint}"]
