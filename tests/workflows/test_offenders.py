"""A machine that is repaired again and again: its episode says so, and asks a person where that is set."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts import search_attributes
from policy.episode.messages import Need, NeedKind, Outcome, Phase
from policy.fence.plan import CORDON
from policy.fence.power import PowerState
from policy.history.offenders import NO_REPAIRS, FoundRepairs
from policy.values.mode import Mode
from tests.workflows.fencing_run import fencing
from tests.workflows.plans import BACK, CUT, DRAIN
from tests.workflows.remediation_run import DELETE, FENCE, MINUTE, OWNER, REBOOT, SELF, Play, Remediated
from tests.workflows.surroundings import asked_until, let_pass
from tests.workflows.world import World, plan

UUID = "4c4c4544-0042-3510-8052-b7c04f565931"
OFFENCE = f"this machine (system UUID {UUID}) was repaired 3 times within 28 days: as node-7 2 times, node-9 1 time"
TOLD = FoundRepairs(offence=OFFENCE)
ASKED = FoundRepairs(offence=OFFENCE, asks=True)
KEPT = FoundRepairs(offence=OFFENCE, asks=True, keeps=True)
CHOICE = f"{OFFENCE}; `resume` switches it on, `abort` leaves it off"


def offender(repairs: FoundRepairs = ASKED, **changes: Any) -> World:
    """A node whose machine is one."""
    return World(plan=plan(), system_uuid=UUID, repairs=repairs, **changes)


def switched_on_by_hand(world: World) -> None:
    """And the node is back, by a new boot."""
    world.power = dict.fromkeys(world.power, PowerState.ON)
    world.boot_id, world.ready = "boot-by-hand", True


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


# Kept until a person answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"terminate_instance": True}, {"power_on": False}, {"delete_node": True}], ids=str)
async def test_s53_a_kept_machine_is_fenced_and_comes_back_by_a_persons_answer_only(
    changes: dict[str, bool], env: WorkflowEnvironment
) -> None:
    """S53: whatever its plan would do next; also where another party has switched it on meanwhile."""
    world = offender(KEPT)
    world.plan = plan(**changes)
    async with fencing(env, world, parks=True) as run:
        status = await run.status()
        assert status.problem == KEPT.question
        assert "kept for a person" in status.problem
        assert status.off_proof is not None
        assert (world.pods, world.unschedulable) == (0, True)
        switched_on_by_hand(world)
        await run.tell(world.seen_node())
        await let_pass(env, run.handle, timedelta(hours=1))
        status = await run.status()
        assert (status.phase, world.unschedulable) == (Phase.NEEDS_HUMAN, True)
        assert not {"on", "terminate", "delete-node"} & {*world.acts}
        await run.resume("its power supply was replaced")
        result = await run.result(Outcome.RECOVERED)
    assert not world.unschedulable
    assert "terminate" not in world.acts
    assert result.restart_proof is not None


DOUBTFUL = FoundRepairs(problem="no answer in time", asks=True, keeps=True)


@pytest.mark.parametrize(("known", "parks"), [(NO_REPAIRS, False), (KEPT, True), (DOUBTFUL, True)])
async def test_s53_while_it_is_not_known_whether_it_offends_it_stays_off(
    known: FoundRepairs, parks: bool, env: WorkflowEnvironment
) -> None:
    """A slow answer is waited for; one that does not come within a minute is a person's case."""
    world = offender(DOUBTFUL)
    async with fencing(env, world) as run:
        await run.until(lambda status: "how often the machine was repaired" in status.doing)
        assert (world.count("on"), world.pods) == (0, 0)
        world.repairs = known
        if not parks:
            await run.result(Outcome.RECOVERED)
            return
        status = await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN)
        assert status.problem == known.question
        assert world.count("on") == 0
        await run.resume("it is a new one")
        await run.result(Outcome.RECOVERED)


async def test_s53_an_abort_leaves_a_kept_machine_off_and_a_cancellation_ends_nothing(env: WorkflowEnvironment) -> None:
    """S21: any client of Temporal can cancel, without a name."""
    world = offender(KEPT)
    async with fencing(env, world, parks=True) as run:
        await run.handle.cancel()
        await asked_until(env, run.record, lambda record: ("cancel", "refused") in {(each.act, each.outcome) for each in record})
        await let_pass(env, run.handle, timedelta(minutes=5))
        assert ((await run.status()).problem, world.unschedulable) == (KEPT.question, True)
        await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert result.left_off
    assert world.count("on") == 0


async def test_s53_a_word_for_off_is_no_answer_to_what_becomes_of_it(env: WorkflowEnvironment) -> None:
    """S53: it vouches for the power state, and the machine is kept all the same."""
    world = offender(KEPT, silent={"ipmi://10.0.0.7:623"})
    async with fencing(env, world, parks=True) as run:
        assert (await run.status()).problem != KEPT.question
        await run.acknowledge()
        await run.until(lambda status: status.problem == KEPT.question)
        assert (world.count("on"), world.pods) == (0, 0)


@pytest.mark.parametrize("mode", [Mode.CORDON, Mode.DRAIN])
async def test_s53_in_a_lower_mode_it_is_kept_as_far_as_that_allows(mode: Mode, env: WorkflowEnvironment) -> None:
    """S52, S53: and it stays so when it is well."""
    world = offender(KEPT, mode=mode)
    world.plan = plan(isolation=(CORDON, DRAIN))
    async with fencing(env, world, parks=True) as run:
        status = await run.status()
        assert status.problem.startswith(KEPT.question)
        assert f"its mode is {mode}" in status.problem
        await run.sees(ready=True)
        await let_pass(env, run.handle, timedelta(hours=1))
        assert (await run.status()).phase is Phase.NEEDS_HUMAN
        assert (world.unschedulable, world.count("drain"), world.count("off")) == (True, int(mode is Mode.DRAIN), 0)
        await run.resume("it may come back")
        await run.result(Outcome.RECOVERED)
    assert not world.unschedulable


async def test_s53_a_machine_that_is_only_cut_off_stays_cut_off(env: WorkflowEnvironment) -> None:
    world = offender(KEPT)
    world.plan = plan(levels=(), isolation=(CORDON, CUT), recovery=(*plan().recovery, BACK))
    world.__post_init__()
    async with fencing(env, world, parks=True) as run:
        assert (await run.status()).problem == KEPT.question
        switched_on_by_hand(world)
        await run.tell(world.seen_node())
        await let_pass(env, run.handle, timedelta(hours=1))
        assert (await run.status()).phase is Phase.NEEDS_HUMAN
        assert world.count("restore-path") == 0
        await run.resume("it may come back")
        await run.result(Outcome.RECOVERED)


async def test_a_person_who_has_asked_for_the_fencing_has_nothing_kept(env: WorkflowEnvironment) -> None:
    world = offender(KEPT, need=Need(kind=NeedKind.PERSON, reason="drill"))
    async with fencing(env, world) as run:
        await run.result(Outcome.RECOVERED)


@pytest.mark.parametrize("ladder", [(REBOOT, DELETE), (DELETE,), (OWNER,), (SELF,), (FENCE, OWNER)], ids=str)
def test_s53_whatever_its_ladder_a_kept_machine_is_only_fenced(ladder: Any) -> None:
    """S53: neither rebooted nor replaced nor handed over, and well again it stays as it is."""
    world = Remediated(ladder=ladder, node=offender(KEPT))
    with Play(world) as play:
        assert play.parked().problem == KEPT.question
        switched_on_by_hand(world.node)
        play.tell(world.node.seen_node())
        play.skip(10 * MINUTE)
        play.roll()
        play.skip(10 * MINUTE)
        assert play.status().phase is Phase.NEEDS_HUMAN
        assert (world.node.pods, world.node.unschedulable) == (0, True)
        assert not [each for each in world.node.commands if each.startswith("on ")]
        play.resume()
        record = play.result(Outcome.RECOVERED).record
    assert [each.detail for each in record if (each.act, each.outcome) == ("step", "begins")] == ["1 of 1: keep"]
    assert not {"give-up", "request-owner", "create-object"} & {*world.acts}
    assert not world.node.unschedulable
