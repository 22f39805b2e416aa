"""Levels of devices: the first whose devices are all proven off fences the node (Pacemaker's topology, S4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState
from tests.workflows.fencing_run import fenced, fencing, parked
from tests.workflows.world import World, plan

BMC = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
PDU_A = PowerDevice(driver="fence_apc_snmp", endpoint="fence_apc_snmp://pdu-a/7")
PDU_B = PowerDevice(driver="fence_apc_snmp", endpoint="fence_apc_snmp://pdu-b/7")
LEVELS = ((BMC,), (PDU_A, PDU_B))


async def test_where_the_first_level_proves_off_the_second_is_never_touched(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(levels=LEVELS))
    await fenced(env, world)
    assert world.commands == [f"off {BMC.endpoint}", f"on {BMC.endpoint}"]


async def test_a_silent_bmc_is_followed_by_both_power_supplies_and_they_go_on_first(env: WorkflowEnvironment) -> None:
    """S3, S4: silence is never off; the proof is of all devices of the level that answered."""
    world = World(plan=plan(levels=LEVELS), silent={BMC.endpoint})
    result = await fenced(env, world)
    assert world.commands == [f"{act} {each.endpoint}" for act in ("off", "on") for each in (PDU_A, PDU_B)]
    assert {reading.endpoint for reading in result.off_proof.readings} == {PDU_A.endpoint, PDU_B.endpoint}
    assert world.consequences


async def test_a_device_of_another_level_that_says_on_contradicts_the_proof(env: WorkflowEnvironment) -> None:
    """S1, S2: a BMC that was told off and still says on has power from somewhere, whatever the PDU says."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,)), tries=1, restarts=0), stuck={BMC.endpoint})
    status = await parked(env, world)
    assert "ipmi://10.0.0.7:623 says on" in status.problem
    assert world.consequences == []


async def test_one_supply_of_the_last_level_is_not_enough(env: WorkflowEnvironment) -> None:
    """S4."""
    world = World(plan=plan(levels=LEVELS, tries=1, restarts=0), silent={BMC.endpoint, PDU_B.endpoint})
    status = await parked(env, world)
    assert PDU_B.endpoint in status.problem
    assert world.consequences == []


async def test_a_level_gets_the_time_that_its_slowest_device_was_given(env: WorkflowEnvironment) -> None:
    patient = PowerDevice(driver="ipmi", endpoint=BMC.endpoint, off_timeout=timedelta(seconds=90))
    world = World(plan=plan(levels=((patient,),), tries=1, restarts=0), stuck={BMC.endpoint})
    assert "not proven within 90 s" in (await parked(env, world)).problem


async def test_an_off_waits_its_delay_and_a_node_that_comes_back_meanwhile_is_left_alone(env: WorkflowEnvironment) -> None:
    """The delay of one of two that fence each other: who comes back first wins."""
    delayed = PowerDevice(driver="ipmi", endpoint=BMC.endpoint, delay=timedelta(minutes=10))
    world = World(plan=plan(levels=((delayed,),)))
    async with fencing(env, world) as run:
        await run.until(lambda status: "waits its delay" in status.doing)
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.commands == []


async def test_a_dead_device_a_persons_word_and_a_machine_started_by_hand_end_recovered(env: WorkflowEnvironment) -> None:
    """S8, S35: the word is what the restart is counted from, where no off was ever carried out."""
    world = World(plan=plan(tries=1, restarts=0), silent={BMC.endpoint})
    async with fencing(env, world) as run:
        await run.parked()
        world.power[BMC.endpoint] = PowerState.OFF
        await run.acknowledge("pulled both plugs")
        await run.did("taint")
        await run.parked()  # its device can't switch it on again either
        world.power[BMC.endpoint], world.boot_id, world.ready = PowerState.ON, "boot-2", True
        await run.tell(world.observation())
        await run.result(Outcome.RECOVERED)
    assert not world.cordoned


async def test_a_silent_bmc_that_comes_back_saying_on_takes_the_proof_of_the_supplies_away(env: WorkflowEnvironment) -> None:
    """S1, S2: the PDU said off, but the machine has power. Nothing is freed before the BMC was switched off and says so, too."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,))), silent={BMC.endpoint})
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.silent.clear()
        world.ready = False
        await run.result(Outcome.RECOVERED)
    assert world.commands[:2] == [f"off {PDU_A.endpoint}", f"off {BMC.endpoint}"]
    assert world.acts.index("taint") > [at for at, act in enumerate(world.acts) if act == "off"][1]


async def test_a_bmc_that_stays_silent_takes_nothing_back(env: WorkflowEnvironment) -> None:
    """S2: silence of a device of another level is no contradiction, however often it is read."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,))), silent={BMC.endpoint})
    await fenced(env, world)
    assert world.count("taint") == 1
    assert world.commands == [f"off {PDU_A.endpoint}", f"on {PDU_A.endpoint}"]


async def test_a_supply_that_dies_after_its_off_does_not_keep_the_other_one_off(env: WorkflowEnvironment) -> None:
    """S4, S5: both were switched off, and one supply is enough for a machine. Its return decides; a person is told."""
    world = World(plan=plan(levels=((PDU_A, PDU_B),)), enough=1)
    async with fencing(env, world, at="note-on") as run:
        world.silent.add(PDU_A.endpoint)
        await run.result(Outcome.RECOVERED)
    assert "event PartlySwitchedOn" in world.acts
    first_on = world.commands.index(f"on {PDU_B.endpoint}")
    assert {f"off {each.endpoint}" for each in (PDU_A, PDU_B)} == set(world.commands[:first_on])


async def test_a_person_is_asked_where_no_supply_can_be_switched_on(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(levels=((PDU_A, PDU_B),), tries=1), enough=1)
    async with fencing(env, world, at="note-on") as run:
        world.silent |= {PDU_A.endpoint, PDU_B.endpoint}
        assert "no answer" in (await run.parked()).problem
    assert not [each for each in world.commands if each.startswith("on ")]


async def test_what_was_switched_off_before_somebody_switched_it_on_is_switched_on_as_well(env: WorkflowEnvironment) -> None:
    """An off that proves nothing any more (S6) has still taken the power away: without the supply the BMC starts nothing."""
    world = World(plan=plan(levels=((BMC,), (PDU_A,))), silent={BMC.endpoint})
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.silent.clear()
        await run.result(Outcome.RECOVERED)
    assert world.commands[-2:] == [f"on {PDU_A.endpoint}", f"on {BMC.endpoint}"]


SUPPLIES_FIRST = ((PDU_A, PDU_B), (BMC,))
OFF_AND_BACK = [f"off {PDU_B.endpoint}", f"off {BMC.endpoint}", f"on {BMC.endpoint}", f"on {PDU_B.endpoint}"]
"""Where the first of two supplies is dead."""


async def test_a_dead_device_of_a_level_leaves_none_of_the_others_on_against_the_next_level(env: WorkflowEnvironment) -> None:
    """S1, S4: the level can't prove off any more. What feeds the machine beside the dead one is switched off all the same, so
    that it does not say on against the level that proves off; and all that was switched off is switched on again."""
    world = World(plan=plan(levels=SUPPLIES_FIRST, tries=1, restarts=0), silent={PDU_A.endpoint})
    result = await fenced(env, world)
    assert world.commands == OFF_AND_BACK
    assert [reading.endpoint for reading in result.off_proof.readings] == [BMC.endpoint]


async def test_a_device_that_refuses_for_good_leaves_none_of_the_others_on(env: WorkflowEnvironment) -> None:
    """S1, S4: a password that is refused is about one device; its outlet carries nothing, as can be read."""
    world = World(plan=plan(levels=SUPPLIES_FIRST, tries=1, restarts=0), enough=2)
    world.power[PDU_A.endpoint] = PowerState.OFF
    world.off_errors.append(failure(ErrorType.UNAUTHORIZED, "this user may only read"))
    await fenced(env, world)
    assert world.commands[:2] == [f"off {PDU_B.endpoint}", f"off {BMC.endpoint}"]


async def test_a_device_that_refuses_for_good_and_says_on_contradicts_the_next_level(env: WorkflowEnvironment) -> None:
    """S1: one contradiction less is not none. Nothing is freed while a supply says that it feeds the machine."""
    world = World(plan=plan(levels=SUPPLIES_FIRST, tries=1, restarts=0))
    world.off_errors.append(failure(ErrorType.UNAUTHORIZED, "this user may only read"))
    async with fencing(env, world) as run:
        status = await run.parked()
        assert f"{PDU_A.endpoint} says on" in status.problem
        assert f"{PDU_B.endpoint} says off" in status.problem
        assert world.consequences == []
        await run.abort(power_on=True)
        await run.result(Outcome.ABORTED)
    assert world.commands == OFF_AND_BACK


async def test_a_slow_device_of_a_level_that_failed_gets_its_time(env: WorkflowEnvironment) -> None:
    """S2, S4: the next level is off at once; the supply of the level before it says so after its own time, not that of the
    next level."""
    slow = PowerDevice(driver="fence_apc_snmp", endpoint=PDU_B.endpoint, off_timeout=timedelta(seconds=60))
    world = World(plan=plan(levels=((PDU_A, slow), (BMC,)), tries=1, restarts=0), silent={PDU_A.endpoint}, stuck={slow.endpoint})
    async with fencing(env, world) as run:
        await run.did("off")
        world.off_due[slow.endpoint] = await env.get_current_time() + timedelta(seconds=20)
        await run.result(Outcome.RECOVERED)
    assert world.commands.count(f"off {slow.endpoint}") == 1


async def test_what_is_left_of_the_last_level_is_left_alone_and_a_mended_configuration_is_taken_over(
    env: WorkflowEnvironment,
) -> None:
    """S4, S9: no level follows that could prove off, so that nothing is gained by cutting one supply of two. What a person mends
    acts, since nothing was touched."""
    world = World(plan=plan(levels=((PDU_A, PDU_B),), tries=1, restarts=0), silent={PDU_A.endpoint})
    mended = PowerDevice(driver="fence_apc_snmp", endpoint="fence_apc_snmp://pdu-c/7")
    async with fencing(env, world) as run:
        assert PDU_A.endpoint in (await run.parked()).problem
        assert world.commands == []
        world.plan, world.power = (
            replace(world.plan, levels=((mended, PDU_B),)),
            {each.endpoint: PowerState.ON for each in (mended, PDU_B)},
        )
        await run.resume("the address is mended")
        await run.result(Outcome.RECOVERED)
    assert world.commands == [f"{act} {each.endpoint}" for act in ("off", "on") for each in (mended, PDU_B)]


async def test_an_abort_before_the_rest_of_a_failing_level_leaves_the_machine_alone(env: WorkflowEnvironment) -> None:
    """S20: each off has a look of its own, also those after a device that can't be commanded."""
    delayed = PowerDevice(driver="fence_apc_snmp", endpoint=PDU_B.endpoint, delay=timedelta(minutes=10))
    world = World(plan=plan(levels=((PDU_A, delayed), (BMC,))), silent={PDU_A.endpoint})
    async with fencing(env, world) as run:
        await run.until(lambda status: f"waits its delay before {PDU_B.endpoint}" in status.doing)
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert world.commands == []


async def test_a_node_that_comes_back_while_a_level_fails_gets_back_what_was_switched_off(env: WorkflowEnvironment) -> None:
    """S5, S20: the need is gone before the next level; only the supply that was switched off is owed to the machine."""
    delayed = PowerDevice(driver="ipmi", endpoint=BMC.endpoint, delay=timedelta(minutes=10))
    world = World(plan=plan(levels=((PDU_A, PDU_B), (delayed,))), silent={PDU_A.endpoint}, enough=1)
    async with fencing(env, world) as run:
        await run.until(lambda status: f"waits its delay before {BMC.endpoint}" in status.doing)
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.commands[0] == f"off {PDU_B.endpoint}"
    assert set(world.commands[1:]) == {f"on {PDU_B.endpoint}"}
    assert world.consequences == []


async def test_a_supply_of_a_level_that_failed_and_does_not_come_on_again_is_told(env: WorkflowEnvironment) -> None:
    """S5, S35: the machine is back by the level that proved it off, without one of its supplies. A person hears of it."""
    world = World(plan=plan(levels=SUPPLIES_FIRST), silent={PDU_A.endpoint}, enough=2)
    async with fencing(env, world, at="note-on") as run:
        world.silent.add(PDU_B.endpoint)
        await run.result(Outcome.RECOVERED)
    assert "PartlySwitchedOn" in world.warnings
