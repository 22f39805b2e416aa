"""How far an episode goes in each mode, where it rests, and what ends the rest (S52)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import WorkflowEnvironment

from policy.episode.messages import Need, NeedKind, Outcome
from policy.fence.plan import CORDON, FencingPlan
from policy.values.mode import Mode
from tests.workflows.fencing_run import fencing
from tests.workflows.plans import BACK, CUT, DRAIN, PORT
from tests.workflows.surroundings import let_pass
from tests.workflows.world import World, plan
from workflows.episode.preflight import MODE_AGAIN

WITH_ALL = plan(isolation=(CORDON, DRAIN))
THEN_CUT = plan(isolation=(CORDON, DRAIN, CUT), recovery=(*plan().recovery, BACK))


@pytest.mark.parametrize("then", [WITH_ALL, THEN_CUT], ids=["then off", "then a path cut"])
@pytest.mark.parametrize(
    ("mode", "did"), [(Mode.CORDON, {"cordon": 1, "drain": 0}), (Mode.DRAIN, {"cordon": 1, "drain": 1})], ids=["cordon", "drain"]
)
async def test_s52_an_episode_goes_as_far_as_its_mode_and_rests_without_a_permit(
    mode: Mode, did: dict[str, int], then: FencingPlan, env: WorkflowEnvironment
) -> None:
    """S52: and when the node comes back it gives back what it did."""
    world = World(plan=then, mode=mode)
    async with fencing(env, world) as run:
        status = await run.until(lambda status: status.doing.startswith("may not act yet: its mode is"))
        assert (status.permit, status.problem) == (False, "")
        assert f"its mode is {mode}" in status.doing
        assert {act: world.count(act) for act in did} == did
        assert not {"cut", "off", f"off {PORT.endpoint}"} & {*world.acts}
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 0
    assert not world.unschedulable


async def test_s52_a_mode_that_is_raised_lets_it_go_on_with_a_new_permit(env: WorkflowEnvironment) -> None:
    """S14, S52: the one that it gave back may be another node's."""
    world = World(mode=Mode.CORDON)
    async with fencing(env, world) as run:
        await run.until(lambda status: status.doing.startswith("may not act yet"))
        world.permitted = False
        world.mode = Mode.REPAIR
        asked = world.count("ask-permit")
        await run.tell(replace(world.seen_node(), others="mode repair"))
        await run.result(Outcome.RECOVERED)
    assert world.count("ask-permit") > asked
    assert world.count("off") == 1


async def test_a_rest_is_looked_into_by_itself_too(env: WorkflowEnvironment) -> None:
    """A signal of the scanner may be lost."""
    world = World(mode=Mode.CORDON)
    async with fencing(env, world) as run:
        await run.until(lambda status: status.doing.startswith("may not act yet"))
        world.mode = Mode.REPAIR
        await let_pass(env, run.handle, MODE_AGAIN)
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 1


async def test_s52_taken_back_to_observe_it_ends_and_gives_back_what_it_did(env: WorkflowEnvironment) -> None:
    world = World(mode=Mode.CORDON)
    async with fencing(env, world) as run:
        await run.until(lambda status: status.doing.startswith("may not act yet"))
        await run.sees(mode=Mode.OBSERVE)
        await run.result(Outcome.RELEASED)
    assert (world.count("off"), world.unschedulable) == (0, False)


async def test_s52_what_was_begun_is_not_left_half_done_by_a_mode(env: WorkflowEnvironment) -> None:
    """S52: the off may have been carried out, so that it is a person's case and no rest of days."""
    world = World(ignores_off=True)
    async with fencing(env, world, at="off") as run:
        world.mode = Mode.DRAIN
        status = await run.parked()
        assert "what was begun may not be finished: " in status.problem
        assert "its mode is drain" in status.problem


async def test_a_person_s_request_is_not_braked_by_a_mode(env: WorkflowEnvironment) -> None:
    world = World(mode=Mode.OBSERVE, need=Need(kind=NeedKind.PERSON, reason="by hand"))
    async with fencing(env, world) as run:
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 1
