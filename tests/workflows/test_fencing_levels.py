"""Levels of devices: the first whose devices are all proven off fences the node (Pacemaker's topology, S4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.fence.plan import FencingPlan, PowerDevice
from tests.workflows.fencing_run import parked, story, told
from tests.workflows.plans import BMC, PDUS
from tests.workflows.world import World, plan

PDU_A, PDU_B, _ = PDUS
LEVELS, ONE_SUPPLY, SUPPLIES_FIRST = ((BMC,), (PDU_A, PDU_B)), ((BMC,), (PDU_A,)), ((PDU_A, PDU_B), (BMC,))


def commands(*told: str) -> list[str]:
    """What the devices are told, by their first letters: off the BMC, on the supplies a and b."""
    names = {"bmc": BMC.endpoint, "a": PDU_A.endpoint, "b": PDU_B.endpoint}
    return [f"{act} {names[device]}" for act, device in (each.split() for each in told)]


def once(levels: tuple[tuple[PowerDevice, ...], ...]) -> FencingPlan:
    """Each is tried once."""
    return plan(levels=levels, tries=1, restarts=0)


OFF_AND_BACK = commands("off b", "off bmc", "on bmc", "on b")
"""Where the first of two supplies is dead."""

STORIES: dict[str, dict[str, Any]] = {
    "where the first level proves off the second is never touched": story(
        plan=plan(levels=LEVELS), leaves={"commands": commands("off bmc", "on bmc")}
    ),
    "S1, S2: a BMC that was told off and still says on has power from somewhere, whatever the PDU says": story(
        plan=once(ONE_SUPPLY), stuck={BMC.endpoint}, ends=None, says="ipmi://10.0.0.7:623 says on", freed=[]
    ),
    "S4: one supply of the last level is not enough": story(
        plan=once(LEVELS), silent={BMC.endpoint, PDU_B.endpoint}, ends=None, says=PDU_B.endpoint, freed=[]
    ),
    "S4: what is left of the last level is left alone: nothing is gained by cutting one supply of two": story(
        plan=once(((PDU_A, PDU_B),)), silent={PDU_A.endpoint}, ends=None, says=PDU_A.endpoint, leaves={"commands": []}
    ),
    "a level gets the time that its slowest device was given": story(
        plan=once(((replace(BMC, off_timeout=timedelta(seconds=90)),),)),
        stuck={BMC.endpoint},
        ends=None,
        says="not proven within 90 s",
    ),
    "S2: silence of a device of another level is no contradiction, however often it is read": story(
        plan=plan(levels=ONE_SUPPLY), silent={BMC.endpoint}, did={"taint": 1}, leaves={"commands": commands("off a", "on a")}
    ),
    "S4, S5: a supply that dies after its off does not keep the other one off; a person is told": story(
        plan=plan(levels=((PDU_A, PDU_B),)),
        enough=1,
        at="note-on",
        then={"silent": {PDU_A.endpoint}},
        did={"off": 2},
        order="off > off > on > event PartlySwitchedOn",
    ),
    "S1, S2: a silent BMC that comes back saying on takes the proof of the supplies away, and is switched off itself": story(
        plan=plan(levels=ONE_SUPPLY),
        silent={BMC.endpoint},
        at="event NodePoweredOff",
        then={"silent": set(), "ready": False},
        only="off > off > taint",
        # S6: an off that proves nothing any more has still taken the power away; without the supply the BMC starts nothing
        leaves={"commands": commands("off a", "off bmc", "on a", "on bmc")},
    ),
    "S1, S4: what feeds the machine beside a dead device is off as well, not to speak against the level that proves off": story(
        plan=once(SUPPLIES_FIRST), silent={PDU_A.endpoint}, leaves={"commands": OFF_AND_BACK}
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(env: WorkflowEnvironment, story: str) -> None:
    await told(env, **STORIES[story])


async def test_a_silent_bmc_is_followed_by_both_power_supplies_and_they_go_on_first(env: WorkflowEnvironment) -> None:
    """S3, S4: silence is never off; the proof is of all devices of the level that answered."""
    both = commands("off a", "off b", "on a", "on b")
    _, result = await told(env, plan=plan(levels=LEVELS), silent={BMC.endpoint}, freed=["taint"], leaves={"commands": both})
    assert {reading.endpoint for reading in result.off_proof.readings} == {PDU_A.endpoint, PDU_B.endpoint}


async def test_a_device_that_is_another_systems_ends_every_level(env: WorkflowEnvironment) -> None:
    """S9, S39: it says so of the machine, not of itself: the next level would be switched off as wrongly."""
    world = World(plan=once(ONE_SUPPLY), off_errors=[failure(ErrorType.TARGET_CHANGED, "it says that it is server-8")])
    status = await parked(env, world)
    assert "it says that it is server-8" in status.problem
    assert world.commands == []
