"""What stands between a reading and a consequence: silence, a hold, a boot that nobody spoke of, an off that was never sent."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.fence.power import PowerState
from tests.workflows.fencing_run import fenced, fencing
from tests.workflows.surroundings import eventually
from tests.workflows.world import World, plan
from workflows.kit.messages import PersonRequest

ADA = PersonRequest(who="ada", reason="drill")
BMC = "ipmi://10.0.0.7:623"


@pytest.mark.parametrize("honoured", [True, False], ids=["taint", "deletion"])
async def test_a_device_that_is_silent_before_a_consequence_licenses_none(env: WorkflowEnvironment, honoured: bool) -> None:
    """S2: what it said a moment ago is no reading right before the act. Once it speaks again the rest follows."""
    world = World(plan=plan(tries=1, restarts=0, taint_honoured=honoured))
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.silent.add(BMC)
        await run.parked()
        assert world.consequences == []
        world.silent.clear()
        await run.resume()
        await run.result(Outcome.RECOVERED)
    assert world.consequences
    assert world.count("off") == 1


async def test_an_off_that_was_refused_is_none_that_a_reading_could_follow(env: WorkflowEnvironment) -> None:
    """S2, S4: somebody else has it off by the next reading. Only an off of ours that was sent makes a later reading a proof."""
    world = World(others=[PowerState.ON, PowerState.OFF])
    world.off_errors.append(failure(ErrorType.UNREACHABLE, "no answer"))
    await fenced(env, world)
    assert world.count("off") == 1
    assert world.acts.index("off") < world.acts.index("taint")


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
