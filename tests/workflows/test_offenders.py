"""A machine that is repaired again and again: its episode says so, and asks a person where that is set."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts import search_attributes
from policy.episode.messages import Need, NeedKind, Outcome, Phase
from policy.history.offenders import FoundRepairs
from tests.workflows.fencing_run import fencing
from tests.workflows.remediation_run import FENCE, MINUTE, REBOOT, Play, Remediated
from tests.workflows.world import World, plan

UUID = "4c4c4544-0042-3510-8052-b7c04f565931"
OFFENCE = f"this machine (system UUID {UUID}) was repaired 3 times within 28 days: as node-7 2 times, node-9 1 time"
TOLD = FoundRepairs(offence=OFFENCE)
ASKED = FoundRepairs(offence=OFFENCE, asks=True)
CHOICE = f"{OFFENCE}; `resume` switches it on, `abort` leaves it off"


def offender(repairs: FoundRepairs = ASKED, **changes: Any) -> World:
    """A node whose machine is one."""
    return World(plan=plan(), system_uuid=UUID, repairs=repairs, **changes)


def told_of(world: World) -> list[str]:
    """What its Events say of that."""
    return [event.message for event in world.events if event.reason == "RepeatedRepairs"]


async def test_tell_has_the_record_and_an_event_say_so_and_the_repair_goes_on(env: WorkflowEnvironment) -> None:
    world = offender(TOLD)
    async with fencing(env, world) as run:
        result = await run.result(Outcome.RECOVERED)
        found = (await run.handle.describe()).typed_search_attributes
    assert [(each.outcome, each.detail) for each in result.record if each.act == "repairs"] == [("offender", OFFENCE)]
    assert told_of(world) == [OFFENCE]
    assert found.get(search_attributes.HARDWARE) == UUID


async def test_s17_ask_has_a_person_decide_before_the_machine_is_switched_on(env: WorkflowEnvironment) -> None:
    """It is off and its pods are freed by then; the answer holds for the whole episode. No circuit breaker asks this."""
    world = offender()
    async with fencing(env, world, parks=True) as run:
        status = await run.status()
        assert status.problem == CHOICE
        assert status.off_proof is not None
        assert (world.count("on"), world.pods) == (0, 0)
        await run.did("event RepeatedRepairs")
        await run.resume("its power supply was replaced")
        result = await run.result(Outcome.RECOVERED)
    assert world.count("event NeedsHuman") == 1
    assert result.restart_proof is not None


async def test_ask_leaves_the_machine_off_where_a_person_aborts(env: WorkflowEnvironment) -> None:
    world = offender()
    async with fencing(env, world, parks=True) as run:
        await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert result.left_off
    assert world.count("on") == 0


async def test_a_person_who_has_asked_for_the_fencing_is_not_asked_about_it(env: WorkflowEnvironment) -> None:
    world = offender(need=Need(kind=NeedKind.PERSON, reason="drill"))
    async with fencing(env, world) as run:
        await run.result(Outcome.RECOVERED)
    assert told_of(world) == [OFFENCE]


async def test_s37_a_visibility_that_cannot_be_asked_holds_up_nothing_and_the_record_says_so(env: WorkflowEnvironment) -> None:
    """S17: what switches on again is not blocked."""
    world = offender(FoundRepairs(problem="visibility is away"))
    async with fencing(env, world) as run:
        result = await run.result(Outcome.RECOVERED)
    assert [(each.outcome, each.detail) for each in result.record if each.act == "repairs"] == [
        ("not known", "visibility is away")
    ]
    assert told_of(world) == []


async def test_a_node_that_was_well_before_anything_was_done_is_no_repair(env: WorkflowEnvironment) -> None:
    world = offender(ready=True)
    async with fencing(env, world) as run:
        await run.result(Outcome.RECOVERED)
        found = (await run.handle.describe()).typed_search_attributes
    assert found.get(search_attributes.HARDWARE) is None
    assert told_of(world) == []


async def test_an_offender_that_a_plan_leaves_off_is_said_at_the_end(env: WorkflowEnvironment) -> None:
    world = offender(ready=False)
    world.plan = plan(power_on=False)
    async with fencing(env, world) as run:
        await run.result(Outcome.FENCED_OFF)
    assert told_of(world) == [OFFENCE]


@pytest.mark.parametrize("ladder", [(REBOOT, FENCE), (FENCE,)], ids=["reboot", "fence"])
def test_a_ladder_begins_no_further_step_before_a_person_has_answered(ladder: Any) -> None:
    """The next step would switch it on all the same."""
    world = Remediated(ladder=ladder, node=offender(), has_machine=False)
    with Play(world) as play:
        assert play.parked().problem == CHOICE
        play.skip(10 * MINUTE)
        play.roll()
        play.skip(10 * MINUTE)
        assert play.status().phase is Phase.NEEDS_HUMAN
        assert not [each for each in world.node.commands if each.startswith("on ")]
        play.resume()
        record = play.result(Outcome.RECOVERED).record
    assert world.node.count("event NeedsHuman") == 1
    assert not [each for each in record if (each.act, each.outcome) == ("step", "failed")]
