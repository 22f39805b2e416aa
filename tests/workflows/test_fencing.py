"""Fencing as a story: what is done in which order, what is never done, and how it ends. Each test names the rule it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import LookVerdict
from activities.errors import ErrorType, failure
from policy.episode.messages import Need, NeedKind, Outcome
from policy.fence.plan import FencingPlan, Freeing, PowerDevice
from policy.fence.power import PowerState
from tests.workflows.fencing_run import fencing, parked, story, told
from tests.workflows.plans import BMC, PDUS
from tests.workflows.surroundings import asked_until
from tests.workflows.world import World, left_by, plan

TWO_SUPPLIES = (PowerDevice(driver="ipmi", endpoint="pdu://a/7"), PowerDevice(driver="ipmi", endpoint="pdu://b/7"))
GO, VETO, GONE, NOT_LICENSED = LookVerdict.GO, LookVerdict.VETOED, LookVerdict.NEED_GONE, LookVerdict.NOT_LICENSED
SILENT = failure(ErrorType.UNREACHABLE, "no answer from the BMC")
BUSY = failure(ErrorType.UNREACHABLE, "BMC busy")
WRONG_PASSWORD = failure(ErrorType.UNAUTHORIZED, "the BMC refused the login")
LATE = failure(ErrorType.EXPIRED, "not begun, it was to begin earlier")
FORBIDDEN = failure(ErrorType.FORBIDDEN, "403 Forbidden: nodes is forbidden")
DECLINED = failure(ErrorType.WRONG_CLOCK, "the clock of this worker is 10m ahead: it leaves this to another one")
HELD = failure(ErrorType.VETOED, "held by another episode")
LEASELESS = failure(ErrorType.NOT_LICENSED, "the cluster Lease is not held")
BY_HAND = Need(kind=NeedKind.PERSON, reason="drill", requester="ada")
LEFT_OVER = Need(kind=NeedKind.CLEAN_UP, reason="marks of old")
PATIENT = plan(wait_before_power=timedelta(days=3650))
ON = dict.fromkeys(World().power, PowerState.ON)

STORIES: dict[str, dict[str, Any]] = {
    # What the last look says
    "S20: a need that is gone at the last look stops the power-off, whatever was true before": story(
        looks=[GO, GONE], did={"cordon": 1, "off": 0, "uncordon": 1}
    ),
    "S20: an exclude label, a pause, a preserve request or another's lease wins before off, and is told": story(
        looks=[GO, VETO], ends=Outcome.RELEASED, says="vetoed", did={"off": 0}, leaves={"unschedulable": False}
    ),
    "S13: one owner per node, other operators included": story(
        lease_holder="node-maintenance", ends=Outcome.RELEASED, says="node-maintenance", did={"off": 0}
    ),
    "S38, S14: without cluster Lease or permit nothing destructive is done, and it is waited for them": story(
        looks=[GO, NOT_LICENSED, NOT_LICENSED], did={"look": 4}, order="look > off"
    ),
    "S20: what the pin's own look does not license is cordoned by the isolation, once a look of that says go": story(
        looks=[NOT_LICENSED, GO, GO], did={"cordon": 1}, order="pin > mark > look > read > look > cordon > look > off"
    ),
    "S9: what was pinned is compared; the machine that it was about is replaced, and nobody waits for it": story(
        plan=PATIENT,
        at="read",
        sees={"uid": "uid-2", "provider_id": "sim://8"},
        ends=Outcome.REPLACED,
        did={"off": 0},
        freed=[],
    ),
    "S20: the second supply of a machine is not switched off on the look before the first": story(
        plan=plan(levels=(TWO_SUPPLIES,)), looks=[GO, GO, VETO], ends=None, says="vetoed", did={"off": 1}, freed=[]
    ),
    # What the devices say
    "more tries of a password that is refused would lock the account": story(
        errors={"off": [WRONG_PASSWORD] * 9},
        ends=None,
        says="refused the login",
        leaves={"errors": {"off": [WRONG_PASSWORD] * 8}},
        freed=[],
    ),
    "a wrong password shows before anything but a cordon is done to the node, and not after the wait": story(
        plan=PATIENT, errors={"read": [WRONG_PASSWORD]}, ends=None, says="refused the login", did={"cordon": 1, "off": 0}
    ),
    "and before that, too, where a person asks for it": story(
        plan=PATIENT, need=BY_HAND, errors={"read": [WRONG_PASSWORD]}, ends=None, says="refused the login", did={"cordon": 0}
    ),
    "S2, S6: off is read again just before each consequence; somebody switched the machine on again": story(
        at="event NodePoweredOff", then={"power": ON, "ignores_off": True}, ends=None, says="says on", freed=[]
    ),
    "S3, S5: silence after the proof licenses nothing and unproves nothing; the device is asked again": story(
        at="event NodePoweredOff", then={"errors": {"read": [SILENT] * 2}}, did={"off": 1}
    ),
    "S2: what a device said a moment ago is no reading right before a taint": story(
        plan=plan(tries=1, restarts=0), at="event NodePoweredOff", then={"silent": set(ON)}, ends=None, freed=[]
    ),
    "S9, S10: a node that stays Ready although its devices say off is a person's case": story(
        need=BY_HAND, ready=True, lingers=10_000, ends=None, says="right machine", freed=[]
    ),
    # Freeing and marks
    "S32: our taint goes before power-on, even when its time is over; a person is told": story(
        stubborn=True, says="still standing against the node", order="taint > untaint > event WorkloadsLeft > on"
    ),
    "S6: what a worker declined has not begun; the need is gone before the next try, and nothing is freed any more": story(
        plan=plan(power_on=False), errors={"free": [DECLINED]}, glances=[GO, GONE], ends=Outcome.FENCED_OFF, freed=[]
    ),
    "S6, S35: a deletion that may have begun is finished, though the need is gone before the next try": story(
        plan=plan(power_on=False, taint_honoured=False),
        errors={"free": [failure(ErrorType.UNREACHABLE, "no answer")]},
        glances=[GO, GONE, GONE],
        ends=Outcome.FENCED_OFF,
        freed=["delete-workload"],
    ),
    "S44: what holds up a machine that is off is told as it is, not as if it had never been touched": story(
        errors={"free": [HELD]},
        ends=None,
        says="can't be finished: the out-of-service taint can't be set: held by another episode",
        did={"off": 1, "event PartlySwitchedOn": 0},
    ),
    "S32: a taint that another episode has come to call its own keeps the machine off, and a person is asked": story(
        errors={"untaint": [HELD]}, ends=None, says="held by another episode", did={"off": 1, "on": 0}
    ),
    "S35: marks of an episode that was terminated are adopted and cleaned, and its lease on the node is given back": story(
        ready=True, mark=left_by("old"), need=LEFT_OVER, did={"off": 0, "cordon": 0, "uncordon": 1}, leaves={"released": ["old"]}
    ),
    "S35: a clean-up leaves a node alone that is not Ready after all, whose machine may be off: somebody is to look": story(
        need=LEFT_OVER,
        mark=left_by("older"),
        ready=True,
        unschedulable=True,
        at="mark",
        then={"ready": False},
        ends=Outcome.RELEASED,
        did={"uncordon": 0},
        leaves={"unschedulable": True},
    ),
    "S35: where the first mark can't be had at all, refused means that nothing is left": story(
        lost={"mark": 9}, ends=Outcome.REFUSED, leaves={"marked": ""}
    ),
} | {
    f"S2, S6: what was asked after what is the workflow's to say, and no worker's whose clock is {minutes} minutes ahead": story(
        ahead=timedelta(minutes=minutes),
        at="event NodePoweredOff",
        then={"others": [PowerState.ON, PowerState.OFF]},  # the off from before that is no proof, however late it ended
        only="off > off > taint > on",
    )
    for minutes in (2, -2)
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(env: WorkflowEnvironment, story: str) -> None:
    await told(env, **STORIES[story])


async def test_a_dead_node_is_isolated_switched_off_proven_freed_switched_on_and_restored(env: WorkflowEnvironment) -> None:
    """S1, S2, S32, S35: the main job, in its order."""
    order = "pin > mark > look > cordon > read > look > off > read > taint > untaint > on > uncordon > release-lease"
    _, result = await told(env, order=order, did={"off": 1, "on": 1}, leaves={"unschedulable": False, "marked": ""})
    assert [reading.state for reading in result.off_proof.readings] == [PowerState.OFF]
    assert (result.restart_proof.previous_boot_id, result.restart_proof.boot_id) == ("boot-1", "boot-2")
    assert result.freed_pods == 3


async def test_a_device_that_fails_is_recorded_once_a_try(env: WorkflowEnvironment) -> None:
    async with fencing(env, World(plan=plan(tries=2, restarts=0), errors={"off": [SILENT] * 2})) as run:
        await run.parked()
        assert [entry.outcome for entry in await run.record() if entry.act == "power-off"] == ["failed"] * 2


async def test_a_node_that_comes_back_during_the_wait_is_only_uncordoned(env: WorkflowEnvironment) -> None:
    """S20: the need is looked at live; a hint of the scanner is confirmed before anything follows from it."""
    order = "cordon > uncordon > release-lease"
    await told(env, plan=PATIENT, at="event NodeIsolated", sees={"ready": True}, order=order, did={"off": 0})


async def test_a_bmc_that_ignores_the_off_is_never_believed(env: WorkflowEnvironment) -> None:
    """S2, S3: accepted is not off. No pod is freed, a person is asked after 2 tries and 1 restart, the permit is free again."""
    _, status = await told(env, ignores_off=True, ends=None, says="says on", did={"off": 4}, freed=[], leaves={"pods": 3})
    assert not status.permit


async def test_a_lost_answer_to_off_is_read_and_never_repeated(env: WorkflowEnvironment) -> None:
    """S33, S34: ambiguous means wait, read, decide."""
    await told(env, lost={"off": 1}, did={"off": 1, "on": 1})


async def test_a_restart_of_the_flow_keeps_what_is_proven(env: WorkflowEnvironment) -> None:
    """S5: failing consequences never lead to a second off."""
    _, result = await told(env, errors={"free": [failure(ErrorType.UNREACHABLE, "the API server is away")] * 3}, did={"off": 1})
    assert any(entry.act == "restart" for entry in result.record)


async def test_a_plain_fencing_opens_at_most_five_sessions_with_its_device(env: WorkflowEnvironment) -> None:
    """S2, S33: what is read back after a command belongs to the command's session, the reading before a consequence does not."""
    world, _ = await told(env, did={"off": 1, "on": 1})
    asked = [act for act in world.acts if act in {"read", "off", "on"}]
    in_one_session = [(before, act) for before, act in pairwise(asked) if act == "read" and before in {"off", "on"}]
    assert in_one_session == [("off", "read"), ("on", "read")]
    assert asked[:4] == ["read", "off", "read", "read"], "tried out; off, read back; read again before the consequences"
    assert len(asked) - len(in_one_session) <= 5


async def test_both_supplies_must_be_off(env: WorkflowEnvironment) -> None:
    """S4: all offs come before any on, and one supply that stays on proves nothing."""
    _, result = await told(env, plan=plan(levels=(TWO_SUPPLIES,)), only="off > off > on > on")
    assert len(result.off_proof.readings) == 2


async def test_a_slow_boot_asks_for_a_person_and_is_not_fenced_again(env: WorkflowEnvironment) -> None:
    """S5: off → on is one shot; the node that comes back while parked is restored without anybody."""
    world = World(boot_seconds=None)
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "not back Ready" in status.problem
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.acknowledge()
        assert str(refused.value.cause).endswith(f"off is not proven; this one asks about something else: {status.problem}")
        assert (world.count("off"), world.count("on")) == (1, 1)
        await run.sees(boot_id="boot-2", ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 1
    assert not world.unschedulable


async def test_the_same_boot_id_is_no_restart(env: WorkflowEnvironment) -> None:
    """A node that says Ready with its old boot id has not been restarted, whatever else it says."""
    world = World(boot_seconds=None)
    async with fencing(env, world) as run:
        await run.did("on")
        await run.sees(ready=True)
        status = await run.parked()
        assert status.restart_proof is None


async def test_where_the_taint_is_not_honoured_pods_are_deleted(env: WorkflowEnvironment) -> None:
    """S1: deletion needs the same proof."""
    honoured = plan(freeing=Freeing.AUTOMATIC, taint_honoured=False)
    _, result = await told(env, plan=honoured, freed=["delete-workload"])
    assert result.freed_pods == 3


@pytest.mark.parametrize(
    "of", [{"node": "node-8"}, {"id_ends": "-2"}, {"node": ""}], ids=["another node's", "one that begins alike", "nobody's"]
)
async def test_an_episode_under_a_foreign_id_fails_at_once(env: WorkflowEnvironment, of: dict[str, Any]) -> None:
    """S13: the workflow id is the mutex, so no other id may hold a node, nor a typo in `temporal workflow start --input`."""
    world = World()
    async with fencing(env, world, **of) as run:
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == ErrorType.INVALID_CONFIG
    assert world.acts == []


async def test_a_ready_node_fenced_by_hand_is_freed_only_once_it_is_seen_down(env: WorkflowEnvironment) -> None:
    """S1: the API server notices a power-off a lease later; until then the node says Ready, and nothing is freed."""
    _, result = await told(env, need=BY_HAND, ready=True, lingers=4)
    assert result.freed_pods == 3


async def test_a_node_that_is_preserved_after_off_is_left_off_until_a_person_resumes(env: WorkflowEnvironment) -> None:
    """S21 goes before S17: consequences are finished, but nobody switches on what somebody preserves."""
    world = World(preserved=True)
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "left off" in status.problem
        assert world.count("on") == 0
        assert world.pods == 0
        world.preserved = False
        await run.resume("released")
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 1


async def test_a_reboot_between_pin_and_off_is_neither_a_proof_nor_in_the_way(env: WorkflowEnvironment) -> None:
    """S5: the boot that counts as old is the one seen at the last look before off."""
    _, result = await told(env, at="cordon", then={"boot_id": "boot-1b"})
    assert (result.restart_proof.previous_boot_id, result.restart_proof.boot_id) == ("boot-1b", "boot-2")


async def test_a_machine_is_left_off_until_it_can_be_seen_whether_it_is_preserved(env: WorkflowEnvironment) -> None:
    """S21: not being able to read who objects is no leave to switch on. Seen down, need not gone; then the doubt."""
    doubt = {"glances": [GO, NOT_LICENSED]}
    _, result = await told(env, plan=plan(freeing=Freeing.NONE), at="event NodePoweredOff", then=doubt, did={"on": 1})
    assert any("is to be left off can't be read" in entry.detail for entry in result.record)


async def test_a_clean_up_waits_until_its_node_can_be_looked_at(env: WorkflowEnvironment) -> None:
    """S20, S35: what can't be read now is neither taken off nor left for good."""
    marked = {"ready": True, "mark": left_by("old"), "need": LEFT_OVER}
    await told(env, **marked, glances=[NOT_LICENSED, GO], did={"uncordon": 1}, leaves={"released": ["old"]})


async def test_hearsay_ends_no_parked_episode(env: WorkflowEnvironment) -> None:
    """S35: what a signal says is believed only once it was read."""
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        world.errors["look"].extend([failure(ErrorType.FORBIDDEN, "forbidden")] * 50)
        await run.tell(replace(world.seen_node(), uid="", provider_id="", system_uuid=""))
        failed = ("look", "failed")
        await asked_until(env, run.record, lambda record: failed in [(entry.act, entry.outcome) for entry in record])
        world.errors["look"].clear()
        await run.abort()
        await run.result(Outcome.ABORTED)


# Levels of devices: the first whose devices are all proven off fences the node (Pacemaker's topology, S4).

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

STORIES_OF_LEVELS: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("story", STORIES_OF_LEVELS)
async def test_a_story_of_levels(env: WorkflowEnvironment, story: str) -> None:
    await told(env, **STORIES_OF_LEVELS[story])


async def test_a_silent_bmc_is_followed_by_both_power_supplies_and_they_go_on_first(env: WorkflowEnvironment) -> None:
    """S3, S4: silence is never off; the proof is of all devices of the level that answered."""
    both = commands("off a", "off b", "on a", "on b")
    _, result = await told(env, plan=plan(levels=LEVELS), silent={BMC.endpoint}, freed=["taint"], leaves={"commands": both})
    assert {reading.endpoint for reading in result.off_proof.readings} == {PDU_A.endpoint, PDU_B.endpoint}


async def test_a_device_that_is_another_systems_ends_every_level(env: WorkflowEnvironment) -> None:
    """S9, S39: it says so of the machine, not of itself: the next level would be switched off as wrongly."""
    world = World(plan=once(ONE_SUPPLY), errors={"off": [failure(ErrorType.TARGET_CHANGED, "it says that it is server-8")]})
    status = await parked(env, world)
    assert "it says that it is server-8" in status.problem
    assert world.commands == []
