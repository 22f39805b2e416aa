"""What a fencing says and does at the worst moment: a machine switched on, a word about another boot, a BMC that falls silent."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.fence.power import PowerState
from tests.workflows.fencing_run import fenced, fencing
from tests.workflows.surroundings import eventually
from tests.workflows.world import World, plan

BMC = "ipmi://10.0.0.7:623"


async def test_a_machine_that_runs_is_not_called_fenced_off(env: WorkflowEnvironment) -> None:
    """S6, S35: somebody switches it on after its pods were freed, right before it is given up."""
    world = World(plan=plan(terminate_instance=True, power_on=False))
    async with fencing(env, world, at="taint") as run:
        real = world.act

        async def switched_on_before_the_last_look(name: str) -> None:
            if name == "look" and "taint" in world.acts:
                world.power = dict.fromkeys(world.power, PowerState.ON)
            await real(name)

        world.act = switched_on_before_the_last_look  # type: ignore[method-assign]
        status = await run.parked()
    assert world.broken == []
    assert "terminate" not in world.acts
    assert "switched it on" in status.problem


async def test_no_taint_goes_on_freeing_while_power_cannot_be_read(env: WorkflowEnvironment) -> None:
    """S1, S2: the BMC falls silent under our taint; it must not stand for the pauses between tries."""
    world = World(plan=plan(retry_interval=timedelta(minutes=10), tries=2), pods_stay=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.silent = set(world.power)
        await run.until(lambda status: "will try again" in status.doing)
        assert not world.tainted


@pytest.mark.parametrize(
    ("look", "after", "command"), [("look", "event StepSucceeded", "off"), ("glance", "event WorkloadsFreed", "on")]
)
async def test_what_stood_still_after_its_look_looks_again_before_it_commands(
    env: WorkflowEnvironment, look: str, after: str, command: str
) -> None:
    """S20, S45: a look whose answer came late licenses no command as if it were fresh; another deployment may have the node by
    then. That no command may be sent beyond its look's window the world watches itself."""
    world, lost = World(), 2
    real = world.act

    async def lose_the_look(name: str) -> None:
        nonlocal lost
        hangs = name == look and lost and world.acts[-1] in {after, look}
        await real(name)
        if hangs:
            lost -= 1
            await asyncio.Event().wait()  # until the attempt's time is over

    world.act = lose_the_look  # type: ignore[method-assign]
    await fenced(env, world)
    looks = [act for act in world.acts[: world.acts.index(command)] if act == look]
    assert lost == 0
    assert world.acts[world.acts.index(command) - 1] == look
    assert len(looks) >= 4, "two that were lost, one that came too late, one that holds"


async def test_a_node_that_is_preserved_once_it_is_off_is_not_deleted_and_a_person_is_asked(env: WorkflowEnvironment) -> None:
    """S20, S21: it is off and freed, so that nothing was given up; what is to become of its Node is for a person to say."""
    world = World(plan=plan(delete_node=True, power_on=False))
    real, refusals = world.act, [failure(ErrorType.VETOED, "Node/node-7 is not deleted: somebody preserves it")]

    async def refuse(name: str) -> None:
        if name == "delete-node" and refusals:
            raise refusals.pop(0)
        await real(name)

    world.act = refuse  # type: ignore[method-assign]
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "somebody preserves it" in status.problem
        assert "before power-off" not in status.problem
        assert "delete-node" not in world.acts
        assert not world.tainted, "S1: nobody reads the proof while a person is waited for"
        await run.resume("seen enough")
        await run.result(Outcome.FENCED_OFF)
    assert world.count("delete-node") == 1


# What stands between a reading and a consequence --------------------------------------------------------------------


@pytest.mark.parametrize("ready", [True, False], ids=["and hangs again", "and is not Ready"])
async def test_a_word_for_off_ends_with_the_boot_that_it_was_given_for(env: WorkflowEnvironment, *, ready: bool) -> None:
    """S6, S8: the node has started anew while the word waited for its permit. It need not be Ready to write to its volumes."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        world.gates["ask-permit"] = asyncio.Event()
        await run.acknowledge("pulled the plug")
        await run.did("ask-permit")
        await run.sees(boot_id="boot-2", ready=ready)
        await run.sees(ready=False)
        world.gates["ask-permit"].set()
        await eventually(env, lambda: world.count("event NeedsHuman") == 2)
        assert world.consequences == []
        assert "void" in {entry.outcome for entry in await run.record()}


async def test_a_node_that_says_ready_without_a_boot_takes_no_word_back(env: WorkflowEnvironment) -> None:
    """S6, S8: an empty boot id is no other boot: it is not known which it is."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True, pods_stay=True)
    async with fencing(env, world, parks=True) as run:
        world.power[BMC] = PowerState.OFF
        await run.acknowledge("pulled the plug")
        await run.did("taint")
        world.boot_id, world.ready, world.lingers = "", True, 10_000
        await run.did("event WorkloadsLeft")
        assert not [entry for entry in await run.record() if "is back, although" in entry.detail]
