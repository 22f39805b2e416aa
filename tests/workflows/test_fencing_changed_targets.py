"""What is not as it was pinned (S9, S35), and what comes at the worst moment: another configuration, another Node or boot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.episode.node_action import DEVICE_READS_ON
from policy.episode.permits import PortionAnswer
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, Act, FencingPlan, Freeing, PlannedMethod, PowerDevice
from policy.fence.power import PowerState, VolumeState
from tests.workflows.contract import LookVerdict
from tests.workflows.fencing_run import fenced, fencing, story, told
from tests.workflows.plans import DETACH, FREE
from tests.workflows.surroundings import eventually, let_pass
from tests.workflows.world import World, plan

WRONG = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.8:623")
RIGHT = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
CUT = PowerDevice(driver="fence_brocade", endpoint="fence_brocade://switch-a/7")
OFF_AND_ON = {WRONG.endpoint: PowerState.OFF, RIGHT.endpoint: PowerState.ON}
SUPPLIES = (RIGHT.endpoint, WRONG.endpoint, CUT.endpoint)
ANEW = {"uid": "uid-2", "mark": None}

STORIES: dict[str, dict[str, Any]] = {
    "S9: restoring compares the machine, not the Node object that was made anew; what needs the old one is dropped": story(
        at="event NodePoweredOff", then=ANEW, did={"off": 1, "on": 1}, order="event WorkloadsLeft", freed=[]
    ),
    "S9: the same machine by its providerID is marked and cordoned anew under its new uid, and nobody is asked": story(
        at="event NodeIsolated", then=ANEW | {"unschedulable": False}, did={"cordon": 2, "off": 1, "on": 1}, leaves={"pods": 0}
    ),
    "S1, S9: what the pinned device says may be of another machine; it is waited until the configuration is read": story(
        plan=plan(levels=((WRONG,),)),
        at="event NodePoweredOff",
        then={"glances": [LookVerdict.NOT_LICENSED], "plan": plan(levels=((RIGHT,),)), "power": OFF_AND_ON},
        ends=None,
        says="target-changed",
        freed=[],
    ),
    "S17: the template is gone and nothing names another device, which strands no machine that we switched off": story(
        enough=1, at="note-on", then={"plan": plan(levels=())}, did={"off": 1, "on": 1}
    ),
    "S4, S9: each supply is compared for itself: one that was moved is told, and the other one brings the machine back": story(
        plan=plan(levels=((RIGHT, WRONG),), tries=1),
        enough=1,
        at="note-on",
        then={"plan": plan(levels=((RIGHT, CUT),)), "power": dict.fromkeys(SUPPLIES, PowerState.OFF)},
        order="event PartlySwitchedOn",
        leaves={"commands": [f"off {RIGHT.endpoint}", f"off {WRONG.endpoint}", f"on {RIGHT.endpoint}"]},
    ),
    "S9, S35: a machine whose Node was made anew is not given up, as each look before that would say no, and comes back": story(
        plan=plan(terminate_instance=True),
        at="event NodePoweredOff",
        then=ANEW,
        did={"off": 1, "on": 1, "terminate": 0},
        order="event MachineKept",
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(env: WorkflowEnvironment, story: str) -> None:
    await told(env, **STORIES[story])


def _mend(world: World) -> None:
    world.plan = replace(world.plan, levels=((RIGHT,),))
    world.power.setdefault(RIGHT.endpoint, PowerState.ON)


@pytest.mark.parametrize("at", ["", "event NodeIsolated"], ids=["its password is refused", "the look before off sees it"])
async def test_a_word_acts_by_the_configuration_that_was_mended(env: WorkflowEnvironment, at: str) -> None:
    """S9: the endpoints that are configured now are compared with the pinned ones, and no off is sent; a person's word pins anew.
    Nothing was touched yet, so that the new plug is the one that goes off, and the old one never does."""
    world = World(plan=plan(levels=((WRONG,),)))
    world.errors["read"].extend([] if at else [failure(ErrorType.UNAUTHORIZED, "wrong password")])
    async with fencing(env, world, at=at, parks=not at) as run:
        _mend(world)
        await run.parked()
        assert world.commands == []
        del world.power[WRONG.endpoint]
        await run.resume()
        await run.result(Outcome.RECOVERED)
    assert world.commands == [f"off {RIGHT.endpoint}", f"on {RIGHT.endpoint}"]


async def test_what_was_switched_off_is_not_switched_on_unasked_once_another_device_is_configured(
    env: WorkflowEnvironment,
) -> None:
    """S9: between off and on the plug became another machine's. A person hears of it and decides."""
    world = World(plan=plan(levels=((WRONG,),), tries=1, restarts=0), enough=1)
    async with fencing(env, world, at="note-on") as run:
        former, world.plan, world.power[RIGHT.endpoint] = world.plan, replace(world.plan, levels=((RIGHT,),)), PowerState.OFF
        status = await run.parked()
        assert f"{WRONG.endpoint} is not configured for the node any more" in status.problem
        assert "abort --power-on" in status.problem
        assert world.commands == [f"off {WRONG.endpoint}"]
        world.plan = former
        await run.resume()
        await run.result(Outcome.RECOVERED)
    assert world.commands == [f"off {WRONG.endpoint}", f"on {WRONG.endpoint}"]


async def test_no_taint_goes_on_freeing_while_power_cannot_be_read(env: WorkflowEnvironment) -> None:
    """S1, S2: the BMC falls silent under our taint; it must not stand for the pauses between tries."""
    world = World(plan=plan(retry_interval=timedelta(minutes=10), tries=2), stubborn=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.silent = set(world.power)
        await run.until(lambda status: "will try again" in status.doing)
        assert not world.out_of_service


async def test_a_taint_goes_while_the_node_is_vetoed(env: WorkflowEnvironment) -> None:
    """S20, S38: a hold that people annotate, `fencing=off` and another holder of the cluster's Lease stop it as `nodewarden hold`
    does; it comes back when they are over."""
    world = World(stubborn=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.errors["standing"] = world.errors["free"] = [
            failure(ErrorType.NOT_LICENSED, "the annotation nodewarden.io/hold")
        ] * 20
        await run.until(lambda status: "the annotation nodewarden.io/hold" in status.doing)
        assert not world.out_of_service
        world.errors["free"].clear()
        await eventually(env, lambda: world.count("taint") == 2)
        await run.result(Outcome.RECOVERED)


@pytest.mark.parametrize("waits", ["a person", "a hold"])
async def test_a_taint_that_could_not_be_removed_is_tried_again_while_a_person_is_waited_for(
    env: WorkflowEnvironment, waits: str
) -> None:
    """S1, S32: the API was away when it should have gone. Nobody reads the proof, and who is waited for may switch it on."""
    world = World(plan=plan(tries=1, restarts=0), stubborn=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.errors["untaint"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 5000
        if waits == "a hold":
            await run.hold()
            await run.until(lambda status: "the out-of-service taint can't be removed yet" in status.doing)
        else:
            world.silent = set(world.power)
            await run.parked()
        assert world.out_of_service
        world.errors["untaint"].clear()
        await let_pass(env, run.handle, timedelta(minutes=5))
        assert not world.out_of_service


async def test_a_taint_that_could_not_be_removed_goes_before_the_flow_begins_again(env: WorkflowEnvironment) -> None:
    """S1, S32: another person switched the machine on, and the API was away: it took effect on a running machine, until that was
    switched off and freed once more."""
    world = World(stubborn=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.errors["untaint"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 5000
        world.power = dict.fromkeys(world.power, PowerState.ON)
        await run.until(lambda status: "the out-of-service taint can't be removed" in status.problem)
        off = world.count("off")
        await let_pass(env, run.handle, timedelta(minutes=10))
        assert (world.count("off"), world.out_of_service) == (off, True)
        world.errors["untaint"].clear()
        await eventually(env, lambda: world.count("off") > off)
        assert not world.out_of_service


@pytest.mark.parametrize(
    ("look", "after", "command"), [("look", "event NodeIsolated", "off"), ("glance", "event WorkloadsFreed", "on")]
)
async def test_what_stood_still_after_its_look_looks_again_before_it_commands(
    env: WorkflowEnvironment, look: str, after: str, command: str
) -> None:
    """S20, S45: a look that was lost licenses no command; another deployment may have the node by then. That no command may be
    sent beyond the window of the look that was answered the world watches itself."""
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
    assert len(looks) >= 3, "two that were lost, one that holds"


async def test_a_node_that_goes_while_a_person_is_asked_has_not_recovered(env: WorkflowEnvironment) -> None:
    """S44: its Machine was deleted. Nothing is left to repair, and nothing was repaired."""
    world = World(plan=plan(tries=1, restarts=0))
    world.silent = set(world.power)
    async with fencing(env, world, parks=True) as run:
        world.lose_node()
        await run.sees(excused=True)  # no check judges what is not there
        result = await run.result(Outcome.RELEASED)
    assert result.message == "the Node is gone"


async def test_a_node_that_is_deleted_while_its_return_is_waited_for_is_said_to_be_gone(env: WorkflowEnvironment) -> None:
    """S44: people looked at the console of a machine whose Node had been deleted by hand."""
    async with fencing(env, world := World(plan=plan(tries=1, restarts=0), boot_seconds=None), at="note-on") as run:
        world.lose_node()
        run.go_on()
        assert (await run.parked()).problem.endswith(" after power-on; its Node is gone")


@pytest.mark.parametrize("deprovisioned", [True, False], ids=["with its Machine", "alone"])
@pytest.mark.parametrize("proven", [True, False], ids=["off is proven", "off is not known"])
async def test_s9_a_machine_whose_node_was_deleted_is_switched_on_as_long_as_it_is_still_ours(
    env: WorkflowEnvironment, *, proven: bool, deprovisioned: bool
) -> None:
    """S9, S35: a Node that was deleted alone leaves no machine off. One that an autoscaler has removed with its Machine may be
    another owner's by then, and stays as it is."""
    world = World(plan=plan(tries=1, restarts=0, boot_timeout=timedelta(minutes=1)), deprovisioned=deprovisioned)
    world.ignores_off = not proven
    async with fencing(env, world, **({"at": "off"} if proven else {"parks": True})) as run:
        world.lose_node()
        await run.sees(excused=True)
        otherwise = Outcome.RECOVERED if proven else Outcome.RELEASED  # its kubelet registers it anew, or is still at it
        await run.result(Outcome.REPLACED if deprovisioned else otherwise)
    assert ("on" in world.acts) is not deprovisioned, world.acts


@pytest.mark.parametrize("ready", [True, False], ids=["and hangs again", "and is not Ready"])
async def test_a_word_for_off_ends_with_the_boot_that_it_was_given_for(env: WorkflowEnvironment, *, ready: bool) -> None:
    """S6, S8: the node has started anew while the word waited for its permit. It need not be Ready to write to its volumes."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        world.gates["ask-permit"] = asyncio.Event()
        await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        await run.did("ask-permit")
        await run.sees(boot_id="boot-2", ready=ready)
        await run.sees(ready=False)
        world.gates["ask-permit"].set()
        await eventually(env, lambda: world.count("event NeedsHuman") == 2)
        assert world.consequences == []
        assert "void" in {entry.outcome for entry in await run.record()}


@pytest.mark.parametrize("at", ["ask-permit", "read"], ids=["it waits for its permit", "it stands for the proof"])
async def test_a_word_for_off_ends_once_the_kubelet_reports_also_with_the_same_boot(env: WorkflowEnvironment, at: str) -> None:
    """S6, S8: a dead BMC, a network that flaps, and a person at the wrong rack. It is silent again, and runs."""
    world = World(plan=plan(tries=1, restarts=1))
    world.silent = set(world.power)
    async with fencing(env, world, parks=True) as run:
        world.gates[at] = asyncio.Event()
        before = world.count(at)
        await run.acknowledge("pulled the plug")
        await eventually(env, lambda: world.count(at) > before)
        await run.sees(ready=True)
        await run.sees(ready=False)
        world.gates[at].set()
        await eventually(env, lambda: world.count("event NeedsHuman") == 2)
        void = "the acknowledgement by ada (identity not verified) is void: the node says Ready"
        assert void in (await run.status()).problem
        assert world.consequences == []


async def test_a_word_for_off_ends_with_the_boot_that_only_the_look_after_its_permit_sees(env: WorkflowEnvironment) -> None:
    """S6, S8: no device was ever commanded, so that the boot is pinned anew then. The scanner's word may come later than the
    permit, and the boot that nobody saw off writes to its volumes."""
    world = World(plan=plan(tries=1, restarts=0))
    world.silent = set(world.power)
    async with fencing(env, world, parks=True) as run:
        world.gates["ask-permit"] = asyncio.Event()
        await run.acknowledge("pulled the plug")
        await run.did("ask-permit")
        world.boot_id = "boot-2"
        world.gates["ask-permit"].set()
        await eventually(env, lambda: world.count("event NeedsHuman") == 2)
        status = await run.status()
        assert "the acknowledgement by ada (identity not verified) is void: the node shows another boot" in status.problem
        assert (world.consequences, status.permit) == ([], False)


async def test_a_word_for_off_is_not_carried_over_to_a_boot_that_is_pinned_anew(env: WorkflowEnvironment) -> None:
    """S6, S8: the configuration was mended meanwhile, so that the node is pinned anew once the word was taken."""
    world = World(plan=plan(tries=1, restarts=0, levels=((WRONG,),)))
    world.silent = set(world.power)
    async with fencing(env, world, parks=True) as run:
        _mend(world)
        world.gates["pin"] = asyncio.Event()
        await run.acknowledge("pulled the plug")
        await eventually(env, lambda: world.count("pin") == 2)
        world.boot_id = "boot-2"
        world.gates["pin"].set()
        await eventually(env, lambda: world.count("event NeedsHuman") == 2)
        assert "the acknowledgement is void: the node shows boot boot-2" in (await run.status()).problem
        assert world.consequences == []


@pytest.mark.parametrize("word", [True, False], ids=["a person's word", "what its devices say"])
async def test_no_taint_goes_on_freeing_a_node_that_shows_another_boot(env: WorkflowEnvironment, *, word: bool) -> None:
    """S6: whether or not it is Ready, and whatever its devices say: they may be those of another machine."""
    world = World(plan=plan(tries=1, restarts=0, free_timeout=timedelta(hours=1)), ignores_off=word, stubborn=True)
    async with fencing(env, world, parks=word) as run:
        if word:
            world.power[RIGHT.endpoint] = PowerState.OFF
            await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        await run.did("taint")
        await (run.sees(boot_id="boot-2") if not word else eventually(env, lambda: world.count("read") > 3))
        world.boot_id = "boot-2"
        began = await env.get_current_time()
        await eventually(env, lambda: not world.out_of_service)
        assert await env.get_current_time() < began + timedelta(minutes=1)
        assert "its boot id is boot-2" in str(await run.record())


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"], ids=["the same boot", "another boot"])
async def test_a_node_whose_off_was_a_lie_is_not_called_recovered(env: WorkflowEnvironment, boot: str) -> None:
    """S2, S44: its pods run elsewhere, and its own may have run all the while; only a restart licenses `recovered`. That its
    device takes its word back and the node is well is no restart."""
    world = World(plan=plan(tries=1, free_timeout=timedelta(hours=1)), stubborn=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.power = dict.fromkeys(world.power, PowerState.ON)
        await run.sees(ready=True, boot_id=boot)
        if boot == "boot-1":
            told = "its pods may have been freed when it was said to be off, and no restart of it is proven"
            assert told in (await run.parked()).problem
            assert world.unschedulable
            await run.abort()
        await run.result(Outcome.ABORTED if boot == "boot-1" else Outcome.RECOVERED)
    assert (world.count("off"), world.out_of_service) == (1, False)


async def test_a_node_that_says_ready_without_a_boot_shows_no_other_boot(env: WorkflowEnvironment) -> None:
    """S6, S8: an empty boot id is not known. Nothing is freed of a node that says Ready, and the word has ended."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True, stubborn=True)
    async with fencing(env, world, parks=True) as run:
        world.power[RIGHT.endpoint] = PowerState.OFF
        await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        await run.did("taint")
        world.boot_id, world.ready, world.lingers = "", True, 10_000
        await run.parked()
        assert not world.out_of_service
        assert not [entry for entry in await run.record() if "is back, although" in entry.detail]


async def test_a_resume_under_a_configuration_that_is_still_wrong_asks_again(env: WorkflowEnvironment) -> None:
    """S9: what can't be looked up is told, and an abort still ends it."""
    world = World(plan=plan(levels=((WRONG,),)))
    world.errors["read"].append(failure(ErrorType.UNAUTHORIZED, "wrong password"))
    async with fencing(env, world, parks=True) as run:
        world.errors["pin"].append(failure(ErrorType.INVALID_CONFIG, "there is no such template"))
        await run.resume()
        await run.until(lambda status: "there is no such template" in status.problem)
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert world.commands == []
    assert not world.marked


async def test_a_device_of_another_machine_is_not_switched_on_upon_a_word(env: WorkflowEnvironment) -> None:
    """S9: its Node is gone, so that nobody can tell which device is configured for it; the pinned one was never switched off by
    us. A person hears what to do."""
    world = World(plan=plan(levels=((WRONG,),), tries=1, restarts=0), silent={WRONG.endpoint})
    async with fencing(env, world, parks=True) as run:
        _rewired(world)
        world.present, world.mark = False, None
        world.errors["pin"].append(failure(ErrorType.NOT_FOUND, "there is no such Node"))
        await run.acknowledge("pulled the plug")
        await run.until(lambda status: "switch the machine on by hand" in status.problem)
        assert "delete-workload" in world.acts  # the word stands for what is to be freed
        await run.abort(power_on=True)
        result = await run.result(Outcome.ABORTED)
    assert "switch the machine on by hand" in result.message
    assert world.commands == []


def _rewired(world: World, state: PowerState = PowerState.ON) -> None:
    """The old plug answers again, and feeds another machine by now, which somebody has switched off."""
    world.silent.clear()
    world.plan = replace(world.plan, levels=((RIGHT,),))
    world.power = {WRONG.endpoint: PowerState.OFF, RIGHT.endpoint: state}


async def test_a_word_after_a_path_was_cut_switches_no_old_device_on(env: WorkflowEnvironment) -> None:
    """S9: what is cut can only be given back as it was pinned, and the plug of then is not the node's any more."""
    isolation = (CORDON, PlannedMethod(name="cut", act=Act.CUT_PATH, device=CUT))
    world = World(plan=plan(levels=((WRONG,),), isolation=isolation, tries=1, restarts=0), silent={WRONG.endpoint})
    async with fencing(env, world, parks=True) as run:
        _rewired(world)
        await run.acknowledge("pulled the plug")
        await run.until(lambda status: "target-changed" in status.problem)
        await run.abort(power_on=True)
        result = await run.result()
    assert f"{WRONG.endpoint} is not configured for the node any more" in result.message
    assert world.commands == []


async def test_a_resume_fences_no_other_machine_that_has_taken_the_name(env: WorkflowEnvironment) -> None:
    """S9: its password is mended, and by then the name is another machine's, which is sick for reasons of its own."""
    world = World(plan=plan(levels=((WRONG,),)), errors={"read": [failure(ErrorType.UNAUTHORIZED, "wrong password")]})
    async with fencing(env, world, parks=True) as run:
        world.uid, world.provider_id, world.mark = "uid-2", "sim://8", None
        before = world.count("cordon")  # of the machine that was there
        await run.resume()
        await run.result(Outcome.REPLACED)
    assert (world.commands, world.marked, world.count("cordon")) == ([], "", before)


async def test_another_machines_first_boot_is_no_restart_of_the_pinned_one(env: WorkflowEnvironment) -> None:
    """S9, S35: it came under the same name while the pinned one was to come back."""
    world = World(boot_seconds=None)
    async with fencing(env, world) as run:
        await run.did("on")
        await run.sees(uid="uid-2", provider_id="sim://8", boot_id="boot-9", ready=True)
        result = await run.result(Outcome.REPLACED)
    assert result.restart_proof is None


async def test_a_node_that_is_made_anew_with_another_boot_before_its_pods_are_freed_is_freed_as_that_boot(
    env: WorkflowEnvironment,
) -> None:
    """S9: the same machine, whose volumes are detached and stay so; nothing was freed, so that the boot that is there counts."""
    detached = plan(levels=(), isolation=(CORDON, DETACH, FREE), tries=1, restarts=0)
    world = World(plan=detached, volumes={"vol-1": VolumeState.ATTACHED})
    async with fencing(env, world, at="event VolumesDetached") as run:
        world.uid, world.boot_id, world.mark = "uid-2", "boot-2", None
        run.go_on()
        await run.did("free-cut-pods")
        await run.sees(ready=True, boot_id="boot-3")
        await run.result(Outcome.RECOVERED)
    assert world.cut_pods == 0


async def test_a_boot_that_was_there_before_power_on_is_no_restart(env: WorkflowEnvironment) -> None:
    """S2: the node had started once more before it was switched off, which its Node tells late."""
    world = World(plan=plan(tries=1, restarts=0))
    async with fencing(env, world, at="note-on") as run:
        world.boot_id = "boot-2"
        assert "the node is not back Ready with a new boot id" in (await run.parked()).problem
        await run.sees(boot_id="boot-3")
        await run.result(Outcome.RECOVERED)


async def test_the_boot_that_came_of_our_first_on_is_a_restart_however_often_it_is_tried(env: WorkflowEnvironment) -> None:
    """S35: the machine came on and said nothing for a while. The second try sees its new boot, which is no old one."""
    world = World(plan=plan(levels=((RIGHT, WRONG),), tries=3))
    async with fencing(env, world, at="on") as run:
        world.errors["read"] = [failure(ErrorType.UNREACHABLE, "no answer")] * 12
        result = await run.result(Outcome.RECOVERED)
    assert result.restart_proof.boot_id == "boot-2"
    assert world.count("on") > 2


# S47: what was seen before a wait licenses nothing. Need, identity, devices and power are looked at before each round.

SECOND = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.9:623")
CHANGES: dict[str, dict[str, Any]] = {
    "the check is withdrawn": {"excused": True},
    "the plug is corrected": {"plan": plan(levels=((SECOND,),))},
    "a second supply is configured": {"plan": plan(levels=((*plan().levels[0], SECOND),))},
}


def _change(world: World, change: str, former: FencingPlan) -> None:
    for name, value in CHANGES[change].items():
        setattr(world, name, value if name != "plan" else replace(former, levels=value.levels))
    world.power.setdefault(SECOND.endpoint, PowerState.ON)


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
    world = World(plan=slow, stubborn=how != "portions")
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
        assert (world.consequences, world.out_of_service) == (freed, False)
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
    world = World(plan=plan(free_timeout=timedelta(hours=1), tries=2), stubborn=True)
    async with fencing(env, world) as run:
        await run.did("taint")
        world.errors["look"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 500
        await run.until(lambda status: "the API is away" in status.doing or status.try_number == 2)
        assert not world.out_of_service
        world.errors["look"].clear()
        world.stubborn = False
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
