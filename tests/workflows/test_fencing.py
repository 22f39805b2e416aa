"""Fencing as a story: what is done in which order, what is never done, and how it ends. Each test names the rule it holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import LookVerdict
from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome, Phase
from policy.episode.needs import Need, NeedKind
from policy.fence.plan import Freeing, PowerDevice
from policy.fence.power import PowerState
from tests.workflows.fencing_run import fenced, fencing, parked
from tests.workflows.surroundings import moment, patience
from tests.workflows.world import World, left_by, plan

TWO_SUPPLIES = (
    PowerDevice(driver="ipmi", endpoint="pdu://a/7"),
    PowerDevice(driver="ipmi", endpoint="pdu://b/7"),
)


def order(acts: list[str], *names: str) -> None:
    """Each act happened, one after the other."""
    rest = iter(acts)
    assert all(name in rest for name in names), acts


async def test_a_dead_node_is_isolated_switched_off_proven_freed_switched_on_and_restored(env: WorkflowEnvironment) -> None:
    """S1, S2, S32, S35: the main job, in its order."""
    world = World()
    result = await fenced(env, world)
    order(world.acts, "pin", "mark", "read", "cordon", "off", "read", "taint", "untaint", "on", "uncordon", "release-lease")
    assert (world.count("off"), world.count("on")) == (1, 1)
    assert [reading.state for reading in result.off_proof.readings] == [PowerState.OFF]
    assert (result.restart_proof.previous_boot_id, result.restart_proof.boot_id) == ("boot-1", "boot-2")
    assert result.freed_pods == 3
    assert not world.cordoned
    assert not world.marked


async def test_a_node_that_comes_back_during_the_wait_is_only_uncordoned(env: WorkflowEnvironment) -> None:
    """S20: the need is looked at live; a hint of the scanner is confirmed before anything follows from it."""
    world = World(plan=plan(wait_before_power=timedelta(days=3650)))
    async with fencing(env, world) as run:
        with pytest.MonkeyPatch.context():
            world.gates["event NodeIsolated"] = asyncio.Event()
            await run.did("event NodeIsolated")
            await run.sees(ready=True)
            world.gates["event NodeIsolated"].set()
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 0
    order(world.acts, "cordon", "uncordon", "release-lease")


async def test_a_need_that_is_gone_at_the_last_look_stops_the_power_off(env: WorkflowEnvironment) -> None:
    """S20: whatever was true before, the last look decides."""
    world = World(looks=[LookVerdict.GO, LookVerdict.NEED_GONE])
    await fenced(env, world)
    assert (world.count("cordon"), world.count("off"), world.count("uncordon")) == (1, 0, 1)


async def test_a_veto_before_off_wins_and_is_told(env: WorkflowEnvironment) -> None:
    """S20: exclude label, pause, preserve request or another's maintenance lease."""
    world = World(looks=[LookVerdict.GO, LookVerdict.VETOED])
    result = await fenced(env, world, Outcome.RELEASED)
    assert "vetoed" in result.message
    assert world.count("off") == 0
    assert not world.cordoned


async def test_another_holder_of_the_node_lease_vetoes(env: WorkflowEnvironment) -> None:
    """S13: one owner per node, other operators included."""
    world = World(lease_holder="node-maintenance")
    result = await fenced(env, world, Outcome.RELEASED)
    assert "node-maintenance" in result.message
    assert world.count("off") == 0


async def test_an_unlicensed_act_waits_until_it_is_licensed(env: WorkflowEnvironment) -> None:
    """S38, S14: without cluster Lease or permit nothing destructive is done."""
    world = World(looks=[LookVerdict.GO, LookVerdict.NOT_LICENSED, LookVerdict.NOT_LICENSED])
    await fenced(env, world)
    assert world.count("look") == 4
    order(world.acts, "look", "off")


async def test_a_bmc_that_ignores_the_off_is_never_believed(env: WorkflowEnvironment) -> None:
    """S2, S3: accepted is not off. No pod is freed, a person is asked, the permit is free again."""
    world = World(ignores_off=True)
    status = await parked(env, world)
    assert "says on" in status.problem
    assert not status.permit
    assert world.consequences() == []
    assert world.count("off") == 4  # 2 tries, 1 restart
    assert world.pods == 3


async def test_a_bmc_that_never_answers_parks_the_episode(env: WorkflowEnvironment) -> None:
    """S3: no answer is never off."""
    silent = failure(ErrorType.UNREACHABLE, "ipmi://10.0.0.7:623: no answer from the BMC")
    world = World(off_errors=[silent] * 10, read_errors=[silent] * 40)
    status = await parked(env, world)
    assert "no answer from the BMC" in status.problem
    assert world.consequences() == []
    assert world.count("off") == 0


async def test_a_wrong_password_asks_for_a_person_at_once(env: WorkflowEnvironment) -> None:
    """Unauthorized is never retried: more tries would lock the account."""
    world = World(off_errors=[failure(ErrorType.UNAUTHORIZED, "the BMC refused the login")] * 9)
    status = await parked(env, world)
    assert "refused the login" in status.problem
    assert len(world.off_errors) == 8
    assert world.consequences() == []


async def test_another_machine_under_the_name_is_not_the_target(env: WorkflowEnvironment) -> None:
    """S9: what was pinned is compared at the last look. The machine that it was about is replaced, and nobody waits for it."""
    world = World(plan=plan(wait_before_power=timedelta(days=3650)))
    async with fencing(env, world, at="cordon") as run:
        await run.sees(uid="uid-2", provider_id="sim://8")
        await run.result(Outcome.REPLACED)
    assert world.count("off") == 0
    assert world.consequences() == []


async def test_a_lost_answer_to_off_is_read_and_never_repeated(env: WorkflowEnvironment) -> None:
    """S33, S34: ambiguous means wait, read, decide."""
    world = World(off_lost=1)
    await fenced(env, world)
    assert (world.count("off"), world.count("on")) == (1, 1)


async def test_a_restart_of_the_flow_keeps_what_is_proven(env: WorkflowEnvironment) -> None:
    """S5: failing consequences never lead to a second off."""
    refused = failure(ErrorType.UNREACHABLE, "the API server is away")
    world = World(free_errors=[refused] * 3)
    result = await fenced(env, world)
    assert world.count("off") == 1
    assert any(entry.act == "restart" for entry in result.record)


async def test_a_proof_that_no_longer_holds_licenses_nothing(env: WorkflowEnvironment) -> None:
    """S2, S6: off is read again just before each consequence; somebody switched the machine on again."""
    world = World()
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.power = dict.fromkeys(world.power, PowerState.ON)
        world.ignores_off = True
        status = await run.parked()
        assert world.consequences() == []
        assert "says on" in status.problem


async def test_both_supplies_must_be_off(env: WorkflowEnvironment) -> None:
    """S4: all offs come before any on, and one supply that stays on proves nothing."""
    world = World(plan=plan(levels=(TWO_SUPPLIES,)))
    result = await fenced(env, world)
    assert len(result.off_proof.readings) == 2
    assert [act for act in world.acts if act in {"off", "on"}] == ["off", "off", "on", "on"]


async def test_a_slow_boot_asks_for_a_person_and_is_not_fenced_again(env: WorkflowEnvironment) -> None:
    """S5: off → on is one shot; the node that comes back while parked is restored without anybody."""
    world = World(boots=False)
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "not back Ready" in status.problem
        assert (world.count("off"), world.count("on")) == (1, 1)
        await run.sees(boot_id="boot-2", ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 1
    assert not world.cordoned


async def test_the_same_boot_id_is_no_restart(env: WorkflowEnvironment) -> None:
    """A node that says Ready with its old boot id has not been restarted, whatever else it says."""
    world = World(boots=False)
    async with fencing(env, world) as run:
        await run.did("on")
        await run.sees(ready=True)
        status = await run.parked()
        assert status.restart_proof is None


async def test_a_failing_on_never_sends_another_off(env: WorkflowEnvironment) -> None:
    """S5: tried again, read first; no second off."""
    world = World(on_errors=[failure(ErrorType.UNREACHABLE, "no answer"), failure(ErrorType.AMBIGUOUS, "lost")])
    await fenced(env, world)
    assert (world.count("off"), world.count("on")) == (1, 1)


async def test_marks_without_an_owner_are_only_cleaned_up(env: WorkflowEnvironment) -> None:
    """S35: marks of an episode that was terminated are adopted and cleaned."""
    world = World(ready=True, mark=left_by("old"), need=Need(kind=NeedKind.CLEAN_UP, reason="marks of old"))
    await fenced(env, world)
    assert world.count("off") == 0
    assert world.count("cordon") == 0
    assert world.count("uncordon") == 1
    assert world.released == ["old"], "and the lease on the node, which it could not give back"


async def test_workloads_that_stay_are_told_and_not_waited_for_for_ever(env: WorkflowEnvironment) -> None:
    """S32: our taint goes before power-on, even when its time is over; a person is told."""
    world = World(pods_stay=True)
    result = await fenced(env, world)
    assert "still standing against the node" in result.message
    order(world.acts, "taint", "untaint", "event WorkloadsLeft", "on")


async def test_where_the_taint_is_not_honoured_pods_are_deleted(env: WorkflowEnvironment) -> None:
    """S1: deletion needs the same proof."""
    world = World(plan=plan(freeing=Freeing.AUTOMATIC, taint_honoured=False))
    result = await fenced(env, world)
    assert world.consequences() == ["delete-workload"]
    assert result.freed_pods == 3


async def test_a_terminated_predecessors_act_is_waited_out_before_power_is_touched(server: WorkflowEnvironment) -> None:
    """S34: its hard deadline plus a margin pass before the first reading or command."""
    world = World(mark=left_by("old"))
    async with fencing(server, world) as run:
        result = await run.result()
        history = await run.handle.fetch_history()
    assert result.outcome is Outcome.RECOVERED
    timers = [event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta() for event in history.events
              if event.HasField("timer_started_event_attributes")]  # fmt: skip
    assert any(timer >= timedelta(seconds=45) for timer in timers)  # longest act, its window to begin, and the margin


@pytest.mark.parametrize("of", [{"node": "node-8"}, {"id_ends": "-2"}], ids=["another node's", "one that begins alike"])
async def test_an_episode_under_a_foreign_id_fails_at_once(env: WorkflowEnvironment, of: dict[str, Any]) -> None:
    """S13: the workflow id is the mutex, so no other id may hold a node."""
    world = World()
    async with fencing(env, world, **of) as run:
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == ErrorType.INVALID_CONFIG
    assert world.acts == []


async def test_a_ready_node_fenced_by_hand_is_freed_only_once_it_is_seen_down(env: WorkflowEnvironment) -> None:
    """S1: the API server notices a power-off a lease later; until then the node says Ready, and nothing is freed."""
    by_hand = Need(kind=NeedKind.PERSON, reason="drill", requester="ada")
    world = World(need=by_hand, ready=True, lingers=4)
    result = await fenced(env, world)
    assert result.freed_pods == 3


async def test_a_node_that_stays_ready_although_its_devices_say_off_is_a_persons_case(env: WorkflowEnvironment) -> None:
    """S9, S10: then the devices feed another machine than the one we look at."""
    world = World(need=Need(kind=NeedKind.PERSON, reason="drill", requester="ada"), ready=True, lingers=10_000)
    status = await parked(env, world)
    assert "right machine" in status.problem
    assert world.consequences() == []


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


async def test_a_veto_after_the_machine_was_touched_is_a_persons_case(env: WorkflowEnvironment) -> None:
    """S35: nobody may call "given up before power-off" what may be off."""
    go, veto = LookVerdict.GO, LookVerdict.VETOED
    world = World(ignores_off=True, looks=[go, go, veto])
    status = await parked(env, world)
    assert "vetoed" in status.problem
    assert world.count("uncordon") == 0


async def test_a_lost_cluster_lease_at_a_consequence_is_waited_with(env: WorkflowEnvironment) -> None:
    """S38: the scanner is away for a while; no try is used up and nothing is given up."""
    lost = [failure(ErrorType.NOT_LICENSED, "the cluster Lease is not held") for _ in range(9)]
    world = World(free_errors=lost)
    result = await fenced(env, world)
    assert result.freed_pods == 3
    assert world.count("off") == 1


async def test_a_device_that_falls_silent_after_the_proof_takes_nothing_back(env: WorkflowEnvironment) -> None:
    """S3, S5: silence licenses nothing and unproves nothing; it is asked again."""
    silent = failure(ErrorType.UNREACHABLE, "no answer")
    world = World()
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.read_errors.extend([silent] * 2)
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 1


async def test_a_node_that_came_back_with_one_supply_off_gets_it_switched_on(env: WorkflowEnvironment) -> None:
    """S4: "nothing more to do" is only said of a machine whose supplies are all on."""
    unreachable = failure(ErrorType.UNREACHABLE, "no answer")
    world = World(plan=plan(levels=(TWO_SUPPLIES,), tries=1, restarts=0))
    async with fencing(env, world, at="off") as run:
        world.off_errors.append(unreachable)
        await run.parked()
        assert sorted(world.power.values()) == [PowerState.OFF, PowerState.ON]
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert set(world.power.values()) == {PowerState.ON}
    assert world.consequences() == []


async def test_a_reboot_between_pin_and_off_is_neither_a_proof_nor_in_the_way(env: WorkflowEnvironment) -> None:
    """S5: the boot that counts as old is the one seen at the last look before off."""
    world = World()
    async with fencing(env, world, at="cordon") as run:
        world.boot_id = "boot-1b"
        result = await run.result()
    assert (result.restart_proof.previous_boot_id, result.restart_proof.boot_id) == ("boot-1b", "boot-2")


async def test_an_input_without_a_node_fails_at_once_instead_of_wedging(env: WorkflowEnvironment) -> None:
    """A typo in `temporal workflow start --input` must not hold a node's id for ever."""
    world = World()
    async with fencing(env, world, node="") as run:
        with pytest.raises(WorkflowFailureError):
            await run.result()


async def test_what_can_never_work_shows_before_anything_is_done_to_the_node(env: WorkflowEnvironment) -> None:
    """A missing Secret or a wrong password must not wait for the wait to be over."""
    refused = failure(ErrorType.UNAUTHORIZED, "the BMC refused the login")
    world = World(plan=plan(wait_before_power=timedelta(days=3650)), read_errors=[refused])
    status = await parked(env, world)
    assert "refused the login" in status.problem
    assert world.count("cordon") == 0


async def test_each_device_is_looked_at_before_its_own_off(env: WorkflowEnvironment) -> None:
    """S20: the second supply of a machine is not switched off on the look before the first."""
    go, veto = LookVerdict.GO, LookVerdict.VETOED
    world = World(plan=plan(levels=(TWO_SUPPLIES,)), looks=[go, go, veto])
    status = await parked(env, world)
    assert "vetoed" in status.problem
    assert world.count("off") == 1
    assert world.consequences() == []


async def test_a_node_that_is_back_before_the_lost_answer_to_on_is_known_of_needs_nobody(env: WorkflowEnvironment) -> None:
    """S34: the answer is waited out for longer than the node needs to boot; what counts is when it was asked to."""
    world = World(plan=plan(act_deadline=timedelta(seconds=5)), on_lost=True)
    result = await fenced(env, world)
    assert result.restart_proof is not None
    assert world.count("event NeedsHuman") == 0
    assert world.count("on") == 1


async def test_a_parked_node_that_is_back_but_cannot_be_switched_on_waits_for_a_person_once(env: WorkflowEnvironment) -> None:
    """S35: no second parking inside the first one, and a word that comes while power-on is tried is heard."""
    silent = failure(ErrorType.UNREACHABLE, "no answer")
    world = World(ignores_off=True, on_errors=[silent] * 50)
    async with fencing(env, world) as run:
        await run.parked()
        await run.sees(ready=True)
        await run.until(lambda status: "came back by itself; but" in status.problem)
        assert (await run.status()).phase is Phase.NEEDS_HUMAN
        assert world.count("event NeedsHuman") == 1
        await run.tell(world.observation())
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert world.count("event NeedsHuman") == 1


async def test_a_machine_is_left_off_until_it_can_be_seen_whether_it_is_preserved(env: WorkflowEnvironment) -> None:
    """S21: not being able to read who objects is no leave to switch on."""
    world = World(plan=plan(freeing=Freeing.NONE))
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.glances.extend([LookVerdict.GO, LookVerdict.NOT_LICENSED])  # seen down, need not gone; then the doubt
        result = await run.result(Outcome.RECOVERED)
    assert any("can't be seen whether" in entry.detail for entry in result.record)
    assert world.count("on") == 1


async def test_an_off_before_an_on_proves_nothing_any_more(env: WorkflowEnvironment) -> None:
    """S6, S1: the machine was asked on since; that the next off could not be sent does not make the old one count again."""
    world = World(plan=plan(tries=2, restarts=0), ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        offs = world.count("off")
        world.ready, world.boots = True, False  # back by itself: it is asked on, and stays as it is
        world.gates["on"] = asyncio.Event()
        await run.tell(world.observation())
        await run.did("on")
        world.read_errors.extend([failure(ErrorType.UNREACHABLE, "no answer")] * 60)
        world.gates["on"].set()
        await run.until(lambda status: "came back by itself; but" in status.problem)
        world.read_errors.clear()
        world.ready = False
        world.power = dict.fromkeys(world.power, PowerState.OFF)  # a PDU was pulled meanwhile
        world.off_errors.extend([failure(ErrorType.UNREACHABLE, "BMC busy")] * 20)
        await run.resume("go on")
        await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN and "BMC busy" in status.problem)
        assert world.count("off") == offs
        assert world.consequences() == []


async def test_a_clean_up_leaves_a_node_alone_that_is_not_ready_after_all(env: WorkflowEnvironment) -> None:
    """S35: its machine may be off; the mark stays, so that somebody looks."""
    world = World(need=Need(kind=NeedKind.CLEAN_UP), mark=left_by("older"), ready=True, cordoned=True)
    async with fencing(env, world, at="mark") as run:
        world.ready = False
        await run.result(Outcome.RELEASED)
    assert world.cordoned
    assert world.count("uncordon") == 0


async def test_hearsay_ends_no_parked_episode(env: WorkflowEnvironment) -> None:
    """S35: what a signal says is believed only once it was read."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        world.look_errors.extend([failure(ErrorType.FORBIDDEN, "forbidden")] * 50)
        await run.tell(replace(world.observation(), uid="", provider_id="", system_uuid=""))
        async with patience(env, 20):
            while not any((entry.act, entry.outcome) == ("look", "failed") for entry in await run.record()):
                await moment(env)
        world.look_errors.clear()
        await run.abort()
        await run.result(Outcome.ABORTED)


async def test_a_node_that_is_deleted_after_off_is_freed_by_deletion_and_switched_on(env: WorkflowEnvironment) -> None:
    """S9: a Node object that is gone strands neither its pods nor a machine that is off."""
    world = World(boots=False)
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.present = False
        world.need = Need(kind=NeedKind.PERSON)
        run.go_on()
        await run.did("on")
        assert world.consequences() == ["delete-workload"]
        assert world.pods == 0


async def test_a_lost_answer_to_the_first_mark_leaves_none_behind(env: WorkflowEnvironment) -> None:
    """S35: it is tried again; where it can't be had at all, "refused" means that nothing is left."""
    lost = failure(ErrorType.AMBIGUOUS, "the answer was lost")
    world = World(mark_errors=[lost])
    await fenced(env, world)
    refused = World(mark_errors=[lost] * 9)
    await fenced(env, refused, Outcome.REFUSED)
    assert not refused.marked


async def test_an_off_before_somebody_elses_on_proves_nothing_any_more(env: WorkflowEnvironment) -> None:
    """S6, S1: it was seen on after our off; that it says off again is not our doing, and licenses nothing."""
    world = World(plan=plan(tries=1, restarts=0))
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.power = dict.fromkeys(world.power, PowerState.ON)
        run.go_on()
        await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN and "off no longer holds" in status.problem)
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        world.off_errors.extend([failure(ErrorType.UNREACHABLE, "BMC busy")] * 9)
        await run.resume("go on")
        await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN and "BMC busy" in status.problem)
        assert world.consequences() == []


@pytest.mark.parametrize("ahead", [timedelta(minutes=2), timedelta(minutes=-2)], ids=["ahead", "behind"])
async def test_a_workers_wrong_clock_neither_makes_a_proof_nor_takes_one_away(env: WorkflowEnvironment, ahead: timedelta) -> None:
    """S2, S6: what was asked after what is the workflow's to say. Somebody switches the machine on and off again between two
    readings: the off from before that is no proof, however late the worker's clock says that it ended."""
    world = World(ahead=ahead)
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.others.extend([PowerState.ON, PowerState.OFF])
        await run.result(Outcome.RECOVERED)
    assert world.count("off") == 2
    assert world.acts.index("taint") > len(world.acts) - world.acts[::-1].index("off")
