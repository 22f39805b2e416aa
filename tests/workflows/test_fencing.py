"""Fencing as a story: what is done in which order, what is never done, and how it ends. Each test names the rule it holds."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import LookVerdict
from activities.errors import ErrorType, failure
from policy.episodes import Kind, Need, NeedKind, Outcome, Phase
from policy.permits import Decision, PermitAnswer
from policy.plan import Freeing, PowerDevice
from policy.power import PowerState
from tests.workflows.fencing_run import fencing
from tests.workflows.world import NODE, World, plan
from workflows.fencing import Fencing
from workflows.messages import AbortRequest, AcknowledgeRequest, PersonRequest

TWO_SUPPLIES = (
    PowerDevice(driver="ipmi", endpoint="pdu://a/7"),
    PowerDevice(driver="ipmi", endpoint="pdu://b/7"),
)


def order(acts: list[str], *names: str) -> None:
    """Each act happened, and first occurrences are in this order."""
    places = [acts.index(name) for name in names]
    assert places == sorted(places), acts


async def test_a_dead_node_is_isolated_switched_off_proven_freed_switched_on_and_restored(env: WorkflowEnvironment) -> None:
    """S1, S2, S32, S35: the main job, in its order."""
    world = World()
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    order(world.acts, "pin", "mark", "cordon", "off", "read", "taint", "untaint", "on", "uncordon", "release-lease")
    assert (world.count("off"), world.count("on")) == (1, 1)
    assert result.off_proof is not None
    assert [reading.state for reading in result.off_proof.readings] == [PowerState.OFF]
    assert result.restart_proof is not None
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
            world.ready = True
            await run.tell(world.observation())
            world.gates["event NodeIsolated"].set()
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("off") == 0
    assert world.acts[-3:-1] == ["uncordon", "release-lease"]


async def test_a_need_that_is_gone_at_the_last_look_stops_the_power_off(env: WorkflowEnvironment) -> None:
    """S20: whatever was true before, the last look decides."""
    world = World(looks=deque([LookVerdict.GO, LookVerdict.NEED_GONE]))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert (world.count("cordon"), world.count("off"), world.count("uncordon")) == (1, 0, 1)


async def test_a_veto_before_off_wins_and_is_told(env: WorkflowEnvironment) -> None:
    """S20: exclude label, pause, preserve request or another's maintenance lease."""
    world = World(looks=deque([LookVerdict.GO, LookVerdict.VETOED]))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RELEASED
    assert "vetoed" in result.message
    assert world.count("off") == 0
    assert not world.cordoned


async def test_another_holder_of_the_node_lease_vetoes(env: WorkflowEnvironment) -> None:
    """S13: one owner per node, other operators included."""
    world = World(lease_holder="node-maintenance")
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RELEASED
    assert "node-maintenance" in result.message
    assert world.count("off") == 0


async def test_an_unlicensed_act_waits_until_it_is_licensed(env: WorkflowEnvironment) -> None:
    """S38, S14: without cluster Lease or permit nothing destructive is done."""
    world = World(looks=deque([LookVerdict.GO, LookVerdict.NOT_LICENSED, LookVerdict.NOT_LICENSED]))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("look") == 4
    order(world.acts, "look", "off")


async def test_a_bmc_that_ignores_the_off_is_never_believed(env: WorkflowEnvironment) -> None:
    """S2, S3: accepted is not off. No pod is freed, a person is asked, the permit is free again."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "says on" in status.problem
        assert not status.permit
        assert world.consequences() == []
        assert world.count("off") == 4  # 2 tries, 1 restart
        assert world.pods == 3


async def test_a_bmc_that_never_answers_parks_the_episode(env: WorkflowEnvironment) -> None:
    """S3: no answer is never off."""
    silent = failure(ErrorType.UNREACHABLE, "ipmi://10.0.0.7:623: no answer from the BMC")
    world = World(off_errors=deque([silent] * 10), read_errors=deque([silent] * 40))
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "no answer from the BMC" in status.problem
        assert world.consequences() == []
        assert world.count("off") == 0


async def test_a_wrong_password_asks_for_a_person_at_once(env: WorkflowEnvironment) -> None:
    """Unauthorized is never retried: more tries would lock the account."""
    world = World(off_errors=deque([failure(ErrorType.UNAUTHORIZED, "the BMC refused the login")] * 9))
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "refused the login" in status.problem
        assert len(world.off_errors) == 8
        assert world.consequences() == []


async def test_a_node_created_anew_meanwhile_is_not_the_target(env: WorkflowEnvironment) -> None:
    """S9: what was pinned is compared at the last look."""
    world = World(plan=plan(wait_before_power=timedelta(days=3650)))
    world.gates["cordon"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("cordon")
        world.uid = "uid-2"
        await run.tell(world.observation())
        world.gates["cordon"].set()
        await run.parked()
        assert world.count("off") == 0
        assert world.consequences() == []


async def test_a_lost_answer_to_off_is_read_and_never_repeated(env: WorkflowEnvironment) -> None:
    """S33, S34: ambiguous means wait, read, decide."""
    world = World(off_lost=1)
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert (world.count("off"), world.count("on")) == (1, 1)


async def test_a_restart_of_the_flow_keeps_what_is_proven(env: WorkflowEnvironment) -> None:
    """S5: failing consequences never lead to a second off."""
    refused = failure(ErrorType.UNREACHABLE, "the API server is away")
    world = World(free_errors=deque([refused] * 3))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("off") == 1
    assert any(entry.act == "restart" for entry in result.record)


async def test_a_proof_that_no_longer_holds_licenses_nothing(env: WorkflowEnvironment) -> None:
    """S2, S6: off is read again just before each consequence; somebody switched the machine on again."""
    world = World()
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.power = dict.fromkeys(world.power, PowerState.ON)
        world.ignores_off = True
        world.gates["event NodePoweredOff"].set()
        status = await run.parked()
        assert world.consequences() == []
        assert "says on" in status.problem


async def test_both_supplies_must_be_off(env: WorkflowEnvironment) -> None:
    """S4: all offs come before any on, and one supply that stays on proves nothing."""
    world = World(plan=plan(devices=TWO_SUPPLIES))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.off_proof is not None
    assert len(result.off_proof.readings) == 2
    assert [act for act in world.acts if act in {"off", "on"}] == ["off", "off", "on", "on"]


async def test_a_slow_boot_asks_for_a_person_and_is_not_fenced_again(env: WorkflowEnvironment) -> None:
    """S5: off → on is one shot; the node that comes back while parked is restored without anybody."""
    world = World(boots=False)
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "not back Ready" in status.problem
        assert (world.count("off"), world.count("on")) == (1, 1)
        world.boot_id, world.ready = "boot-2", True
        await run.tell(world.observation())
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("off") == 1
    assert not world.cordoned


async def test_the_same_boot_id_is_no_restart(env: WorkflowEnvironment) -> None:
    """A node that says Ready with its old boot id has not been restarted, whatever else it says."""
    world = World(boots=False)
    async with fencing(env, world) as run:
        await run.did("on")
        world.ready = True
        await run.tell(world.observation())
        status = await run.parked()
        assert status.restart_proof is None


async def test_a_failing_on_never_sends_another_off(env: WorkflowEnvironment) -> None:
    """S5: tried again, read first; no second off."""
    world = World(on_errors=deque([failure(ErrorType.UNREACHABLE, "no answer"), failure(ErrorType.AMBIGUOUS, "lost")]))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert (world.count("off"), world.count("on")) == (1, 1)


async def test_an_abort_before_off_undoes_our_marks(env: WorkflowEnvironment) -> None:
    """S35: every end runs its compensation."""
    world = World(plan=plan(wait_before_power=timedelta(days=3650)))
    world.gates["event NodeIsolated"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodeIsolated")
        await run.abort()
        world.gates["event NodeIsolated"].set()
        result = await run.result()
    assert result.outcome is Outcome.ABORTED
    assert "ada (drill)" in result.message
    assert world.count("off") == 0
    assert not world.cordoned
    assert not result.left_off


async def test_an_abort_after_off_finishes_consequences_and_leaves_the_power_off(env: WorkflowEnvironment) -> None:
    """S35: power-on after an abort is a decision of its own, and the result says that the machine was left off."""
    world = World()
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        await run.abort()
        world.gates["event NodePoweredOff"].set()
        result = await run.result()
    assert result.outcome is Outcome.ABORTED
    assert result.left_off
    assert world.pods == 0
    assert world.count("on") == 0
    assert not world.tainted
    assert not world.cordoned


async def test_an_abort_with_power_on_brings_the_node_back(env: WorkflowEnvironment) -> None:
    """S35: asked for, power comes back."""
    world = World()
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        await run.abort(power_on=True)
        world.gates["event NodePoweredOff"].set()
        result = await run.result()
    assert result.outcome is Outcome.ABORTED
    assert not result.left_off
    assert world.count("on") == 1
    assert world.ready


async def test_an_abort_reaches_a_parked_episode(env: WorkflowEnvironment) -> None:
    """needs-human is an open state: a person can end it."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        await run.abort()
        result = await run.result()
    assert result.outcome is Outcome.ABORTED
    assert world.consequences() == []
    assert not world.cordoned


async def test_a_persons_word_stands_for_the_proof(env: WorkflowEnvironment) -> None:
    """S8: with who and why, and nothing less."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(who="ada", reason=" "))
        assert "reason" in str(refused.value.cause)
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        await run.handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(who="ada", reason="pulled the plug"))
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert result.off_proof is not None
    assert result.off_proof.acknowledgement is not None
    assert result.off_proof.acknowledgement.who == "ada"
    assert world.pods == 0
    assert "ask-permit" in world.acts  # it had given its permit back


async def test_off_is_not_acknowledged_while_nobody_asked(env: WorkflowEnvironment) -> None:
    """S8: a word given in advance would be no observation."""
    world = World()
    world.gates["cordon"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("cordon")
        with pytest.raises(WorkflowUpdateFailedError):
            await run.handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(who="ada", reason="sure"))


async def test_a_hold_stops_before_the_next_act_until_resumed(env: WorkflowEnvironment) -> None:
    """A person's hold is obeyed before the next destructive act."""
    world = World()
    world.gates["cordon"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("cordon")
        await run.handle.execute_update(Fencing.hold, PersonRequest(who="ada", reason="looking at it"))
        world.gates["cordon"].set()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        assert world.count("off") == 0
        await run.handle.execute_update(Fencing.resume, PersonRequest(who="ada", reason="go"))
        assert (await run.result()).outcome is Outcome.RECOVERED


async def test_a_manual_start_asks_for_a_permit_and_waits_in_the_queue(env: WorkflowEnvironment) -> None:
    """S14: nobody acts without a permit, however started."""
    world = World(
        need=Need(kind=NeedKind.PERSON, reason="drill", requester="ada"),
        ready=True,
        answers=deque([PermitAnswer(decision=Decision.QUEUED, reason="1 of 1 permits are held", holder="us")] * 100_000),
    )
    async with fencing(env, world, permit_granted=False, holder="") as run:
        status = await run.until(lambda status: status.phase is Phase.QUEUED and "1 of 1" in status.doing)
        assert not status.permit
        assert set(world.acts) == {"pin", "ask-permit"}  # it asks again now and then, in case the scanner has forgotten it
        await run.handle.signal(Fencing.permit_granted)
        assert (await run.result()).outcome is Outcome.RECOVERED


async def test_a_refused_start_touches_nothing_and_says_why(env: WorkflowEnvironment) -> None:
    """S17, S18: refused with the reason."""
    refusal = PermitAnswer(decision=Decision.REFUSED, reason="NodeHealthCheck/workers is in short circuit")
    world = World(answers=deque([refusal]))
    async with fencing(env, world, permit_granted=False) as run:
        result = await run.result()
    assert result.outcome is Outcome.REFUSED
    assert "short circuit" in result.message
    assert world.acts == ["pin", "ask-permit"]


async def test_marks_without_an_owner_are_only_cleaned_up(env: WorkflowEnvironment) -> None:
    """S35: marks of an episode that was terminated are adopted and cleaned."""
    world = World(ready=True, adopted="old", need=Need(kind=NeedKind.CLEAN_UP, reason="marks of old"))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("off") == 0
    assert world.count("cordon") == 0
    assert world.count("uncordon") == 1


async def test_workloads_that_stay_are_told_and_not_waited_for_for_ever(env: WorkflowEnvironment) -> None:
    """S32: our taint goes before power-on, even when its time is over; a person is told."""
    world = World(pods_stay=True)
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    order(world.acts, "taint", "event WorkloadsLeft", "untaint", "on")


async def test_where_the_taint_is_not_honoured_pods_are_deleted(env: WorkflowEnvironment) -> None:
    """S1: deletion needs the same proof."""
    world = World(plan=plan(freeing=Freeing.AUTOMATIC, taint_honoured=False))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.consequences() == ["delete-workload"]
    assert result.freed_pods == 3


async def test_a_terminated_predecessors_act_is_waited_out_before_power_is_touched(env: WorkflowEnvironment) -> None:
    """S34: its hard deadline plus a margin pass before the first reading or command."""
    world = World(adopted="old")
    async with fencing(env, world) as run:
        result = await run.result()
        history = await run.handle.fetch_history()
    assert result.outcome is Outcome.RECOVERED
    timers = [event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta() for event in history.events
              if event.HasField("timer_started_event_attributes")]  # fmt: skip
    assert any(timer >= timedelta(seconds=45) for timer in timers)  # longest act, its window to begin, and the margin


async def test_an_episode_under_a_foreign_id_fails_at_once(env: WorkflowEnvironment) -> None:
    """S13: the workflow id is the mutex, so no other id may hold a node."""
    world = World()
    async with fencing(env, world, node="node-8") as run:
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == ErrorType.INVALID_CONFIG
    assert world.acts == []


async def test_an_abort_needs_a_name_and_a_reason(env: WorkflowEnvironment) -> None:
    """Bad input is refused with what was expected, and leaves no trace in history."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.abort, AbortRequest(who="", reason="x"))
        assert "who" in str(refused.value.cause)


async def test_an_episode_is_found_and_understood_from_outside(env: WorkflowEnvironment) -> None:
    """Search attributes, details and the record are there for whoever looks."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        description = await run.handle.describe()
        found = {pair.key.name: pair.value for pair in description.typed_search_attributes}
        assert found["Node"] == NODE
        assert found["Phase"] == Phase.NEEDS_HUMAN
        assert found["Kind"] == Kind.FENCING
        assert found["Zone"] == "a"
        record = await run.handle.query(Fencing.record)
        assert [entry.act for entry in record][:3] == ["pin", "phase", "mark-unschedulable"] or record[0].act == "pin"


async def test_a_ready_node_fenced_by_hand_is_freed_only_once_it_is_seen_down(env: WorkflowEnvironment) -> None:
    """S1: the API server notices a power-off a lease later; until then the node says Ready, and nothing is freed."""
    by_hand = Need(kind=NeedKind.PERSON, reason="drill", requester="ada")
    world = World(need=by_hand, ready=True, lingers=4)
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert result.freed_pods == 3


async def test_a_node_that_stays_ready_although_its_devices_say_off_is_a_persons_case(env: WorkflowEnvironment) -> None:
    """S9, S10: then the devices feed another machine than the one we look at."""
    world = World(need=Need(kind=NeedKind.PERSON, reason="drill", requester="ada"), ready=True, lingers=10_000)
    async with fencing(env, world) as run:
        status = await run.parked()
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
        await run.handle.execute_update(Fencing.resume, PersonRequest(who="ada", reason="released"))
        assert (await run.result()).outcome is Outcome.RECOVERED
    assert world.count("off") == 1


async def test_cancelling_the_workflow_is_an_abort(env: WorkflowEnvironment) -> None:
    """S35: whatever ends an episode runs its compensation; a click on "Request Cancellation" too."""
    world = World(plan=plan(wait_before_power=timedelta(days=3650)))
    world.gates["event NodeIsolated"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodeIsolated")
        await run.handle.cancel()
        world.gates["event NodeIsolated"].set()
        result = await run.result()
    assert result.outcome is Outcome.ABORTED
    assert "cancelled" in result.message
    assert world.count("off") == 0
    assert not world.cordoned


async def test_a_hold_that_comes_during_the_last_look_makes_it_look_again(env: WorkflowEnvironment) -> None:
    """S20: what was seen before a hold says nothing about the moment after it."""
    world = World()
    world.gates["look"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("look")
        await run.handle.execute_update(Fencing.hold, PersonRequest(who="ada", reason="wait"))
        world.gates["look"].set()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        world.ready = True  # the node came back while it was held
        await run.handle.execute_update(Fencing.resume, PersonRequest(who="ada", reason="go"))
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("off") == 0
    assert world.count("look") == 2


async def test_a_veto_after_the_machine_was_touched_is_a_persons_case(env: WorkflowEnvironment) -> None:
    """S35: nobody may call "given up before power-off" what may be off."""
    go, veto = LookVerdict.GO, LookVerdict.VETOED
    world = World(ignores_off=True, looks=deque([go, go, veto]))
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "vetoed" in status.problem
        assert world.count("uncordon") == 0


async def test_a_lost_cluster_lease_at_a_consequence_is_waited_with(env: WorkflowEnvironment) -> None:
    """S38: the scanner is away for a while; no try is used up and nothing is given up."""
    lost = [failure(ErrorType.NOT_LICENSED, "the cluster Lease is not held") for _ in range(9)]
    world = World(free_errors=deque(lost))
    async with fencing(env, world) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert result.freed_pods == 3
    assert world.count("off") == 1


async def test_a_device_that_falls_silent_after_the_proof_takes_nothing_back(env: WorkflowEnvironment) -> None:
    """S3, S5: silence licenses nothing and unproves nothing; it is asked again."""
    silent = failure(ErrorType.UNREACHABLE, "no answer")
    world = World()
    world.gates["event NodePoweredOff"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("event NodePoweredOff")
        world.read_errors.extend([silent] * 2)
        world.gates["event NodePoweredOff"].set()
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert world.count("off") == 1


async def test_a_node_that_came_back_with_one_supply_off_gets_it_switched_on(env: WorkflowEnvironment) -> None:
    """S4: "nothing more to do" is only said of a machine whose supplies are all on."""
    unreachable = failure(ErrorType.UNREACHABLE, "no answer")
    world = World(plan=plan(devices=TWO_SUPPLIES, tries=1, restarts=0))
    async with fencing(env, world) as run:
        world.gates["off"] = asyncio.Event()
        await run.did("off")
        world.off_errors.append(unreachable)
        world.gates["off"].set()
        await run.parked()
        assert sorted(world.power.values()) == [PowerState.OFF, PowerState.ON]
        world.ready = True
        await run.tell(world.observation())
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert set(world.power.values()) == {PowerState.ON}
    assert world.consequences() == []


async def test_abort_with_power_on_switches_on_even_if_freeing_fails(env: WorkflowEnvironment) -> None:
    """S35: the two are decisions of their own."""
    world = World(free_errors=deque([failure(ErrorType.UNREACHABLE, "the API server is away")] * 99))
    async with fencing(env, world) as run:
        await run.parked()
        await run.abort(power_on=True)
        result = await run.result()
    assert result.outcome is Outcome.ABORTED
    assert world.count("on") == 1
    assert not result.left_off


async def test_a_person_is_asked_in_a_parked_episode_whatever_a_look_answers(env: WorkflowEnvironment) -> None:
    """S35: a look that fails for good must not wedge the episode; abort still reaches it."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        world.look_errors.extend([failure(ErrorType.UNAUTHORIZED, "forbidden")] * 3)
        world.ready = True
        await run.tell(world.observation())
        await run.abort()
        assert (await run.result()).outcome is Outcome.ABORTED


async def test_a_reboot_between_pin_and_off_is_neither_a_proof_nor_in_the_way(env: WorkflowEnvironment) -> None:
    """S5: the boot that counts as old is the one seen at the last look before off."""
    world = World()
    world.gates["cordon"] = asyncio.Event()
    async with fencing(env, world) as run:
        await run.did("cordon")
        world.boot_id = "boot-1b"
        world.gates["cordon"].set()
        result = await run.result()
    assert result.restart_proof is not None
    assert (result.restart_proof.previous_boot_id, result.restart_proof.boot_id) == ("boot-1b", "boot-2")


async def test_an_acknowledgement_ends_when_the_device_comes_to_say_on(env: WorkflowEnvironment) -> None:
    """S8, S6: a word stands against a silent device, not against one that has been switched on since."""
    silent = failure(ErrorType.UNREACHABLE, "no answer")
    world = World(off_errors=deque([silent] * 9), read_errors=deque([silent] * 400))
    async with fencing(env, world) as run:
        await run.parked()
        world.read_errors.clear()  # it answers again, and the machine is on
        await run.handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(who="ada", reason="I think so"))
        await run.until(lambda status: "did not when a person said off" in status.problem)
        assert world.consequences() == []


async def test_a_word_that_comes_while_a_parked_episode_looks_elsewhere_is_heard(env: WorkflowEnvironment) -> None:
    """S35: an abort between two rests must not wait for the next news."""
    world = World(ignores_off=True)
    async with fencing(env, world) as run:
        await run.parked()
        world.gates["glance"] = asyncio.Event()
        world.acts.clear()
        await run.tell(replace(world.observation(), ready=True))
        await run.did("glance")
        await run.abort()
        world.gates["glance"].set()
        assert (await run.result()).outcome is Outcome.ABORTED


async def test_an_input_without_a_node_fails_at_once_instead_of_wedging(env: WorkflowEnvironment) -> None:
    """A typo in `temporal workflow start --input` must not hold a node's id for ever."""
    world = World()
    async with fencing(env, world, node="") as run:
        with pytest.raises(WorkflowFailureError):
            await run.result()
