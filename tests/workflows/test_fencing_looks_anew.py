"""S47: what was seen before a wait licenses nothing. Need, identity, devices and power are looked at before each round."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.episode.permits import PortionAnswer
from policy.fence.kdump import KdumpRule
from policy.fence.plan import FencingPlan, Freeing, PowerDevice
from policy.fence.power import PowerState
from tests.workflows.fencing_run import fencing
from tests.workflows.surroundings import eventually, let_pass
from tests.workflows.world import World, plan

RIGHT = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.9:623")
CHANGES: dict[str, dict[str, Any]] = {
    "the check is withdrawn": {"excused": True},
    "the plug is corrected": {"plan": plan(levels=((RIGHT,),))},
    "a second supply is configured": {"plan": plan(levels=((*plan().levels[0], RIGHT),))},
}


def _change(world: World, change: str, former: FencingPlan) -> None:
    for name, value in CHANGES[change].items():
        setattr(world, name, value if name != "plan" else replace(former, levels=value.levels))
    world.power.setdefault(RIGHT.endpoint, PowerState.ON)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("freeing", [Freeing.AUTOMATIC, Freeing.DELETION])
async def test_what_was_mended_while_it_was_held_after_off_is_seen_before_anything_is_freed(
    env: WorkflowEnvironment, change: str, freeing: Freeing
) -> None:
    """S6, S9, S47: the hold comes during the only look after off; who has held it withdraws the check, or corrects what was wrong
    with the devices, and has it go on."""
    world = World(plan=plan(freeing=freeing, tries=1, restarts=0))
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.gates["read"] = asyncio.Event()
        run.go_on()
        await let_pass(env, run.handle, timedelta(seconds=1))
        await run.hold("is it the right plug?")
        world.gates.pop("read").set()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        _change(world, change, world.plan)
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.resume("it is corrected")
        if world.excused:
            await run.result(Outcome.RECOVERED)
            assert ("free-workloads", "dropped") in {(entry.act, entry.outcome) for entry in (await run.handle.result()).record}
        else:
            assert "target-changed" in (await run.parked()).problem
    assert world.consequences == []
    assert world.pods == 3


@pytest.mark.parametrize("how", ["a taint that pods stay under", "portions", "deletion that pods stay under"])
async def test_devices_that_are_corrected_while_pods_are_freed_end_the_freeing(env: WorkflowEnvironment, how: str) -> None:
    """S9, S47: freeing takes long, and each round of it is as good as what is configured by then."""
    slow = plan(free_timeout=timedelta(hours=1), tries=1, restarts=0)
    world = World(plan=slow, pods_stay=how != "portions")
    if how == "portions":
        world.per_minute, world.pods = 1, 30
        world.portions = [PortionAnswer(pods=1, until=await env.get_current_time() + timedelta(days=1))] * 100
    elif how == "deletion that pods stay under":
        world.plan = replace(slow, freeing=Freeing.DELETION)
    async with fencing(env, world) as run:
        await run.did("taint" if how.startswith("a taint") else "delete-workload")
        _change(world, "the plug is corrected", world.plan)
        assert "target-changed" in (await run.parked()).problem
        freed = world.consequences
        await let_pass(env, run.handle, timedelta(minutes=5))
        assert (world.consequences, world.tainted) == (freed, False)
    assert world.pods > 0


async def test_a_need_that_ends_once_freeing_has_begun_leaves_nothing_half_freed(env: WorkflowEnvironment) -> None:
    """S6: what was begun under the proof is finished, and the machine comes back."""
    world = World(plan=plan(freeing=Freeing.DELETION), per_minute=1)
    world.portions = [PortionAnswer(pods=1, until=await env.get_current_time() + timedelta(days=1))] * 100
    async with fencing(env, world) as run:
        await run.did("delete-workload")
        world.excused = True
        await run.result(Outcome.RECOVERED)
    assert world.pods == 0


async def test_a_look_that_fails_between_two_rounds_frees_nothing_on_the_one_before(env: WorkflowEnvironment) -> None:
    """S45, S47: nor does it stand for a taint; once the node is seen again all goes on."""
    world = World(plan=plan(free_timeout=timedelta(hours=1), tries=2), pods_stay=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.look_errors = [failure(ErrorType.UNREACHABLE, "the API is away")] * 500
        await run.until(lambda status: "the API is away" in status.doing or status.try_number == 2)
        assert not world.tainted
        world.look_errors.clear()
        world.pods_stay = False
        await run.result(Outcome.RECOVERED)
    assert world.count("taint") == 2


async def test_a_hold_is_obeyed_that_comes_while_a_portion_is_asked_for(env: WorkflowEnvironment) -> None:
    """S20: who was told that the episode is held may rely on it, and who has it go on finds all looked at anew."""
    world = World(per_minute=1)
    world.portions = [PortionAnswer(pods=1, until=await env.get_current_time() + timedelta(days=1))] * 100
    async with fencing(env, world, at="ask for 3 pods") as run:
        await run.hold()
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        assert world.consequences == []
        await run.resume()
        await run.result(Outcome.RECOVERED)
    assert world.pods == 0


async def test_pods_of_a_dead_kernel_are_not_freed_once_it_is_aborted_while_its_listener_is_asked(
    env: WorkflowEnvironment,
) -> None:
    """S20: nothing was touched, so that an abort takes our marks away and nothing else is done."""
    world = World(plan=plan(kdump=KdumpRule(trusted=True)), kdump=timedelta(minutes=2))
    real, asked = world.act, asyncio.Event()

    async def act(name: str) -> None:
        after_the_look = name == "read-kdump" and world.acts[-1] == "look" and world.acts.count(name) > 0
        await real(name)
        if after_the_look:
            asked.set()
            await world.gates.setdefault("the listener", asyncio.Event()).wait()

    world.act = act  # type: ignore[method-assign]
    async with fencing(env, world) as run:
        await eventually(env, asked.is_set)
        await run.abort()
        world.gates["the listener"].set()
        await run.result(Outcome.ABORTED)
    assert (world.consequences, world.commands) == ([], [])
