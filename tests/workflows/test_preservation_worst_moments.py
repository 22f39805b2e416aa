"""A person's word to a preservation at the worst moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import workflow
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from activities.contracts.preservation import GiveUpRequest, GiveUpResult, Hold, HoldRequest
from activities.contracts.target import DrainResult
from activities.errors import ErrorType, failure
from policy.episode.messages import Kind, Outcome, Phase
from policy.episode.node_action import ActionName
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.fence.power import PowerState
from policy.preservation.keep_or_release import Override
from tests.workflows import contract, preservation_run
from tests.workflows.plans import PORT, switched
from tests.workflows.preservation_run import MACHINE, NODE, kept, machine, preserving
from tests.workflows.surroundings import eventually, let_pass
from tests.workflows.world import left_by
from workflows.definitions.episodes import Preservation
from workflows.episode.episode import Episode
from workflows.episode.state import EpisodeState, GivingUpProgress, PreservationProgress, RemediationHistory
from workflows.kit import continuation, options
from workflows.kit.messages import ExtendRequest, PersonRequest


async def test_a_hold_outlives_the_hand_over(env: WorkflowEnvironment) -> None:
    """S20: `hold` was answered with "nothing destructive until resume"."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        await run.says(Preservation.hold)
        await run.skip(timedelta(hours=73))
        await let_pass(env, run.handle, timedelta(minutes=1))
        assert "delete" not in world.acts


async def test_s44_a_hold_outlives_the_time_of_a_kept_node_without_a_machine(env: WorkflowEnvironment) -> None:
    """Nothing would give it up, and its preservation ended: the next health check had the node that a person had in hand."""
    world = machine(fails=True)
    world.alone = True
    async with preserving(env, world, machine=None, automatic=True) as run:
        await run.is_in(Phase.FAILED_PRESERVED)
        await run.says(Preservation.hold)
        await run.skip(timedelta(hours=73))
        await run.until(lambda status: status.doing.startswith("held by ada") and status.preserved_until is None)
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.says(Preservation.resume)
        await run.timeout(Outcome.RELEASED)


async def test_s44_a_hold_outlives_the_node_of_a_kept_machine(env: WorkflowEnvironment) -> None:
    """Who has the machine in hand has it register anew: the next preservation drained it, or cut it off."""
    world = machine("now", fails=True)
    async with preserving(env, world) as run:
        await run.is_in(Phase.FAILED_PRESERVED)
        await run.says(Preservation.hold)
        world.made_anew = True
        await run.news()
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.until(lambda status: status.doing.startswith("held by ada"))
        await run.says(Preservation.resume)
        await run.result(Outcome.REPLACED)


async def test_a_state_that_no_history_has_left_is_refused(env: WorkflowEnvironment) -> None:
    """S1, S14, S20: whoever starts the workflow says what he likes, also that a deletion was asked for and permitted."""
    world = machine(fails=True)
    kept = PreservationProgress(machine=MACHINE, machine_uid="uid-machine", giving_up=GivingUpProgress(asked=True))
    state = EpisodeState(
        kind=Kind.REMEDIATION,
        cluster="prod",
        node=NODE,
        incident="i-1",
        reason="a drill",
        started=datetime(2026, 11, 23, tzinfo=UTC),
        permit=True,
        preservation=kept,
    )
    forged = RemediationHistory(node=NODE, machine=MACHINE, machine_uid="uid-machine", holder="us", state=state)
    async with preserving(env, world, handed_over=forged) as run:
        with pytest.raises(WorkflowFailureError) as refused:
            await run.handle.result()
    assert "from its own earlier history" in str(refused.value.cause)
    assert world.acts == []


async def test_an_extension_is_kept_or_refused_never_dropped(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ada is told "preserved until ..." while the look that finds its time over is under way; then the machine is deleted."""
    world = machine(fails=True)
    gate, real = asyncio.Event(), preservation_run.ScriptedMachine.hold

    async def hold(self, request: HoldRequest) -> Hold:
        found = await real(self, request)
        if found.terminate:
            await gate.wait()
        return found

    monkeypatch.setattr(preservation_run.ScriptedMachine, "hold", hold)
    async with kept(env, world) as run:
        world.annotate("false")
        await run.news()
        await eventually(env, lambda: "terminate" in world.acts, within=5)
        word = ExtendRequest(who="ada", reason="not done yet", hold=timedelta(hours=100))
        try:
            told = await run.says(Preservation.extend, word)
        except WorkflowUpdateFailedError:
            told = ""
        gate.set()
        await let_pass(env, run.handle, timedelta(minutes=1))
        assert not ("preserved until" in told and "delete" in world.acts), told


async def test_a_word_that_comes_while_the_rest_is_told_is_heard_before_the_machine_is_handed_over(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S42: Ada is told "preserved until ..." while people are told what was before; nothing follows that knows nothing of it."""
    world, real, telling = machine(fails=True), Episode.publish_the_rest, asyncio.Event()

    async def slowly(self: Episode, *, last: bool) -> None:
        telling.set()
        await workflow.sleep(timedelta(minutes=1))
        await real(self, last=last)

    monkeypatch.setattr(Episode, "publish_the_rest", slowly)
    async with kept(env, world) as run:
        world.annotate("false")
        await run.news()
        await eventually(env, telling.is_set, within=5)
        word = ExtendRequest(who="ada", reason="not done yet", hold=timedelta(hours=100))
        assert "preserved until" in await run.says(Preservation.extend, word)
        await let_pass(env, run.handle, timedelta(minutes=5))
        assert "delete" not in world.acts


async def test_an_extension_that_is_written_only_after_the_old_end_keeps_the_machine(env: WorkflowEnvironment) -> None:
    """S22, S44: Ada is told "preserved until ..." in time, and the API is away until the old end is over."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        ends = world.held.expiry
        await run.skip(timedelta(hours=71))
        world.devices.errors["hold"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 1000
        until = ends + timedelta(hours=24)
        assert "preserved until" in await run.says(Preservation.extend, ExtendRequest(who="ada", reason="not yet", until=until))
        await run.skip(timedelta(hours=4))
        world.devices.errors["hold"].clear()
        await run.skip(timedelta(minutes=10))
        assert (world.held.expiry, "terminate" in world.acts) == (until, False)
        await run.timeout(Outcome.REPLACED)


@pytest.mark.parametrize("end", ["annotation", "expiry"])
async def test_a_held_drain_delays_no_end(env: WorkflowEnvironment, end: str) -> None:
    """S26: `false`, and the end of its time, are on the objects at once; the machine is deleted once the hold is over."""
    world = machine(fails=True)
    world.devices.drains = [DrainResult(evicted=1, left=1, withheld=("default/db-0",))] * 400
    async with preserving(env, world, automatic=True) as run:
        await run.until(lambda status: "drains the node" in status.doing)
        await run.says(Preservation.hold)
        await run.until(lambda status: "held by ada" in status.doing)
        if end == "annotation":
            world.annotate("false")
            await run.news()
        else:
            await run.skip(timedelta(hours=72, minutes=1))
        await run.until(lambda _: "terminate" in world.acts)
        assert end == "annotation" or world.ended_at - world.expiries[0] < timedelta(seconds=3)
        assert "delete" not in world.acts
        await run.says(Preservation.resume)
        await run.timeout(Outcome.REPLACED)


async def test_until_the_servers_clock_says_that_the_time_is_over_it_is_looked_at_once_a_second(env: WorkflowEnvironment) -> None:
    """A hold never ends early, and the wait for a clock that is behind fills no history."""
    world = machine("now")
    world.timeout, world.behind = timedelta(hours=1), timedelta(seconds=8)
    async with preserving(env, world) as run:
        await run.timeout(Outcome.RELEASED)
    assert world.looks <= 15


async def test_s20_a_hold_that_comes_while_the_node_is_marked_keeps_its_pods(env: WorkflowEnvironment) -> None:
    """Found by plays of preservations, seed 225."""
    world = machine(fails=True)
    world.devices.gates["mark"] = asyncio.Event()
    async with preserving(env, world, automatic=True) as run:
        await eventually(env, lambda: "mark Preservation" in world.acts, within=5)
        await run.says(Preservation.hold)
        world.devices.gates["mark"].set()
        await run.until(lambda status: "held by ada" in status.doing)
        await let_pass(env, run.handle, timedelta(minutes=1))
        assert "evict" not in world.acts
        await run.says(Preservation.resume)
        await eventually(env, lambda: "evict" in world.acts, within=5)


async def test_s20_a_release_that_comes_while_it_looks_keeps_the_machine_from_being_cut_off(env: WorkflowEnvironment) -> None:
    """Found by plays of preservations, seed 471 of 30 November."""
    world = machine(fails=True)
    world.devices.plan = switched()
    world.devices.__post_init__()
    world.devices.gates["look"] = asyncio.Event()
    async with preserving(env, world, automatic=True, isolate=True) as run:
        await eventually(env, lambda: "look" in world.devices.acts, within=5)
        await run.says(Preservation.release)
        world.devices.gates["look"].set()
        await run.timeout()
    assert "cut-path" not in world.devices.acts


@pytest.mark.parametrize("well", [False, True])
async def test_s35_what_a_predecessor_has_left_cut_is_told_where_nothing_keeps_the_machine_any_more(
    env: WorkflowEnvironment, *, well: bool
) -> None:
    """Its mark alone knows of that, and stays. Found by plays of preservations, seeds 105 and 263."""
    world = machine("when-failed" if well else "false", fails=not well)
    world.alone = True
    world.devices.plan = switched()
    world.devices.__post_init__()
    world.devices.mark = left_by("i-0", paths=(PORT.endpoint,))
    world.devices.paths[PORT.endpoint] = PowerState.OFF
    async with preserving(env, world, machine=None) as run:
        result = await run.timeout()
    assert f"left cut: {PORT.endpoint}" in result.message
    assert world.devices.mark is not None
    assert world.devices.mark.paths == (PORT.endpoint,)


async def test_s44_an_extension_of_what_nothing_keeps_any_more_keeps_it(env: WorkflowEnvironment) -> None:
    """It was told "preserved until", and dropped. Found by plays of preservations, seed 9."""
    world = machine("false", fails=True)
    async with preserving(env, world) as run:
        await run.says(Preservation.hold)
        await eventually(env, lambda: world.looks > 0, within=5)
        await let_pass(env, run.handle, timedelta(minutes=1))
        assert "preserved until" in await run.says(
            Preservation.extend, ExtendRequest(who="ada", reason="not done yet", hold=timedelta(hours=100))
        )
        await run.says(Preservation.resume)
        await run.is_in(Phase.FAILED_PRESERVED)
        assert world.held.expiry is not None
        await run.skip(timedelta(hours=99))
        assert "delete" not in world.acts


async def test_s44_an_extension_that_meets_the_end_of_what_kept_the_machine_keeps_it(env: WorkflowEnvironment) -> None:
    """A person has annotated `false`, and nothing has looked since. Found by plays of preservations, seed 931."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        world.annotate("false")
        told = await run.says(Preservation.extend, ExtendRequest(who="ada", reason="not done yet", hold=timedelta(hours=100)))
        assert "preserved until" in told
        await run.skip(timedelta(hours=99))
        assert "delete" not in world.acts
        assert world.held.expiry is not None


async def test_s35_what_is_left_cut_is_told_where_giving_the_machine_up_is_aborted(env: WorkflowEnvironment) -> None:
    """It stays as it is, and our mark on it. Found by plays of preservations."""
    world = machine(fails=True)
    world.devices.plan = switched()
    world.devices.__post_init__()
    async with preserving(env, world, automatic=True, isolate=True) as run:
        await run.until(lambda _: world.devices.paths[PORT.endpoint] is PowerState.OFF)
        await run.is_in(Phase.FAILED_PRESERVED)
        world.devices.answers = [PermitAnswer(decision=PermitDecision.REFUSED, reason="the cap is reached")] * 9
        world.annotate("false")
        await run.news()
        await run.until(lambda status: "permit" in status.doing)
        await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert f"left cut: {PORT.endpoint}" in result.message


async def test_s35_the_mark_goes_from_a_node_that_outlives_its_machine(env: WorkflowEnvironment) -> None:
    """Found by plays of preservations, seed 62."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        assert world.devices.mark is not None
        world.present = False
        await run.news()
        await run.result(Outcome.RELEASED)
    assert world.devices.mark is None


WEBHOOK = "failed calling webhook: context deadline exceeded"


def roll_at(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """A history is left at that length."""
    monkeypatch.setattr(continuation, "roll_is_due", lambda **_: workflow.info().get_current_history_length() >= length)


async def test_a_deletion_without_an_answer_tells_a_person_and_fills_no_history(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S14, S33: as long as a webhook times out nothing is given up, and others get the permit meanwhile."""
    roll_at(monkeypatch, 200)
    world = machine("false", fails=True)
    world.devices.errors["delete"].extend([failure(ErrorType.AMBIGUOUS, WEBHOOK)] * 60)
    async with preserving(env, world) as run:
        await run.timeout(Outcome.REPLACED)
        assert await run.histories() > 3
    assert world.tried_at[59] - world.tried_at[0] > timedelta(hours=2), "it is asked for ever more seldom"
    told = [event for event in world.events if event.startswith("NeedsHuman: ")]
    assert told
    assert all(WEBHOOK in event for event in told)
    assert world.acts.count("delete") == 1
    assert 1 < world.acts.count("permit") <= 1 + len(told)


async def test_a_deletion_that_is_not_licensed_any_more_asks_for_a_permit_anew(env: WorkflowEnvironment) -> None:
    """S14: a scanner that was started anew knows of none, and what it grants to others meanwhile must count."""
    world = machine("false", fails=True)
    world.devices.errors["delete"].append(failure(ErrorType.NOT_LICENSED, "the permit of node-7 is held by no episode"))
    async with preserving(env, world) as run:
        await run.timeout(Outcome.REPLACED)
    assert (world.acts.count("permit"), world.acts.count("delete")) == (2, 1)


SET = "MachineSet/set"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[HoldRequest]:
    """What a look was asked with; it says who controls the machine, and what has overridden its preservation."""
    requests: list[HoldRequest] = []
    real = preservation_run.ScriptedMachine.hold

    async def hold(self, request: HoldRequest) -> Hold:
        requests.append(request)
        found: Hold = await real(self, request)
        if not found.gone:
            return replace(found, owner=SET)
        why = f"{found.gone}, rolling update: MachineDeployment w replaces it"
        return replace(found, gone=why, override=Override.ROLLING_UPDATE.value, node_uid="" if request.owner else found.node_uid)

    monkeypatch.setattr(preservation_run.ScriptedMachine, "hold", hold)
    return requests


@pytest.mark.parametrize("gone", [False, True], ids=["being deleted", "gone with its Node"])
async def test_an_override_is_recorded_by_its_name_and_told(
    env: WorkflowEnvironment, asked: list[HoldRequest], *, gone: bool
) -> None:
    """S21: in the record, in the result, and as an Event on the Node, also on one that is gone."""
    world = machine("now")
    async with kept(env, world) as run:
        world.present = not gone
        world.held = replace(world.held, deleting=True)  # by others; its controller may not be done with it yet
        await run.news()
        result = await run.result(Outcome.RELEASED)
    assert "rolling update: MachineDeployment w replaces it" in result.message
    (entry,) = [entry for entry in result.record if entry.act == "override"]
    assert (entry.outcome, entry.detail) == ("rolling update", result.message)
    assert [event for event in world.events if event.startswith("PreservationEnded: ") and result.message in event]
    assert asked[-1].owner == SET


@pytest.mark.usefixtures("rolls_once")
async def test_who_controls_the_machine_is_remembered_over_a_new_version(
    env: WorkflowEnvironment, asked: list[HoldRequest]
) -> None:
    """Of one that is gone nobody else knows it."""
    world = machine("now")
    async with preserving(env, world) as run:
        await run.until(lambda status: status.phase is Phase.RUNNING_PRESERVED and len(asked) > 1)
        world.present = False
        await run.news()
        await run.result()
    assert [request.owner for request in asked][1:] == [SET] * (len(asked) - 1)


async def test_an_abort_after_an_unclear_deletion_says_so(env: WorkflowEnvironment) -> None:
    """S34: it may have been asked for; "before its deletion was asked for" is not known to be true."""
    world = machine(fails=True)
    world.devices.errors["delete"].extend([failure(ErrorType.AMBIGUOUS, "the answer was lost")] * 99)
    async with kept(env, world) as run:
        await run.says(Preservation.release)
        await run.until(lambda _: bool(world.tried_at))
        await run.abort()
        await run.skip(options.DELETION_DEADLINE)  # for so long the request may still be on its way
        result = await run.result(Outcome.ABORTED)
    assert "before its deletion was asked for" not in result.message


async def test_a_deletion_that_no_worker_can_ask_for_waits_for_a_person(env: WorkflowEnvironment) -> None:
    """S35: it is not tried for ever; the person's word has it asked for once more."""
    world = machine(fails=True)
    world.devices.errors["delete"].append(failure(ErrorType.NOT_SUPPORTED, "the Machine is of an API that is not served"))
    async with kept(env, world) as run:
        await run.says(Preservation.release)
        status = await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN)
        assert "is not served" in status.problem
        assert "delete" not in world.acts
        await run.skip(timedelta(hours=5))
        assert not world.devices.errors["delete"]
        await run.says("resume", PersonRequest(who="ada", reason="it is served again"))
        await run.timeout(Outcome.REPLACED)


async def test_a_deletion_that_is_given_no_permit_asks_again(env: WorkflowEnvironment) -> None:
    """S14: as every act that disrupts."""
    world = machine(fails=True)
    world.devices.answers = [PermitAnswer(decision=PermitDecision.REFUSED, reason="too many are unhealthy")]
    async with kept(env, world) as run:
        await run.says(Preservation.release)
        status = await run.until(lambda status: status.doing == "waits before it asks for a permit again")
        assert status.problem == "no permit: too many are unhealthy"
        assert "delete" not in world.acts
        await run.timeout(Outcome.REPLACED)


async def test_an_abort_that_comes_while_a_permit_is_asked_for_keeps_the_machine(env: WorkflowEnvironment) -> None:
    """S20: the person was answered that its deletion was not asked for, and the permit comes all the same."""
    world = machine("false", fails=True)
    world.devices.gates["ask-permit"] = asyncio.Event()
    async with preserving(env, world) as run:
        await run.until(lambda _: "permit" in world.acts)
        await run.abort()
        world.devices.gates["ask-permit"].set()
        result = await run.result()
    assert (result.outcome, "delete" in world.acts) == (Outcome.ABORTED, False)


async def test_a_hold_that_comes_while_a_permit_is_asked_for_keeps_the_machine_until_resume(env: WorkflowEnvironment) -> None:
    """S20: the person was answered that it is held before its next destructive act, and the permit comes all the same."""
    world = machine("false", fails=True)
    world.devices.gates["ask-permit"] = asyncio.Event()
    async with preserving(env, world) as run:
        await run.until(lambda _: "permit" in world.acts)
        await run.says(Preservation.hold)
        world.devices.gates["ask-permit"].set()
        status = await run.until(lambda status: status.doing.startswith("held by ada"))
        await let_pass(env, run.handle, timedelta(hours=3))
        assert ("delete" not in world.acts, status.permit) == (True, False), "S14: nor does it keep others from their repair"
        await run.says(Preservation.resume)
        await run.timeout(Outcome.REPLACED)


@pytest.mark.usefixtures("rolls_once")
async def test_a_release_is_not_lost_when_the_preservation_moves_to_a_new_version(env: WorkflowEnvironment) -> None:
    world = machine("now")
    async with kept(env, world) as run:
        await run.says(Preservation.release)
        await eventually(env, lambda: world.held.expiry is None, within=5)


@pytest.mark.parametrize("word", ["extend", "isolate"])
async def test_what_is_said_while_the_machine_is_handed_over_is_refused(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """S27, S44: who speaks is being verified when its time is found to be over; the answer was "preserved until …", and then the
    machine was deleted."""
    monkeypatch.setattr(preservation_run, "IN_THE_CLUSTER", (*preservation_run.IN_THE_CLUSTER, contract.AttestationActivities))
    world = machine(fails=True)
    world.devices.speaker, verified = "ada@example.com", asyncio.Event()
    world.devices.gates["verify"] = verified
    action = ActionName(name="word-x7", uid="u-1")
    said = {
        "extend": (Preservation.extend, ExtendRequest(who="ada", reason="not yet", hold=timedelta(hours=100), action=action)),
        "isolate": (Preservation.isolate, PersonRequest(who="ada", reason="cut it off", action=action)),
    }
    async with kept(env, world) as run:
        says = asyncio.create_task(run.says(*said[word]))
        await eventually(env, lambda: "verify" in world.devices.acts)
        world.annotate("false")
        await run.news()
        await eventually(env, lambda: "terminate" in world.acts)
        await run.until(lambda status: status.phase is Phase.FAILED_PRESERVED)
        verified.set()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await says
        assert "its machine is given up" in str(refused.value.cause)
        await run.timeout(Outcome.REPLACED)


@pytest.mark.parametrize("second", ["a duration", "a later moment"])
async def test_s44_no_extension_is_taken_that_a_shortening_on_its_way_would_have_refused_and_lost(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """S22, S44: Ada has shortened it, which is not written yet, and what Bob adds to her end is still before the one on the
    objects: his word does not say that it shortens, so that the look would have written neither."""
    world, gate, real = machine("now"), asyncio.Event(), preservation_run.ScriptedMachine.hold
    gate.set()

    async def hold(self, request: HoldRequest) -> Hold:
        await gate.wait()
        return await real(self, request)

    monkeypatch.setattr(preservation_run.ScriptedMachine, "hold", hold)
    async with kept(env, world) as run:
        gate.clear()
        ends, sooner = world.held.expiry, world.held.expiry - timedelta(hours=60)
        await run.news()
        await run.says(Preservation.extend, ExtendRequest(who="ada", reason="done soon", until=sooner, shorten=True))
        more = {"hold": timedelta(hours=2)} if second == "a duration" else {"until": sooner + timedelta(hours=2)}
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.says(Preservation.extend, ExtendRequest(who="bob", reason="not so soon", **more))
        assert "to end it earlier say so, with the moment" in str(refused.value.cause)
        gate.set()
        await run.until(lambda _: world.held.expiry != ends)
        assert world.held.expiry == sooner
        await run.until(lambda status: status.preserved_until == sooner)
        assert "preserved until" in await run.says(Preservation.extend, ExtendRequest(who="bob", reason="not so soon", **more))
        await run.until(lambda _: world.held.expiry == sooner + timedelta(hours=2))


async def test_s44_an_end_that_is_not_known_yet_is_moved_by_no_word_that_might_be_refused_later(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, gate, real = machine("now"), asyncio.Event(), preservation_run.ScriptedMachine.hold

    async def hold(self, request: HoldRequest) -> Hold:
        await gate.wait()
        return await real(self, request)

    monkeypatch.setattr(preservation_run.ScriptedMachine, "hold", hold)
    async with preserving(env, world) as run:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.says(Preservation.extend, ExtendRequest(who="ada", reason="not yet", hold=timedelta(hours=1)))
        assert "it is not known yet until when" in str(refused.value.cause)
        gate.set()
        await run.is_in(Phase.RUNNING_PRESERVED)
        await run.says(Preservation.extend, ExtendRequest(who="ada", reason="not yet", hold=timedelta(hours=1)))


@pytest.mark.parametrize("second", ["later still", "a moment before that"])
async def test_an_extension_that_is_not_written_yet_is_not_shortened_by_the_next_one(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """S22, S44: each was told until when it is preserved; who wants it shorter has to say so."""
    world, gate, real = machine("now"), asyncio.Event(), preservation_run.ScriptedMachine.hold
    gate.set()

    async def hold(self, request: HoldRequest) -> Hold:
        await gate.wait()
        return await real(self, request)

    monkeypatch.setattr(preservation_run.ScriptedMachine, "hold", hold)
    async with kept(env, world) as run:
        gate.clear()
        ends = world.held.expiry
        await run.news()
        await run.says(Preservation.extend, ExtendRequest(who="ada", reason="not yet", hold=timedelta(hours=100)))
        more = {"hold": timedelta(hours=1)} if second == "later still" else {"until": ends + timedelta(hours=2)}
        try:
            await run.says(Preservation.extend, ExtendRequest(who="bob", reason="nor then", **more))
        except WorkflowUpdateFailedError:
            assert second == "a moment before that"
        gate.set()
        await run.until(lambda _: world.held.expiry != ends)
        await let_pass(env, run.handle, timedelta(minutes=1))
        assert world.held.expiry >= ends + timedelta(hours=101 if second == "later still" else 100)


@pytest.mark.parametrize("twice", [False, True], ids=["until it is gone", "a second abort leaves it"])
async def test_the_claim_of_a_deletion_that_was_aborted_is_taken_back_however_often_it_takes(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, *, twice: bool
) -> None:
    """S35: one failed request, and it stood on the Node for ever."""
    world, real, withdrawn = machine("false", fails=True), preservation_run.ScriptedMachine.give_up, list[bool]()
    world.devices.gates["ask-permit"] = asyncio.Event()

    async def give_up(self, request: GiveUpRequest) -> GiveUpResult:
        if request.withdraw:
            withdrawn.append(True)
            if len(withdrawn) < 3 or twice:
                raise failure(ErrorType.UNREACHABLE, "the API is away")
        return await real(self, request)

    monkeypatch.setattr(preservation_run.ScriptedMachine, "give_up", give_up)
    async with preserving(env, world) as run:
        await run.until(lambda _: "permit" in world.acts)
        await run.abort()
        world.devices.gates["ask-permit"].set()
        if twice:
            await run.until(lambda _: len(withdrawn) > 1)
            await run.abort()
        result = await run.timeout(Outcome.ABORTED)
    assert len(withdrawn) == 3 or twice
    assert ("our claim on the Node can't be taken off" in result.message) is twice
