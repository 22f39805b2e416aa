"""What was pinned is not what is there now: another configuration, another Node object, our mark gone (S9, S35)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episodes import Need, NeedKind, Outcome
from policy.marks import Mark
from policy.plan import CORDON, Act, PlannedMethod, PowerDevice
from policy.power import PowerState
from tests.workflows.contract import LookVerdict
from tests.workflows.fencing_run import fencing
from tests.workflows.world import World, plan
from workflows.fencing import Fencing
from workflows.messages import PersonRequest

WRONG = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.8:623")
RIGHT = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
RESUME = PersonRequest(who="ada", reason="the plug is mended")
ASKED = Need(kind=NeedKind.PERSON, reason="drill")


def _mend(world: World) -> None:
    world.plan = replace(world.plan, levels=((RIGHT,),))
    world.power.setdefault(RIGHT.endpoint, PowerState.ON)


async def test_a_resume_acts_by_the_configuration_that_was_mended(env: WorkflowEnvironment) -> None:
    """S9: nothing was touched yet, so that the new plug is the one that goes off, and the old one never does."""
    world = World(plan=plan(levels=((WRONG,),)))
    world.read_errors.append(failure(ErrorType.UNAUTHORIZED, "wrong password"))
    async with fencing(env, world) as run:
        await run.parked()
        _mend(world)
        del world.power[WRONG.endpoint]
        await run.handle.execute_update(Fencing.resume, RESUME)
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.commands == [f"off {RIGHT.endpoint}", f"on {RIGHT.endpoint}"]


async def test_a_configuration_that_changes_before_the_off_sends_none(env: WorkflowEnvironment) -> None:
    """S9: the endpoints that are configured now are compared with the pinned ones; a person decides, and his word pins anew."""
    world = World(plan=plan(levels=((WRONG,),)))
    world.gates["event NodeIsolated"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodeIsolated")
        _mend(world)
        world.gates["event NodeIsolated"].set()
        await run.parked()
        assert world.commands == []
        del world.power[WRONG.endpoint]
        await run.handle.execute_update(Fencing.resume, RESUME)
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.commands == [f"off {RIGHT.endpoint}", f"on {RIGHT.endpoint}"]


async def test_a_resume_under_a_configuration_that_is_still_wrong_asks_again(env: WorkflowEnvironment) -> None:
    """S9: what can't be looked up is told, and an abort still ends it."""
    world = World(plan=plan(levels=((WRONG,),)))
    world.read_errors.append(failure(ErrorType.UNAUTHORIZED, "wrong password"))
    async with fencing(env, world) as run:
        await run.parked()
        world.pin_errors.append(failure(ErrorType.INVALID_CONFIG, "there is no such template"))
        await run.handle.execute_update(Fencing.resume, RESUME)
        await run.until(lambda status: "there is no such template" in status.problem)
        await run.abort()
        assert (await run.result()).outcome is Outcome.ABORTED
    assert world.commands == []
    assert not world.marked


async def test_what_was_switched_off_by_the_old_device_is_switched_on_by_it(env: WorkflowEnvironment) -> None:
    """S9: once a device was touched, a mended configuration sends no other one an off, and the way back is the old one's."""
    world = World(plan=plan(levels=((WRONG,),), tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        _mend(world)
        await run.handle.execute_update(Fencing.resume, RESUME)
        await run.until(lambda status: "target-changed" in status.problem)
        world.power[WRONG.endpoint] = PowerState.OFF
        await run.abort(power_on=True)
        assert (await run.result()).outcome is Outcome.ABORTED
    assert world.commands == [f"off {WRONG.endpoint}", f"on {WRONG.endpoint}"]
    assert world.consequences() == []  # what another machine's device says is no proof


async def test_a_mark_that_is_gone_after_the_off_is_written_again(env: WorkflowEnvironment) -> None:
    """S35: a backup from before our mark was restored. While we are open the node is nobody else's: it is freed and is back."""
    world = World()
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.mark = None
        world.gates["event NodePoweredOff"].set()
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.pods == 0
    assert world.count("off") == 1
    assert not world.marked


async def test_a_mark_that_is_written_again_says_what_we_have_added(env: WorkflowEnvironment) -> None:
    """S35, S28: else our cordon would stay for ever, and nobody would know of the path that an abort leaves cut."""
    switch = PowerDevice(driver="snmp", endpoint="snmp://10.0.0.9:1")
    taint = PlannedMethod(name="taint", act=Act.TAINT, parameters={"key": "example.com/sick"})
    cut = PlannedMethod(name="cut", act=Act.CUT_PATH, device=switch)
    world = World(plan=plan(isolation=(CORDON, taint, cut)))
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.mark = None
        world.gates["event NodePoweredOff"].set()
        await run.did("on")
        mark: Mark | None = world.mark
        await run.result()
    assert mark is not None
    assert (mark.cordoned, mark.taints, mark.paths) == (True, ("example.com/sick:NoSchedule",), (switch.endpoint,))


async def test_a_machine_whose_node_was_made_anew_while_it_was_off_comes_back(env: WorkflowEnvironment) -> None:
    """S9: restoring compares the machine, not the Node object. What needs the old one is dropped."""
    world = World()
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.uid, world.mark = "uid-2", None
        world.gates["event NodePoweredOff"].set()
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.consequences() == []
    assert world.count("off") == world.count("on") == 1
    assert "event WorkloadsLeft" in world.acts


async def test_a_node_that_is_made_anew_before_the_off_is_fenced_under_its_new_uid(env: WorkflowEnvironment) -> None:
    """S9: the same machine by its providerID. It is marked and cordoned anew, and nobody is asked."""
    world = World()
    world.gates["event NodeIsolated"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodeIsolated")
        world.uid, world.mark, world.cordoned = "uid-2", None, False
        world.gates["event NodeIsolated"].set()
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.count("cordon") == 2
    assert world.count("off") == world.count("on") == 1
    assert world.pods == 0


async def test_what_holds_up_a_machine_that_is_off_is_told_as_it_is(env: WorkflowEnvironment) -> None:
    """S44: a person hears that the machine is off and what keeps it from being finished, not that it was never touched."""
    world = World()
    world.free_errors.append(failure(ErrorType.VETOED, "held by another episode"))
    async with fencing(env, world) as run:
        status = await run.parked()
        assert status.problem == "can't be finished: the out-of-service taint can't be set: held by another episode"
        assert status.off_proof is not None
        await run.handle.execute_update(Fencing.resume, RESUME)
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.count("off") == 1


async def test_nothing_is_freed_while_nobody_can_tell_which_device_is_configured(env: WorkflowEnvironment) -> None:
    """S1, S9: what the pinned device says may be said of another machine; it is waited until the configuration is read."""
    world = World(plan=plan(levels=((WRONG,),)))
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.glances.extend([LookVerdict.GO, LookVerdict.NOT_LICENSED, LookVerdict.GO])  # seen down; the doubt; seen down again
        _mend(world)
        world.gates["event NodePoweredOff"].set()
        assert "target-changed" in (await run.parked()).problem
    assert world.consequences() == []
