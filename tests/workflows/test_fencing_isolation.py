"""Isolation in the order of its plan, and its undoing: paths are cut, read as cut, and given back only when that is safe."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import DrainResult
from activities.errors import ErrorType, failure
from policy.episode.messages import Need, NeedKind, Outcome
from policy.episode.permits import PermitAnswer, PermitDecision, PortionAnswer
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, CutStorage, FencingPlan
from policy.fence.power import PowerState, VolumeState
from tests.workflows.fencing_run import fencing, story, told
from tests.workflows.plans import BACK, CLOUD, CUT, DETACH, DRAIN, FREE, LIFT, PORT, QUARANTINE, SAN, TAINT, switched
from tests.workflows.surroundings import let_pass
from tests.workflows.world import World, plan

FOR_YEARS = timedelta(days=3650)
TRUSTED = KdumpRule(trusted=True)
QUEUED = PermitAnswer(decision=PermitDecision.QUEUED, reason="one node at a time")
ATTACHED, UNKNOWN = VolumeState.ATTACHED, VolumeState.UNKNOWN


def fabric_only(**changes: object) -> FencingPlan:
    """No power device at all: the port is the fence."""
    return switched(**({"levels": (), "isolation": (CORDON, CUT, FREE)} | changes))


def volumes_only(**changes: object) -> FencingPlan:
    """The machine keeps running; its volumes are taken away."""
    return plan(**({"levels": (), "isolation": (CORDON, DETACH, FREE), "recovery": (UNCORDON,)} | changes))


STORIES: dict[str, dict[str, Any]] = {
    "a machine that the plan leaves off ends fenced off": story(
        plan=plan(power_on=False), ends=Outcome.FENCED_OFF, did={"on": 0}, freed=["taint"]
    ),
    "without mark-schedulable in recovery the cordon stays": story(
        plan=plan(recovery=()), leaves={"unschedulable": True, "marked": ""}
    ),
    "a taint of the configuration is set in its place": story(
        plan=plan(isolation=(TAINT, CORDON)), order="taint example.com/sick > cordon"
    ),
    "S29: a pod that a filter refuses fails the step before anything is evicted": story(
        plan=plan(isolation=(DRAIN,), tries=1, restarts=0),
        drains=[DrainResult(errors=("default/bare: nothing manages it",))],
        ends=None,
        says="default/bare: nothing manages it",
        leaves={"commands": []},
    ),
    "S35: an abort after the workload was freed leaves the port cut, and says so": story(
        plan=switched(), at="taint", abort="off", ends=Outcome.ABORTED, says=f"left cut: {PORT.endpoint}", did={"restore-path": 0}
    ),
    "S36: the mark says off from the proof to the power-on, so that nobody is warned of data at risk meanwhile": story(
        only="off > note-off > taint > note-on > on"
    ),
    "S2, S33: accepted is not given up, a lost answer is read and not repeated, and a slow cloud is waited for": story(
        plan=plan(terminate_instance=True),
        lost={"terminate": 1},
        terminate_takes=timedelta(seconds=8),
        ends=Outcome.FENCED_OFF,
        did={"terminate": 1, "read-given-up": 6},  # which takes longer than one try
    ),
    "S2: a path is read again just before its pods are freed, and it is open again": story(
        plan=fabric_only(tries=1, restarts=0),
        at="event PathCut",
        then={"paths": {PORT.endpoint: PowerState.ON}},
        ends=None,
        says="not proven cut",
        did={"free-cut-pods": 0},
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(env: WorkflowEnvironment, story: str) -> None:
    await told(env, **STORIES[story])


async def test_the_port_is_cut_before_power_and_given_back_after_the_restart(env: WorkflowEnvironment) -> None:
    only = "cordon > note cut > cut-path > off > taint > on > restore-path > note back > uncordon"
    await told(env, plan=switched(), only=only, leaves={"noted": set()})


async def test_a_node_that_is_back_before_power_off_gets_its_port_back_by_itself(env: WorkflowEnvironment) -> None:
    """No consequence was carried out: no reboot is needed for what was never freed."""
    patient = switched(wait_before_power=timedelta(hours=1))
    await told(env, plan=patient, at="event PathCut", sees={"ready": True}, did={"restore-path": 1}, leaves={"commands": []})


async def test_a_port_that_does_not_close_fails_the_step_and_touches_no_power(env: WorkflowEnvironment) -> None:
    """S2: the proposal's automaton; an accepted command is no proof."""
    world = World(plan=switched(tries=2, restarts=1), stuck={PORT.endpoint})
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "the path is not cut" in status.problem
        assert status.restarts == 1
        assert world.count("cut-path") == 4
        assert world.commands == []
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert world.count("restore-path") == 1  # it may have been cut after all: what we commanded is given back


@pytest.mark.parametrize("found", [PowerState.OFF, PowerState.ON])
async def test_an_abort_leaves_a_port_as_it_was_found(env: WorkflowEnvironment, found: PowerState) -> None:
    """S35: whoever had cut it before us may have a reason that we do not know."""
    world = World(plan=switched())
    world.paths[PORT.endpoint] = found
    async with fencing(env, world, at="read-path") as run:
        await run.did("cut-path")
        await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert world.paths[PORT.endpoint] is found
    assert (f"left cut: {PORT.endpoint}" in result.message) is (found is PowerState.OFF)
    assert world.commands == []


async def test_a_method_waits_its_delay_and_looks_again(env: WorkflowEnvironment) -> None:
    """S20, S47: a node that comes back meanwhile is not isolated."""
    world = World(plan=plan(isolation=(replace(CORDON, delay=timedelta(minutes=10)),)))
    async with fencing(env, world) as run:
        await run.until(lambda status: status.doing.startswith("waits its delay before "))
        world.ready = True
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.count("cordon") == 0


async def test_a_person_s_node_waits_before_isolation_and_a_check_s_does_not(env: WorkflowEnvironment) -> None:
    """The proposal's time in `new`."""
    patient, drill = plan(wait_before_isolation=timedelta(hours=2)), Need(kind=NeedKind.PERSON, reason="drill")
    _, persons = await told(env, plan=patient, need=drill)
    _, checks = await told(env, plan=patient)
    assert persons.ended - persons.started >= timedelta(hours=2) > checks.ended - checks.started


async def test_pods_behind_a_cut_path_are_freed_while_the_machine_runs(env: WorkflowEnvironment) -> None:
    """S1: under `path cut proven`, and only those; the port is given back after the restart that somebody else made."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        assert world.freed_storage == SAN
        assert world.count("restore-path") == 0
        await run.sees(ready=True, boot_id="boot-2")
        result = await run.result()
    assert (result.outcome, result.freed_pods) == (Outcome.RECOVERED, 2)
    assert world.count("restore-path") == 1
    assert world.commands == []


async def test_an_abort_says_that_a_path_with_freed_pods_stays_cut(env: WorkflowEnvironment) -> None:
    """S35, S44: he was told that what was added to the node is taken off again."""
    async with fencing(env, World(plan=fabric_only())) as run:
        await run.did("free-cut-pods")
        told = await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert f"left cut: {PORT.endpoint}" in result.message
    assert f"{PORT.endpoint} stays cut" in told


async def test_a_path_that_others_open_before_its_pods_are_freed_is_cut_once_more(env: WorkflowEnvironment) -> None:
    """S2, S35: it was read as open for ever after, and no resume helped."""
    world = World(plan=fabric_only(tries=1, restarts=1))
    async with fencing(env, world, at="event PathCut") as run:
        world.paths[PORT.endpoint] = PowerState.ON
        run.go_on()
        await run.did("free-cut-pods")
        assert (world.count("cut-path"), world.paths[PORT.endpoint]) == (2, PowerState.OFF)
        await run.sees(ready=True, boot_id="boot-2")
        await run.result(Outcome.RECOVERED)


@pytest.mark.parametrize("then", ["a person's word", "a restart made by hand"])
async def test_a_node_that_comes_back_unrestarted_after_its_pods_were_freed_stays_cut(
    env: WorkflowEnvironment, then: str
) -> None:
    """Its processes may hold what somebody else writes by now: a restart or a person's word first."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        assert f"{PORT.endpoint} is left cut: pods were freed" in (await run.parked()).problem
        assert world.count("restore-path") == 0
        if then == "a person's word":
            world.word = True
            await run.return_path()
        else:
            await run.sees(boot_id="boot-2", ready_since=None)
        await run.result(Outcome.RECOVERED)
    assert world.count("restore-path") == 1


async def test_s49_a_path_whose_word_takes_more_than_a_week_is_given_back(env: WorkflowEnvironment) -> None:
    """The word was heard, and the command refused for a seal that had ended, until somebody aborted."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        await run.parked()
        await let_pass(env, run.handle, timedelta(days=8))
        world.word = True
        await run.return_path()
        await run.result(Outcome.RECOVERED)
    assert (world.count("restore-path"), world.count("pin")) == (1, 2)


async def test_s49_new_seals_that_are_not_to_be_had_are_asked_for_again_after_an_hour(env: WorkflowEnvironment) -> None:
    """And not with each look: a node whose configuration is gone costs no more than it did."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        await run.parked()
        world.errors["pin"] = [failure(ErrorType.INVALID_CONFIG, "the template is gone")] * 2
        await let_pass(env, run.handle, timedelta(days=8))
        world.word = True
        await run.return_path()
        await run.until(lambda status: "has signed it" in status.problem)
        assert world.count("pin") == 2
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.result(Outcome.RECOVERED)
    assert (world.count("restore-path"), world.count("pin")) == (1, 4)


async def test_a_signal_that_nothing_confirms_gives_no_path_back(env: WorkflowEnvironment) -> None:
    """S42, S43: anybody who can signal may say that the node has another boot; its pods run elsewhere by now. Nor does it once
    the API is away."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        await run.parked()
        world.errors["look"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 500
        await run.tell(replace(world.seen_node(), boot_id="boot-2"))
        await let_pass(env, run.handle, timedelta(minutes=5))
        assert f"{PORT.endpoint} is left cut: pods were freed" in (await run.parked()).problem
        assert (world.count("restore-path"), world.paths[PORT.endpoint]) == (0, PowerState.OFF)
        world.errors["look"].clear()
        world.boot_id = "boot-2"  # told by nobody: what the failed look has missed is looked for again
        await run.result(Outcome.RECOVERED)


async def test_a_node_that_reboots_in_the_queue_for_a_permit_is_freed_as_the_boot_that_it_is_on(env: WorkflowEnvironment) -> None:
    """S9: who is fenced stays pinned from the start, which boot of it only once it may be fenced."""
    world = World(plan=fabric_only(), answers=[QUEUED])
    async with fencing(env, world, permit_granted=False, at="ask-permit") as run:
        world.boot_id = "boot-2"
        run.go_on()
        await run.did("free-cut-pods")
        assert [entry.detail for entry in await run.record() if entry.outcome == "boot id"] == ["boot-1 has become boot-2"]
        await run.sees(ready=True)
        assert "left cut" in (await run.parked()).problem  # it is on the boot whose pods were freed
    assert world.count("restore-path") == 0


async def test_pods_of_volumes_that_read_available_are_freed_and_the_root_stays(env: WorkflowEnvironment) -> None:
    """S1: the machine runs on, for analysis."""
    attached = {"vol-1": ATTACHED, "vol-2": ATTACHED}
    world = World(plan=volumes_only(), volumes=attached)
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        assert [act for act in world.acts if act.startswith("detach ")] == ["detach vol-1", "detach vol-2"]
        assert world.freed_storage == CutStorage(handles=("vol-1", "vol-2"))
        await run.sees(ready=True, boot_id="boot-2")
        await run.result(Outcome.RECOVERED)


async def test_a_volume_that_stays_attached_frees_nothing(env: WorkflowEnvironment) -> None:
    """S3."""
    state = {"volumes": {"vol-1": ATTACHED, "vol-2": UNKNOWN}, "stuck": {"vol-1"}}
    await told(env, plan=volumes_only(tries=1, restarts=0), **state, ends=None, says="vol-1 is attached", freed=[])


async def test_a_quarantine_is_noted_licenses_nothing_and_is_lifted_in_recovery(env: WorkflowEnvironment) -> None:
    """S1: open connections live on; an answer that was lost is waited out and asked for again."""
    slow = plan(isolation=(QUARANTINE,), recovery=(LIFT,), wait_before_power=timedelta(hours=1))
    world = World(plan=slow, lost={"quarantine": 1})
    async with fencing(env, world) as run:
        await run.until(lambda status: status.doing.startswith("waits before power"))
        assert world.noted == {f"{CLOUD.endpoint}#quarantine"}
        assert world.consequences == []
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert (world.count("quarantine"), world.count("lift-quarantine")) == (2, 1)
    assert world.noted == set()


async def test_where_a_worker_declines_a_quarantine_or_a_detachment_another_one_is_asked(env: WorkflowEnvironment) -> None:
    """S33: it has begun nothing, so that no try has failed."""
    declined = failure(ErrorType.WRONG_CLOCK, "its clock is behind: it leaves this to another one")
    isolated = World(plan=plan(isolation=(QUARANTINE,), recovery=(LIFT,)), errors={"quarantine": [declined]})
    volumes = World(plan=volumes_only(tries=1, restarts=0), volumes={"vol-1": ATTACHED}, errors={"detach": [declined]})
    for world, did in ((isolated, "quarantine"), (volumes, "detach vol-1")):
        async with fencing(env, world) as run:
            await run.did(did)
            if world is volumes:
                await run.did("free-cut-pods")
                await run.sees(ready=True, boot_id="boot-2")
            result = await run.result(Outcome.RECOVERED)
        assert [entry for entry in result.record if entry.outcome == "failed"] == []


async def test_a_drain_is_repeated_until_it_is_done_and_does_not_wait_for_the_proof(env: WorkflowEnvironment) -> None:
    """S30."""
    rounds = [DrainResult(evicted=2, left=1, names=("default/web",)), DrainResult(evicted=1, withheld=("db-0: attached",))]
    _, result = await told(env, plan=plan(isolation=(CORDON, DRAIN)), drains=rounds, did={"drain": 2})
    assert [entry.detail for entry in result.record if entry.act == "drain"] == ["3 pods evicted; left: db-0: attached"]


async def test_a_budget_that_blocks_a_drain_does_not_hold_up_fencing_for_ever(env: WorkflowEnvironment) -> None:
    blocked = DrainResult(left=1, names=("default/db-0",), blocked=("default/db-0: budget db",))
    _, result = await told(env, plan=plan(isolation=(DRAIN,)), drains=[blocked] * 100)
    assert [entry.outcome for entry in result.record if entry.act == "drain"] == ["incomplete"]


async def test_power_off_waits_for_a_crash_dump_and_no_longer(env: WorkflowEnvironment) -> None:
    """S2: messages delay, they prove nothing."""
    _, result = await told(env, plan=plan(kdump=KdumpRule()), kdump=timedelta(minutes=2), order="read-kdump > off")
    (heard,) = [entry for entry in result.record if entry.act == "kdump"]
    assert (heard.outcome, heard.at - result.started >= timedelta(minutes=2)) == ("ended", True)


async def test_messages_that_never_end_hold_power_off_no_longer_than_the_bound(env: WorkflowEnvironment) -> None:
    """Anybody can send them."""
    _, result = await told(env, plan=plan(kdump=KdumpRule(longest=timedelta(minutes=5))), kdump=timedelta(days=1))
    (heard,) = [entry for entry in result.record if entry.act == "kdump"]
    assert (heard.outcome, heard.at - result.started < timedelta(minutes=6)) == ("overdue", True)


async def test_without_a_listener_a_configured_wait_is_short_and_said(env: WorkflowEnvironment) -> None:
    _, result = await told(env, plan=plan(kdump=KdumpRule()))
    assert "no listener of kdump messages answers" in [entry.detail for entry in result.record if entry.act == "kdump"]


async def test_pods_of_a_trusted_dump_are_freed_before_power_off_which_follows_all_the_same(env: WorkflowEnvironment) -> None:
    """S1, S20: each round after a last look and a fresh message; the rest of the proof is what it always is."""
    only = "free-while-dumping > free-while-dumping > off > on"
    world, result = await told(env, plan=plan(kdump=TRUSTED), kdump=timedelta(minutes=2), dumping_frees=2, only=only)
    assert result.freed_pods == 3
    assert result.kernel_dead is not None
    assert [entry.detail for entry in result.record if (entry.act, entry.outcome) == ("kernel-dead", "trusted")] == [
        "kernel dead (fence_kdump, trusted network): 3 messages from 10.0.0.7, the last one 0s ago"
    ]
    rounds = [place for place, act in enumerate(world.acts) if act == "free-while-dumping"]
    assert [world.acts[place - 2 : place] for place in rounds] == [["look", "read-kdump"]] * 2
    (ended,) = [entry for entry in result.record if (entry.act, entry.outcome) == ("kdump", "ended")]
    assert ended.at - result.started >= timedelta(minutes=2)
    assert result.off_proof is not None


async def test_without_the_option_a_dump_frees_nothing(env: WorkflowEnvironment) -> None:
    """S2: the messages are unauthenticated."""
    dump = {"plan": plan(kdump=KdumpRule()), "kdump": timedelta(minutes=2)}
    _, result = await told(env, **dump, only="off > taint", did={"free-while-dumping": 0})
    assert result.kernel_dead is None


async def test_a_node_that_boots_after_its_trusted_dump_needs_no_power_command(env: WorkflowEnvironment) -> None:
    """S35: restart proven, by its new boot id."""
    dump = {"plan": plan(kdump=TRUSTED, wait_before_power=FOR_YEARS), "kdump": timedelta(days=1), "at": "free-while-dumping"}
    _, result = await told(env, **dump, sees={"boot_id": "boot-2", "ready": True}, leaves={"commands": []})
    assert result.restart_proof.boot_id == "boot-2"


async def test_s20_an_abort_while_pods_of_a_dead_kernel_are_counted_frees_none(env: WorkflowEnvironment) -> None:
    """A hold was heard there, and an abort was not."""
    world = World(plan=plan(kdump=TRUSTED, wait_before_power=FOR_YEARS), kdump=timedelta(days=1), per_minute=10)
    world.portions = [PortionAnswer(pods=3, until=datetime(2100, 1, 1, tzinfo=UTC))]
    async with fencing(env, world, at="ask for 3 pods") as run:
        assert "power has not been touched" in await run.abort()
        await run.result(Outcome.ABORTED)
    assert (world.consequences, world.pods) == ([], 3)


async def test_a_node_that_was_said_to_be_dead_and_is_well_on_the_same_boot_is_a_person_s_case(env: WorkflowEnvironment) -> None:
    """S2: the message was a lie, and its pods run twice. Nobody calls that recovered, however often it is seen."""
    world = World(plan=plan(kdump=TRUSTED, wait_before_power=FOR_YEARS), kdump=timedelta(days=1))
    async with fencing(env, world, at="free-while-dumping") as run:
        await run.sees(ready=True)
        status = await run.parked()
        assert "no restart of it is proven" in status.problem
        await run.tell(world.seen_node())
        await run.until(lambda status: "came back by itself; but its pods" in status.problem)
        await run.abort()
        result = await run.result()
    assert (result.outcome, world.commands) == (Outcome.ABORTED, [])
    assert "its pods may have been freed while its kernel dumped" in result.message


async def test_the_first_power_command_ends_the_trust_in_messages(env: WorkflowEnvironment) -> None:
    """S6: whoever speaks after an off that had no effect is no kernel that is known to be dead."""
    rule = KdumpRule(trusted=True, longest=timedelta(minutes=1))
    dump = {"plan": plan(kdump=rule, tries=1), "kdump": timedelta(days=1), "dumping_frees": 0}
    world, status = await told(env, **dump, ignores_off=True, ends=None, did={"off": 2}, leaves={"pods": 3})
    assert status.restarts == 1
    assert "free-while-dumping" not in world.acts[world.acts.index("off") :]


async def test_the_node_is_deleted_last_and_its_machine_registers_anew(env: WorkflowEnvironment) -> None:
    """S1, S9: only under the proof; the new Node is the same machine."""
    await told(env, plan=plan(delete_node=True), only="taint > delete-node > on")


async def test_a_machine_is_given_up_only_once_it_is_off_and_freed(env: WorkflowEnvironment) -> None:
    """S1."""
    only, said = "off > taint > terminate > read-given-up", "given up for good (ipmi://10.0.0.7:623: number-1 is gone)"
    await told(env, plan=plan(terminate_instance=True), ends=Outcome.FENCED_OFF, says=said, only=only, did={"on": 0})


@pytest.mark.parametrize("ahead", [timedelta(minutes=-2), timedelta(0), timedelta(minutes=2)], ids=["behind", "right", "ahead"])
async def test_a_message_from_before_the_node_fell_silent_is_no_word_of_this_crash(
    env: WorkflowEnvironment, ahead: timedelta
) -> None:
    """S1, S6, S43: a listener's clock that is ahead makes no old message a new one, and none that is behind does the reverse."""
    dump, old = {"plan": plan(kdump=TRUSTED), "ahead": ahead}, {"kdump": timedelta(seconds=2), "heard_ago": timedelta(seconds=6)}
    await told(env, **dump, **old, did={"free-while-dumping": 0})
    await told(env, **dump, kdump=timedelta(minutes=1), did={"free-while-dumping": 1})


async def test_a_quarantine_is_lifted_by_an_abort_and_no_person_is_told_that_it_stays(env: WorkflowEnvironment) -> None:
    """S35, S44: it licenses nothing, so that nothing was freed because of it."""
    world = World(plan=fabric_only(isolation=(CORDON, QUARANTINE, CUT, FREE), recovery=(LIFT, BACK, UNCORDON)))
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        told = await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert world.count("lift-quarantine") == 1
    assert [each for each in told.split() if QUARANTINE.device.endpoint in each] == []
    assert f"{PORT.endpoint} stays cut" in told
    assert result.message.endswith(f"left cut: {PORT.endpoint}")
