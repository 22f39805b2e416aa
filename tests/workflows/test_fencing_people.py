"""What people say to a fencing, and what follows: abort, hold, resume, a word for off, a start by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Kind, Need, NeedKind, Outcome, Phase
from policy.episode.node_action import CIRCUIT_BREAKER, DEVICE_READS_ON, VERIFIED, ActionName, Verb, Verified
from policy.episode.permits import PermitAnswer, PermitDecision, silent_scanner
from policy.fence.plan import CORDON
from policy.fence.power import PowerState
from policy.objects.marks import Mark
from policy.values.times import written
from tests.workflows.contract import DrainResult, LookVerdict
from tests.workflows.fencing_run import fencing, told
from tests.workflows.plans import BMC, CUT, DRAIN, FREE, PORT, switched
from tests.workflows.surroundings import asked_until, eventually, let_pass
from tests.workflows.world import NODE, World, left_by, plan
from workflows.definitions.episodes import Fencing
from workflows.kit.messages import AbortRequest, AcknowledgeRequest, HoldEpisodeRequest, PersonRequest

QUEUED = PermitAnswer(decision=PermitDecision.QUEUED, reason="1 of 1 permits are held", holder="us")
BOTH = f"{CIRCUIT_BREAKER},{DEVICE_READS_ON}"
SHORT_CIRCUIT = PermitAnswer(decision=PermitDecision.REFUSED, reason="NodeHealthCheck/workers has its circuit breaker open")


async def test_an_abort_before_off_undoes_our_marks(env: WorkflowEnvironment) -> None:
    """S35: every end runs its compensation."""
    patient, ends = (
        plan(wait_before_power=timedelta(days=3650)),
        {"ends": Outcome.ABORTED, "says": "ada (identity not verified): drill"},
    )
    at = {"at": "event NodeIsolated", "abort": "off"}
    _, result = await told(env, plan=patient, **at, **ends, did={"off": 0}, leaves={"unschedulable": False})
    assert not result.left_off


async def test_an_abort_after_off_finishes_consequences_and_leaves_the_power_off(env: WorkflowEnvironment) -> None:
    """S35: power-on after an abort is a decision of its own, and the result says that the machine was left off."""
    left = {"pods": 0, "out_of_service": False, "unschedulable": False}
    _, result = await told(env, at="event NodePoweredOff", abort="off", ends=Outcome.ABORTED, did={"on": 0}, leaves=left)
    assert result.left_off


async def test_a_persons_word_stands_for_the_proof(env: WorkflowEnvironment) -> None:
    """S8: with who and why, and nothing less; as an abort."""
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        # S44: what can be done, and what comes of each, wherever the problem is said.
        advice, ways = (status := await run.status()).advice, [way.verb for way in status.ways]
        assert ways == [Verb.RESUME, Verb.HOLD, Verb.ABORT, Verb.ACK_OFF]
        assert advice == (
            "fix the cause, then `nodewarden resume node-7 --question 1` tries again; if you saw it off, "
            "`nodewarden ack-off node-7 --question 1 --who … --reason …` is refused while ipmi://10.0.0.7:623 says on; with "
            "`--override device-reads-on` it has its pods started elsewhere (if it runs, data is corrupted); or "
            "`nodewarden abort node-7`: it ends once the power state "
            "is read; a machine that is off stays off, `nodewarden fence node-7 --reason …` brings it back"
        )
        await run.did("event NeedsHuman")
        assert any(event.reason == "NeedsHuman" and event.message.endswith(f"; {advice}") for event in world.events)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.acknowledge(" ")
        assert "reason" in str(refused.value.cause)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.abort, AbortRequest(who="", reason="x"))
        assert "who" in str(refused.value.cause)
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        result = await run.result(Outcome.RECOVERED)
    assert result.off_proof.acknowledgement.who == "ada"
    assert result.message == "off was acknowledged by ada (identity not verified); the node is back Ready with a new boot id", (
        "S8: never proven"
    )
    assert world.pods == 0
    assert "ask-permit" in world.acts  # it had given its permit back


async def test_off_is_not_acknowledged_while_a_device_says_on(env: WorkflowEnvironment) -> None:
    """S8: two machines would write to each volume. The refusal names the device, its reading, its age, and the ways out; once the
    device has no word any more, as where its plug was pulled, the person's stands."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        status = await run.status()
        (reading,) = status.readings
        assert (reading.endpoint, reading.state) == (BMC.endpoint, PowerState.ON)
        (way,) = (way for way in status.ways if way.verb is Verb.ACK_OFF)
        assert way.consequence == (
            f"is refused while {BMC.endpoint} says on; with `--override device-reads-on` it has its pods started elsewhere "
            "(if it runs, data is corrupted)"
        )
        await let_pass(env, run.handle, timedelta(minutes=3))
        for override in ("", "circuit-breaker"):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await run.acknowledge("saw it off", override=override)
            assert f"ack-off: {BMC.endpoint} says on, read 3m" in str(refused.value.cause)
            assert "pull its plug, then `nodewarden resume node-7 --question 1` reads it again" in str(refused.value.cause)
            assert "`--override device-reads-on`" in str(refused.value.cause)
        assert not any(entry.act == "acknowledge-off" for entry in await run.record())
        world.silent.add(BMC.endpoint)
        await run.resume("its plug is pulled")
        await run.until(lambda status: status.question == 2 and status.phase is Phase.NEEDS_HUMAN)
        await run.acknowledge("pulled the plug")
        await run.did("taint")
        assert "although" not in str(await run.record())
        await run.abort()


async def test_a_person_may_override_a_device_that_says_on(env: WorkflowEnvironment) -> None:
    """S8: a BMC that lies, or that was read before its plug was pulled. Record and result say against what the word stands, and
    Kubernetes has attested the override, too (S42)."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True, speaker="ada@example.com")
    async with fencing(env, world, parks=True) as run:
        asked = (await run.status()).question
        word = AcknowledgeRequest(who="", reason="it lies", action=ACTION, question=asked, override=DEVICE_READS_ON)
        await run.handle.execute_update(Fencing.acknowledge_off, replace(word, who="ada"))
        await run.did("taint")
        proof = (await run.status()).off_proof
        (entry,) = (entry for entry in await run.record() if entry.act == "acknowledge-off")
    assert proof.acknowledgement.sealed.spec.override == "device-reads-on"
    assert entry.detail.endswith(f": it lies, although {BMC.endpoint} says on")
    assert proof.basis.endswith(f", although {BMC.endpoint} says on")


async def test_a_device_that_says_on_after_it_said_off_ends_the_word_that_overrode_it(env: WorkflowEnvironment) -> None:
    """S6, S8: what was overridden is the reading of then. Once the device agrees, on is news: the machine was switched on."""
    slow = plan(free_timeout=timedelta(hours=1), tries=1, restarts=0)
    world = World(plan=slow, ignores_off=True, stubborn=True)
    async with fencing(env, world, parks=True) as run:
        await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        await run.did("taint")
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        await run.until(lambda status: [each.state for each in status.readings] == [PowerState.OFF])
        world.power = dict.fromkeys(world.power, PowerState.ON)
        await run.until(lambda status: "says on, which it did not when a person said off" in status.problem)


async def test_an_abort_says_what_the_devices_said_last(env: WorkflowEnvironment) -> None:
    """S1: of a machine whose device says on it was told that its power state is not known."""
    async with fencing(env, World(ignores_off=True), parks=True) as run:
        await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert result.message.endswith("; ipmi://10.0.0.7:623 said on"), result.message


async def test_off_is_not_acknowledged_before_it_is_asked_for(env: WorkflowEnvironment) -> None:
    """S8: a word given in advance would be no observation."""
    world = World()
    async with fencing(env, world, at="cordon") as run:
        with pytest.raises(WorkflowUpdateFailedError):
            await run.acknowledge("sure")


async def test_a_hold_stops_before_the_next_act_until_resumed(env: WorkflowEnvironment) -> None:
    """S14, S20: it is obeyed before the next destructive act, and nobody waits for a permit that is not used."""
    world = World()
    async with fencing(env, world, at="cordon") as run:
        await run.hold("looking at it")
        run.go_on()
        status = await run.until(lambda status: status.doing.startswith("held by ada"))
        assert (world.count("off"), status.permit, world.count("ask-permit")) == (0, False, 0)
        world.answers = [QUEUED]
        await run.resume("go")
        await run.result(Outcome.RECOVERED)
    assert world.count("ask-permit") == 2


@pytest.mark.parametrize(
    ("at", "stops"),
    [
        ("cordon", "its next destructive act"),
        ("taint", "freeing its pods and switching it on (the machine is off)"),
        ("untaint", "switching it on (the machine is off)"),
        ("on", "another try to switch the machine on"),
        ("uncordon", ""),
    ],
)
async def test_a_hold_says_what_it_still_stops(env: WorkflowEnvironment, at: str, stops: str) -> None:
    """S20, S44: after off it promised to stop a destructive act that never came, and was silent about what waits."""
    async with fencing(env, World(), at=at) as run:
        (offered,) = [way.consequence for way in (await run.status()).ways if way.verb is Verb.HOLD]
        answer = await run.hold()
        left = "nothing destructive is left to be done"
        assert (f"held before {stops}: `nodewarden resume" if stops else f"is held, but {left}; `nodewarden resume") in answer
        assert offered == (f"keeps it from {stops} until `resume`, or for a while" if stops else f"stops nothing: {left}")
        await run.resume()
        run.go_on()
        await run.result(Outcome.RECOVERED)


async def test_a_hold_for_a_while_says_when_it_ends(env: WorkflowEnvironment) -> None:
    """S44: a person who said `--for 2m` reads the moment that was understood."""
    async with fencing(env, World(), at="cordon") as run:
        until = (await env.get_current_time(run.handle)).replace(microsecond=0) + timedelta(minutes=2)
        asked = HoldEpisodeRequest(who="ada", reason="a look", until=until)
        answer = await run.handle.execute_update(Fencing.hold, asked)
        assert f"before its next destructive act until {written(until)}: `nodewarden resume" in answer
        run.go_on()
        await run.abort()
        await run.result(Outcome.ABORTED)


async def test_the_words_that_it_hears_are_named_and_no_others(env: WorkflowEnvironment) -> None:
    """S44: nobody is offered a word that is refused."""
    async with fencing(env, World(), at="cordon") as run:
        assert [way.verb for way in (await run.status()).ways] == [Verb.HOLD, Verb.ABORT]
        with pytest.raises(WorkflowUpdateFailedError):
            await run.resume()
        await run.hold()
        assert [way.verb for way in (await run.status()).ways] == [Verb.RESUME, Verb.HOLD, Verb.ABORT]
        await run.resume()
        await run.abort()
        ways = (await run.status()).ways
        assert [(way.verb, way.command) for way in ways] == [(Verb.ABORT, "nodewarden abort node-7")]
        run.go_on()
        await run.result(Outcome.ABORTED)


@pytest.mark.parametrize("at", ["uncordon", "release-lease"], ids=["on its way out", "ended"])
async def test_a_hold_that_an_abort_has_ended_is_not_ended_again(env: WorkflowEnvironment, at: str) -> None:
    """S44: who resumes it then was told that it goes on, and it ends all the same."""
    world = World()
    async with fencing(env, world, at="cordon") as run:
        world.gates[at] = asyncio.Event()
        await run.hold()
        await run.abort()
        run.go_on()
        await run.did(at)
        assert Verb.RESUME not in [way.verb for way in (await run.status()).ways]
        with pytest.raises(WorkflowUpdateFailedError):
            await run.resume()
        world.gates[at].set()
        await run.result(Outcome.ABORTED)


@pytest.mark.parametrize("at", ["ask-permit", "uncordon"], ids=["before it is heard", "on its way out"])
async def test_who_waits_for_a_person_and_was_aborted_is_not_resumed(env: WorkflowEnvironment, at: str) -> None:
    """S44: who resumes it then was told that it goes on, and it ends all the same; nor is a word for off of use."""
    async with fencing(env, world := World(ignores_off=True), parks=True) as run:
        world.gates[at] = asyncio.Event()
        if at == "ask-permit":
            await run.resume()
            await run.did(at)
        await run.abort()
        if at == "uncordon":
            await run.did(at)
        assert {Verb.RESUME, Verb.ACK_OFF}.isdisjoint(way.verb for way in (await run.status()).ways)
        with pytest.raises(WorkflowUpdateFailedError):
            await run.resume()
        world.gates[at].set()
        await run.result(Outcome.ABORTED)


async def test_an_abort_while_the_return_is_waited_for_is_shown_and_asks_no_person(env: WorkflowEnvironment) -> None:
    """S35, S44: the machine is on by then, which the answer says; at the end of the wait people were paged, and told to abort."""
    async with fencing(env, world := World(boot_seconds=None), at="event NodePoweredOff") as run:
        run.go_on()
        await run.until(lambda status: "come back Ready" in status.doing)
        answer = await run.abort()
        assert answer.endswith("is switched on already; it ends once the node is back, or its time for that is over")
        assert (await run.status()).aborted == "aborted by ada (identity not verified): drill"
        result = await run.result(Outcome.ABORTED)
    assert "drill; the node is not back Ready" in result.message
    assert (world.count("event NeedsHuman"), world.count("on")) == (0, 1)
    assert [entry.outcome for entry in result.record if entry.act == "phase"][-2:] == ["done", "final"]


async def test_an_abort_asks_for_power_as_long_as_that_is_heard(env: WorkflowEnvironment) -> None:
    """S44: who added `--power-on` while it was on its way out was told that the machine is switched on, and it stayed off."""
    async with fencing(env, world := World(), at="event NodePoweredOff") as run:
        world.gates["uncordon"] = asyncio.Event()
        await run.abort()
        run.go_on()
        await run.did("uncordon")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.abort(power_on=True)
        assert "leaves the machine off: `nodewarden fence node-7" in str(refused.value.cause)
        await run.abort()
        world.gates["uncordon"].set()
        assert (await run.result(Outcome.ABORTED)).left_off
    assert world.count("on") == 0


async def test_holds_stack_and_the_episode_goes_on_when_none_is_left(env: WorkflowEnvironment) -> None:
    """S20, S44: Ada has her hands in the machine; Bob, who holds it for a look and resumes, ends nothing of hers."""
    async with fencing(env, world := World(), at="cordon") as run:

        async def says(update: object, word: object) -> str:
            return str(await run.handle.execute_update(update, word))  # type: ignore[call-overload]

        await run.hold("my hands are in it")
        beside = await says(Fencing.hold, HoldEpisodeRequest(who="bob", reason="a look"))
        assert "it is also held by ada (identity not verified): my hands are in it" in beside
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        answer = await run.answer("seen")
        assert (await run.status()).held_by == ("ada (identity not verified)", "bob (identity not verified)")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await says(Fencing.resume, replace(answer, who="cem"))
        assert "expected a hold of cem (identity not verified), and there is none: it is held by ada" in str(refused.value.cause)
        still = await says(Fencing.resume, replace(answer, who="bob"))
        assert "is still held by ada (identity not verified): my hands are in it; you have ended: held by bob" in still
        await let_pass(env, run.handle, timedelta(minutes=20))
        assert world.count("off") == 0
        await run.hold("almost done", until=await env.get_current_time() + timedelta(minutes=1))  # her own she may replace
        assert (await run.status()).held_by == ("ada (identity not verified)",)
        await run.result(Outcome.RECOVERED)


async def test_a_hold_of_another_person_is_ended_by_name_only(env: WorkflowEnvironment) -> None:
    """S44: and the record says whose it was."""
    async with fencing(env, World(), at="cordon") as run:
        await run.hold("my hands are in it")
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        await run.handle.execute_update(Fencing.resume, replace(await run.answer("she is gone"), who="bob", of="ada"))
        await run.result(Outcome.RECOVERED)
        record = await run.record()
    ended = [each.detail for each in record if (each.act, each.outcome) == ("hold", "ended")]
    assert ended == ["held by ada (identity not verified): my hands are in it; by bob (identity not verified)"]


async def test_an_abort_under_another_persons_hold_says_so_to_both(env: WorkflowEnvironment) -> None:
    """S44: it ended the hold in silence; and the offer to resume called another person's hold the reader's own."""
    async with fencing(env, World(ignores_off=True), parks=True) as run:
        await run.handle.execute_update(Fencing.hold, HoldEpisodeRequest(who="bob", reason="console open"))
        await run.hold("my own look")
        status = await run.status()
        means = {way.verb: way.consequence for way in status.ways}
        both = "bob (identity not verified) and ada (identity not verified)"
        last = "the last one lets it go on; `ack-off`, if you saw it off, is taken once no hold is left"
        assert means[Verb.RESUME] == f"ends the hold of NAME (held by {both}); {last}"
        assert f"`nodewarden resume {NODE} --question {status.question} --of NAME` ends the hold of NAME" in status.advice
        assert means[Verb.ABORT].startswith(f"ends every hold (held by {both}); ")
        answer = await run.abort()
        assert "; it ends the hold of another person: held by bob (identity not verified): console open: " in answer
        assert "held by ada" not in answer
        status = await run.status()
        assert (status.held, status.held_by) == ("", ())
        await run.result(Outcome.ABORTED)
        record = await run.record()
    ended = [each.detail for each in record if (each.act, each.outcome) == ("hold", "ended")]
    assert ended == ["held by bob (identity not verified): console open; by ada (identity not verified)"]


async def test_a_word_for_off_is_refused_during_a_hold(env: WorkflowEnvironment) -> None:
    """S8, S44: it would have done nothing, and the `resume` after it would have discarded it."""
    async with fencing(env, World(ignores_off=True), parks=True) as run:
        await run.hold("look first")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.acknowledge("pulled it")
        question = (await run.status()).question
        ends = f"`nodewarden resume {NODE} --question {question} --of ada`"
        assert f"held by ada (identity not verified): look first; {ends} ends that" in str(refused.value.cause)
        status = await run.status()
        assert Verb.ACK_OFF not in [way.verb for way in status.ways]
        then = "; `ack-off`, if you saw it off, is taken once no hold is left"
        assert f"{ends} ends the hold of ada (identity not verified), and lets it go on{then}" in status.advice
        await run.resume("looked")
        await run.parked()
        assert Verb.ACK_OFF in [way.verb for way in (await run.status()).ways]


async def test_a_hold_ends_at_its_moment(env: WorkflowEnvironment) -> None:
    """S20, S44: nothing before it, and nobody has to remember it; it is said until when."""
    async with fencing(env, world := World(), at="cordon") as run:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.hold("x", until=await env.get_current_time() - timedelta(seconds=1))
        assert "until: expected a moment that is still to come" in str(refused.value.cause)
        until = await env.get_current_time() + timedelta(minutes=20)
        await run.hold("looking at it", until=until)
        run.go_on()
        status = await run.until(lambda status: status.doing.startswith("held by ada"))
        assert (status.waiting_until, f", until {written(until)}: looking at it" in status.doing) == (until, True)
        await let_pass(env, run.handle, timedelta(minutes=20))
        result = await run.result(Outcome.RECOVERED)
    assert next(entry.at for entry in result.record if entry.act == "power-off") >= until
    assert world.count("off") == 1


async def test_a_hold_after_off_keeps_the_permit(env: WorkflowEnvironment) -> None:
    """S14: a machine that is off counts, whoever holds its episode."""
    world = World()
    async with fencing(env, world, at="event NodePoweredOff") as run:
        await run.hold("looking at it")
        run.go_on()
        assert (await run.until(lambda status: status.doing.startswith("held by ada"))).permit
        await run.resume("go")
        await run.result(Outcome.RECOVERED)


async def test_a_manual_start_asks_for_a_permit_and_waits_in_the_queue(env: WorkflowEnvironment) -> None:
    """S14: nobody acts without a permit, however started."""
    world = World(need=Need(kind=NeedKind.PERSON, reason="drill", requester="ada"), ready=True, answers=[QUEUED] * 100_000)
    async with fencing(env, world, permit_granted=False, holder="") as run:
        status = await run.until(lambda status: status.phase is Phase.QUEUED and "1 of 1" in status.doing)
        assert not status.permit
        assert set(world.acts) == {"pin", "ask-permit"}  # it asks again now and then, in case the scanner has forgotten it
        await run.handle.signal(Fencing.permit_granted)
        await run.result(Outcome.RECOVERED)


async def test_s44_a_request_that_is_queued_outlives_a_scanner_that_gives_no_answer_for_a_moment(
    env: WorkflowEnvironment,
) -> None:
    """That it is queued its person was told; it ended refused where it asked again while a scanner began anew. A rule ends it."""
    silent = PermitAnswer(decision=PermitDecision.REFUSED, reason=silent_scanner("prod"))
    stopped = replace(silent, reason="its zone is out of order", rule="storm")
    world = World(
        need=Need(kind=NeedKind.PERSON, reason="drill"), ready=True, answers=[QUEUED, silent, silent, QUEUED, silent, stopped]
    )
    async with fencing(env, world, permit_granted=False) as run:
        await run.until(lambda status: status.phase is Phase.QUEUED)
        result = await run.result(Outcome.REFUSED)
    assert (result.message, world.count("ask-permit")) == ("its zone is out of order", 6)


async def test_an_abort_in_the_queue_is_an_abort_and_no_refusal(env: WorkflowEnvironment) -> None:
    """S35: it is told, and found again, as what it was."""
    world = World(need=Need(kind=NeedKind.PERSON, reason="drill"), ready=True, answers=[QUEUED] * 100_000)
    async with fencing(env, world, permit_granted=False) as run:
        await run.until(lambda status: status.phase is Phase.QUEUED)
        answer = await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert answer.endswith("it has no permit yet, and nothing was done to the node")
    assert result.message == "aborted by ada (identity not verified): drill; nothing had been done"
    assert set(world.acts) == {"pin", "ask-permit"}


async def test_a_permit_that_the_scanner_does_not_know_of_is_asked_for_before_anything_is_disrupted(
    env: WorkflowEnvironment,
) -> None:
    """S14, S20: whoever starts the workflow may say that it was granted, and a scanner may have been replaced since."""
    queued = [QUEUED] * 3
    world = World(permitted=False, answers=queued)
    async with fencing(env, world, permit_granted=True) as run:
        status = await run.until(lambda status: bool(status.queued))
        assert (status.permit, "cordon" in world.acts, world.count("off")) == (False, False, 0)
        await run.result(Outcome.RECOVERED)
    assert world.acts.index("ask-permit") < world.acts.index("cordon")


async def test_a_refused_start_touches_nothing_and_says_why(env: WorkflowEnvironment) -> None:
    """S17, S18: refused with the reason."""
    ends = {"ends": Outcome.REFUSED, "says": "circuit breaker open", "leaves": {"acts": ["pin", "ask-permit"]}}
    await told(env, answers=[SHORT_CIRCUIT], given={"permit_granted": False}, **ends)


async def test_a_node_that_is_not_there_is_missing_and_nothing_is_begun(env: WorkflowEnvironment) -> None:
    """S44: whoever mistyped a name is told that, and not that he was refused."""
    gone = [failure(ErrorType.NOT_FOUND, "node-7: there is no such Node")]
    _, result = await told(
        env, errors={"pin": gone}, ends=Outcome.REFUSED, says="there is no such Node", leaves={"acts": ["pin"]}
    )
    assert result.missing


@pytest.mark.parametrize("ready", [True, False])
async def test_the_scanner_is_told_whether_the_node_answers(env: WorkflowEnvironment, ready: bool) -> None:
    """S15: one that does not is no member that the others could lose."""
    ends = {"ends": Outcome.REFUSED, "says": "circuit breaker open"}
    world, _ = await told(env, answers=[SHORT_CIRCUIT], given={"permit_granted": False}, ready=ready, **ends)
    assert [permit.ready for permit in world.permits] == [ready]


async def test_what_is_left_is_restoring_and_no_limit_holds_it_up(env: WorkflowEnvironment) -> None:
    """S17: off and freed, parked because the machine would not switch on: a person's `resume` asks no scanner, whose circuit
    breaker may be open because of this very node."""
    world = World(errors={"on": [failure(ErrorType.UNREACHABLE, "no answer")] * 500}, answers=[SHORT_CIRCUIT] * 500)
    async with fencing(env, world, parks=True) as run:
        assert world.pods == 0
        world.errors["on"].clear()
        assert (await run.resume("the BMC answers again")).endswith(" goes on"), "and says so"
        await run.result(Outcome.RECOVERED)
    assert [command.partition(" ")[0] for command in world.commands] == ["off", "on"]
    assert world.count("ask-permit") == 0


@pytest.mark.parametrize("mended", [True, False], ids=["as it was pinned", "another device"])
async def test_an_episode_whose_key_was_lost_is_resumed_with_the_key_that_there_is(
    env: WorkflowEnvironment, mended: bool
) -> None:
    """S42: after off, from where on the devices that were begun with are those that finish (S9)."""
    world = World()
    async with fencing(env, world, at="event NodePoweredOff") as run:
        world.key = "new"
        run.go_on()
        await run.parked()
        if not mended:
            world.plan = world.plan.with_devices(lambda device: replace(device, parameters={"ip": "10.0.0.66"}))
        await run.resume("the keys are there again")
        if not mended:
            await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN and "has signed it" in status.problem)
            await run.abort()
        await run.result(Outcome.RECOVERED if mended else Outcome.ABORTED)
    assert (world.count("off"), world.count("on")) == (1, 1 if mended else 0)


async def test_s49_the_seal_of_a_device_that_is_waited_with_is_made_anew_before_it_ends(env: WorkflowEnvironment) -> None:
    """A hold may last; so may the wait for a person: what is configured as it was pinned goes on being believed."""
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        await let_pass(env, run.handle, timedelta(days=8))
        world.ignores_off = False
        await run.resume("it is mended")
        await run.result(Outcome.RECOVERED)
    assert world.count("pin") == 2


@pytest.mark.parametrize("at", ["pin", "event NodePoweredOff"])
async def test_s40_an_address_that_a_credential_never_went_to_is_a_persons_to_admit(env: WorkflowEnvironment, at: str) -> None:
    """It is asked for at once, and said which; what was admitted meanwhile counts from the person's `resume` on."""
    world = World(strange_to=("Secret/nodewarden/bmc",) if at == "pin" else ())
    async with fencing(env, world, at="" if at == "pin" else at) as run:
        if at != "pin":  # it is sealed anew then, and by then the address is another one
            world.key, world.strange_to = "new", ("Secret/nodewarden/bmc",)
            await run.parked()
            await run.resume("the keys are there again")
            await run.until(lambda status: "sent to other hosts" in status.problem)
        assert "Secret/nodewarden/bmc: ipmi://10.0.0.7:623: it was only sent to other hosts" in (await run.parked()).problem
        asked, commands = (await run.status()).question, list(world.commands)
        await run.resume("it is the right one")
        await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN and status.question > asked)
        assert world.commands == commands
        world.strange_to = ()
        await run.resume("admitted")
        await run.result(Outcome.RECOVERED)
    assert (world.count("off"), world.count("on")) == (1, 1)


async def test_an_episode_is_found_and_understood_from_outside(env: WorkflowEnvironment) -> None:
    """Search attributes, details and the record are there for whoever looks."""
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        description = await run.handle.describe()
        found = {pair.key.name: pair.value for pair in description.typed_search_attributes}
        assert found["Node"] == NODE
        assert found["Phase"] == Phase.NEEDS_HUMAN
        assert found["Kind"] == Kind.FENCING
        assert found["Zone"] == "a"
        record = await run.record()
        assert [entry.act for entry in record][:3] == ["pin", "phase", "mark-unschedulable"] or record[0].act == "pin"


async def test_a_word_is_kept_until_there_is_a_permit(env: WorkflowEnvironment) -> None:
    """S44: right after a worker's start every permit is refused for a while, as the view is young; a hold takes the word back."""
    world = World(ignores_off=True, answers=[SHORT_CIRCUIT] * 3)
    async with fencing(env, world, parks=True) as run:
        assert "as soon as the scanner gives it a permit" in await run.resume("the BMC is mended")
        await run.until(
            lambda status: (
                "the answer of ada (identity not verified) is kept until there is a permit: NodeHealthCheck" in status.problem
            )
        )
        await run.hold("wait, look first")
        assert (
            await run.status()
        ).held == "held by ada (identity not verified): wait, look first"  # S44: also while it waits for a person
        asked = world.count("ask-permit")
        await let_pass(env, run.handle, timedelta(hours=1))
        assert world.count("ask-permit") == asked
        world.ignores_off = False
        await run.resume("now")
        await run.result(Outcome.RECOVERED)
    assert world.count("ask-permit") == 4


async def test_resume_takes_back_a_word_that_was_not_used_yet(env: WorkflowEnvironment) -> None:
    """S8: whoever doubts it while the episode still waits for its permit is heard; the devices are asked again."""
    world = World(ignores_off=True)
    world.gates["ask-permit"] = asyncio.Event()
    async with fencing(env, world, parks=True) as run:
        await run.acknowledge("I think so", override=DEVICE_READS_ON)
        await run.did("ask-permit")
        await run.handle.execute_update(Fencing.resume, replace(await run.answer("the fan still turns"), who="bob"))
        world.gates["ask-permit"].set()
        status = await run.parked()
        assert "says on" in status.problem
        assert world.consequences == []
        record = await run.record()
    assert any((entry.act, entry.outcome) == ("acknowledge-off", "taken back") for entry in record)


async def test_a_cancellation_takes_nothing_back_of_a_persons_abort(env: WorkflowEnvironment) -> None:
    """S35, S44: whoever clicks Cancel in Temporal's page beside it leaves the machine no less on, and nobody's name forgotten."""
    async with fencing(env, World(), at="taint") as run:
        await run.abort(power_on=True)
        await run.handle.cancel()
        await asked_until(env, run.record, lambda record: any("Temporal" in each.detail for each in record))
        run.go_on()
        result = await run.result(Outcome.ABORTED)
    assert run.world.count("on") == 1
    assert "ada" in result.message


ACTION = ActionName(name="hold-x7", uid="u-1")
PERSON = Need(kind=NeedKind.PERSON, reason="drill", requester="ada")
WISH = {"need": PERSON, "action": ACTION, "requester": "ada", "reason": "drill", "permit_granted": False}
"""What a person asks for, and his NodeAction says."""


async def test_a_word_that_kubernetes_attests_bears_that_name_wherever_it_is_shown(env: WorkflowEnvironment) -> None:
    """S42: the server's name, not the caller's; in status, record and proof. A new history knows it as well."""
    world = World(ignores_off=True, speaker="ada@example.com")
    async with fencing(env, world, parks=True) as run:
        await run.handle.execute_update(Fencing.hold, PersonRequest(who="ada@example.com", reason="looks", action=ACTION))
        await run.handle.execute_update(Fencing.resume, replace(await run.answer("go on"), who="eve", action=ACTION))
        await run.parked()
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        asked = (await run.status()).question
        word = AcknowledgeRequest(who="bob", reason="pulled the plug", action=ACTION, question=asked, override=DEVICE_READS_ON)
        await run.handle.execute_update(Fencing.acknowledge_off, word)
        result = await run.result(Outcome.RECOVERED)
    said = [entry.detail for entry in result.record]
    assert "by ada@example.com, verified by Kubernetes: looks" in said
    assert "by ada@example.com, verified by Kubernetes (for eve): go on" in said
    proof = result.off_proof.acknowledgement
    assert (proof.verified, proof.speaker, proof.who) == (Verified.KUBERNETES, "ada@example.com", "bob")
    assert (proof.sealed.spec.action, proof.sealed.seal) == (Verb.ACK_OFF, result.incident)
    assert world.count("verify") == 3


async def test_nothing_of_how_a_word_was_verified_is_believed_of_the_caller(env: WorkflowEnvironment) -> None:
    """S42, S41: neither his fields nor his name say so; and who names no object costs no activity."""
    world = World()
    async with fencing(env, world, at="cordon") as run:
        claims = {"who": "root", "reason": "x", "verified": "kubernetes", "speaker": "root"}
        await run.handle.execute_update("hold", claims)
        assert world.count("verify") == 0
        await run.handle.execute_update("hold", claims | {"reason": "y", "action": {"name": "hold-x7", "uid": "u-1"}})
        said = [entry.detail for entry in await run.record() if entry.act == "hold"]
        assert said == ["by root (identity not verified): x", "by root (identity not verified): y"]
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.hold, PersonRequest(who="root, verified by Kubernetes", reason="x"))
        assert "added to it by nodewarden alone" in str(refused.value.cause)
        await run.handle.execute_update(Fencing.resume, replace(await run.answer("go"), of="root"))
        await run.result(Outcome.RECOVERED)


async def test_a_word_that_does_not_stand_is_refused_to_the_person_and_obeyed_in_nothing(env: WorkflowEnvironment) -> None:
    """S42, S44. So is one that can't be said any more once that is known."""
    world = World(errors={"verify": [failure(ErrorType.NOT_LICENSED, "NodeAction/hold-x7: it has been used already")]})
    async with fencing(env, world, at="cordon") as run:
        word = PersonRequest(who="ada", reason="looks", action=ACTION)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.hold, word)
        assert "it has been used already" in str(refused.value.cause)
        world.gates["verify"] = asyncio.Event()
        late = asyncio.create_task(run.handle.execute_update(Fencing.hold, word))
        await eventually(env, lambda: world.count("verify") == 2)
        await run.abort()
        world.gates["verify"].set()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await late
        assert "this one was aborted by ada (identity not verified)" in str(refused.value.cause)
        result = await run.result(Outcome.ABORTED)
    assert not [entry for entry in result.record if entry.act == "hold"]


@pytest.mark.parametrize(
    ("speaker", "shown"),
    [("ada@example.com", "ada@example.com, verified by Kubernetes (for ada)"), ("", "ada (identity not verified)")],
)
async def test_who_asks_for_an_episode_is_verified_before_anything_is_looked_at(
    speaker: str, shown: str, env: WorkflowEnvironment
) -> None:
    """S42. Who names no object says so himself, and costs nothing."""
    for action in (ACTION, None):
        world = World(need=PERSON, speaker=speaker)
        async with fencing(env, world, at="cordon", **(WISH | {"action": action})) as run:
            assert (await run.status()).requester == (shown if action else "ada (identity not verified)")
            result = await run.result(Outcome.RECOVERED)
        assert (world.acts[0] == "verify", world.count("verify")) == ((True, 1) if action else (False, 0))
        noted = [entry.detail for entry in result.record if entry.act == "request"]
        assert noted == ([f"by {shown}: drill"] if action else [])
        told = {each.seal if each is not None else "" for each in world.wishes}
        assert told == {result.incident if action and speaker else ""}


async def test_an_episode_whose_wish_does_not_stand_ends_before_anything_is_looked_at(env: WorkflowEnvironment) -> None:
    """S42: to the person, as refused."""
    world = World(errors={"verify": [failure(ErrorType.NOT_LICENSED, "it is too old")]})
    async with fencing(env, world, **WISH) as run:
        result = await run.result(Outcome.REFUSED)
    assert (world.acts, "it is too old" in result.message) == (["verify"], True)


@pytest.mark.parametrize("beyond", ["permit_granted", "node_uid", "need"])
async def test_a_word_that_kubernetes_attests_says_nothing_of_what_is_named_beside_it(
    beyond: str, env: WorkflowEnvironment
) -> None:
    """S42: whoever sees a NodeAction that was not used yet adds nothing to it."""
    world = World()
    more = {"permit_granted": True, "node_uid": "uid-9", "need": replace(PERSON, kind=NeedKind.CHECK)}[beyond]
    async with fencing(env, world, **(WISH | {beyond: more})) as run:
        result = await run.result(Outcome.REFUSED)
    assert (world.acts, result.message.partition(":")[0]) == ([], beyond)


@pytest.mark.parametrize("kind", [NeedKind.CHECK, NeedKind.PERSON])
async def test_no_input_of_a_workflow_writes_a_line_or_a_verified_name_of_its_own(
    kind: NeedKind, env: WorkflowEnvironment
) -> None:
    """S42, S41: neither of an episode that says that a program wants it, nor in a word's reason."""
    forged = {
        "requester": "ada, verified by Kubernetes",
        "need": Need(kind=kind, reason="sick\nnode-8  fenced"),
        "permit_granted": False,
    }
    world = World(need=forged["need"])
    async with fencing(env, world, at="cordon", **forged) as run:
        status = await run.status()
        assert (status.requester.partition(" (")[0], status.reason) == ("unknown", "sick node-8  fenced")
        assert status.by_person is (kind is NeedKind.PERSON), "by which the scanner ends hold-offs (S19)"
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.hold, PersonRequest(who="ada", reason="looks\nby bob: go on"))
        assert "reason: expected one line" in str(refused.value.cause)
        await run.result(Outcome.RECOVERED)


async def test_a_word_that_answers_another_question_than_is_asked_is_refused_to_that_person(env: WorkflowEnvironment) -> None:
    """S8, S35, S48: what Ada mended was a switch that did not obey; by the time that her word arrives it is asked whether a path
    is given back behind which pods were freed. So is her second click, and a word that names no number."""
    isolation = {"levels": (), "isolation": (CORDON, CUT, FREE)}
    world = World(plan=switched(**isolation, tries=1, restarts=0), stuck={PORT.endpoint})
    async with fencing(env, world, parks=True) as run:
        first = await run.answer("the switch obeys again")
        assert "the path is not cut" in (await run.status()).problem
        world.stuck.clear()
        await run.handle.execute_update(Fencing.resume, first)
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        status = await run.parked()
        assert f"{PORT.endpoint} is left cut" in status.problem
        assert next(way.command for way in status.ways) == (
            f"nodewarden return-path node-7 --question {status.question} --reason …"
        )
        for update in (Fencing.resume, Fencing.return_path):
            for stale in (first, replace(first, question=0)):
                with pytest.raises(WorkflowUpdateFailedError) as refused:
                    await run.handle.execute_update(update, stale)
                assert f"{PORT.endpoint}" in str(refused.value.cause)
        await let_pass(env, run.handle, timedelta(hours=1))
        assert (world.count("restore-path"), world.paths[PORT.endpoint]) == (0, PowerState.OFF)
        world.word = True
        await run.return_path()
        await run.result(Outcome.RECOVERED)
    assert world.count("restore-path") == 1


async def test_a_resume_of_a_hold_is_no_answer_to_what_is_asked_since(env: WorkflowEnvironment) -> None:
    """S8, S48: Ada's word comes twice, and by then the machine could not be proven off. Nor is a word for off an answer that was
    meant for another asking: what it saw was before."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, at="cordon") as run:
        await run.hold()
        of_the_hold = await run.answer("go on")
        await run.resume()
        await run.parked()
        for update, word in ((Fencing.resume, of_the_hold), (Fencing.acknowledge_off, of_the_hold)):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await run.handle.execute_update(update, word)
            now = (await run.status()).question
            assert f"got an answer to question {of_the_hold.question}; now it is {now}: off is not proven" in str(
                refused.value.cause
            )
        assert world.count("off") == 1
        world.ignores_off = False
        await run.resume()
        await run.result(Outcome.RECOVERED)


async def test_a_resume_of_a_hold_that_is_over_by_itself_is_no_answer_to_what_is_asked(env: WorkflowEnvironment) -> None:
    """S48: it waited for a person before the hold already, and would try again unseen."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        await run.hold(until=await env.get_current_time() + timedelta(minutes=10))
        of_the_hold = await run.answer("go on")
        await let_pass(env, run.handle, timedelta(minutes=11))
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.resume, of_the_hold)
        assert f"got an answer to question {of_the_hold.question}; now it is" in str(refused.value.cause)
        assert world.count("off") == 1


async def test_a_second_click_is_no_second_word(env: WorkflowEnvironment) -> None:
    """S48: the first one was heard, tried again, and failed again; the second one would have it try once more, unseen."""
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        word = await run.answer()
        await run.handle.execute_update(Fencing.resume, word)
        await eventually(env, lambda: world.count("event NeedsHuman") == 2)
        await run.parked()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.resume, word)
        assert "resume: expected the --question that is asked, got an answer to question 1; now it is 2" in str(
            refused.value.cause
        )
        assert world.count("off") == 2


OVERRIDDEN = f"overridden by ada@example.com{VERIFIED}"


async def test_an_override_is_asked_for_shown_told_and_brought_along_to_each_look(env: WorkflowEnvironment) -> None:
    """S17, S42: who, and why; in status, record and an Event. The permit that is asked for later is one past the breaker, too."""
    world = World(need=PERSON, speaker="ada@example.com")
    async with fencing(env, world, at="cordon", **(WISH | {"override": CIRCUIT_BREAKER})) as run:
        await run.hold()
        run.go_on()
        status = await run.until(lambda status: not status.permit)
        assert status.override == f"ada@example.com{VERIFIED}: drill"
        await run.resume()
        result = await run.result(Outcome.RECOVERED)
    assert [each.override for each in world.permits] == [CIRCUIT_BREAKER] * 2
    assert {each and (each.spec.override, each.seal) for each in world.overrides} == {(CIRCUIT_BREAKER, result.incident)}
    noted = [entry.detail for entry in result.record if (entry.act, entry.outcome) == ("override", CIRCUIT_BREAKER)]
    told = [event.message for event in world.events if event.reason == "CircuitBreakerOverridden"]
    assert (len(noted), len(told), {OVERRIDDEN in each for each in (*noted, *told)}) == (2, 2, {True})


@pytest.mark.parametrize(("action", "speaker"), [(None, "ada@example.com"), (ACTION, "")])
async def test_an_unattested_override_begins_nothing(action: ActionName | None, speaker: str, env: WorkflowEnvironment) -> None:
    """S17, S42: it is a right of its own, which nothing but the API server can check."""
    world = World(need=PERSON, speaker=speaker)
    async with fencing(env, world, **(WISH | {"override": CIRCUIT_BREAKER, "action": action})) as run:
        result = await run.result(Outcome.REFUSED)
    assert (world.count("pin"), "Kubernetes attests who overrides" in result.message) == (0, True)


@pytest.mark.parametrize("kind", [NeedKind.CHECK, NeedKind.PERSON])
async def test_a_word_for_off_may_override_the_breaker_that_keeps_it_waiting(kind: NeedKind, env: WorkflowEnvironment) -> None:
    """S8, S17: said once more, attested; whoever wanted the episode."""
    world = World(ignores_off=True, answers=[SHORT_CIRCUIT] * 50, need=Need(kind=kind, reason="drill"))
    async with fencing(env, world, parks=True) as run:
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        waits = lambda status: "is kept until" in status.problem and status.phase is Phase.NEEDS_HUMAN  # noqa: E731
        word = AcknowledgeRequest(who="ada", reason="saw it", question=(await run.until(waits)).question, override=BOTH)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.handle.execute_update(Fencing.acknowledge_off, word)
        assert "Kubernetes attests who overrides" in str(refused.value.cause)
        assert world.permits[-1].override == ""
        world.speaker = "ada@example.com"
        await run.until(waits)
        world.answers = []
        await run.handle.execute_update(Fencing.acknowledge_off, replace(word, action=ACTION))
        result = await run.result(Outcome.RECOVERED)
    assert (world.permits[-1].override, world.pods) == (CIRCUIT_BREAKER, 0)
    assert result.off_proof.acknowledgement.sealed.spec.override == BOTH


async def test_a_word_for_off_overrides_nothing_but_what_it_may(env: WorkflowEnvironment) -> None:
    """S8: what a person says is obeyed or refused to that person."""
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        for odd in ("quorum", f"{DEVICE_READS_ON},quorum", "x" * 3000):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await run.acknowledge("pulled the plug", override=odd)
            assert "override: expected circuit-breaker or device-reads-on" in str(refused.value.cause)
            assert len(str(refused.value.cause)) < 300
        world.power = dict.fromkeys(world.power, PowerState.OFF)
        await run.acknowledge("pulled the plug", override=DEVICE_READS_ON)
        await run.result(Outcome.RECOVERED)


VOUCHED: dict[str, object] = {**WISH, "seen_off": True}
BEFORE_IT = datetime(2026, 1, 1, tzinfo=UTC)
"""Since when the node is not Ready that a person has seen off."""


@pytest.mark.parametrize("action", [ACTION, None])
async def test_a_word_for_off_begins_an_episode_that_frees_on_it(action: ActionName | None, env: WorkflowEnvironment) -> None:
    """S8: for the pinned boot, with a permit, and nothing is switched off on it."""
    world = World(need=PERSON, not_ready_since=BEFORE_IT, speaker="ada@example.com" if action else "")
    world.power = dict.fromkeys(world.power, PowerState.OFF)
    async with fencing(env, world, **(VOUCHED | {"action": action})) as run:
        result = await run.result(Outcome.RECOVERED)
    assert (world.count("off"), world.count("cordon"), world.count("ask-permit"), world.pods) == (0, 0, 1, 0)
    word = result.off_proof.acknowledgement
    assert (word.why, word.sealed.spec.action if word.sealed else "") == ("drill", Verb.ACK_OFF if action else "")


async def test_a_word_for_off_of_a_node_that_says_ready_begins_nothing(env: WorkflowEnvironment) -> None:
    """S1, S8."""
    world = World(need=PERSON, ready=True, speaker="ada@example.com")
    async with fencing(env, world, **VOUCHED) as run:
        result = await run.result(Outcome.REFUSED)
    assert ("says Ready, so it is not off" in result.message, world.count("mark"), world.count("ask-permit")) == (True, 0, 0)


async def test_a_word_for_off_is_of_the_fall_that_the_person_saw(env: WorkflowEnvironment) -> None:
    """S8, S43: the cluster was looked at only later; the machine had been switched on, was Ready, and fell silent anew."""
    world = World(need=PERSON, speaker="ada@example.com")
    world.power = dict.fromkeys(world.power, PowerState.UNKNOWN)
    async with fencing(env, world, at="pin", **VOUCHED) as run:
        world.boot_id = "boot-2"
        await let_pass(env, run.handle, timedelta(seconds=20))
        run.go_on()
        result = await run.result(Outcome.REFUSED)
    assert ("was Ready after ada@example.com" in result.message, world.count("mark"), world.pods > 0) == (True, 0, True)


async def test_a_word_for_off_is_asked_again_of_the_node_after_a_wait_for_the_permit(env: WorkflowEnvironment) -> None:
    """S8, S47: the same boot is Ready by then, so the person erred; it is not even marked."""
    world = World(need=PERSON, not_ready_since=BEFORE_IT, speaker="ada@example.com")
    async with fencing(env, world, at="ask-permit", **VOUCHED) as run:
        world.ready = True
        run.go_on()
        result = await run.result(Outcome.REFUSED)
    assert ("says Ready, so it is not off" in result.message, world.count("mark"), world.pods > 0) == (True, 0, True)


@pytest.mark.parametrize("booted", [True, False], ids=["another boot", "a device says on"])
async def test_a_word_for_off_that_turns_out_untrue_switches_nothing_off(booted: bool, env: WorkflowEnvironment) -> None:
    """S6, S8: it ends with the boot it was given for, also while it waits for a permit, and where a device says on; what a person
    has vouched for is no wish to have the machine switched off."""
    world = World(need=PERSON, not_ready_since=BEFORE_IT, speaker="ada@example.com")
    world.power = dict.fromkeys(world.power, PowerState.OFF if booted else PowerState.ON)
    async with fencing(env, world, at="ask-permit", **VOUCHED) as run:
        await run.did("ask-permit")
        if booted:
            await run.sees(boot_id="boot-2")
        status = await run.parked()
        assert "nothing was switched off" in status.problem
        await run.resume()
        await asked_until(env, run.record, lambda record: sum(each.act == "resume" for each in record) == 1)
        await run.parked()
        assert (world.count("off"), world.count("taint"), world.count("delete-workload")) == (0, 0, 0)
        await run.abort()
        await run.result()
    assert (world.count("off"), world.pods > 0) == (0, True)


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ({"requester": ""}, "who: expected a name"),
        ({"reason": " "}, "reason: expected a name or a sentence"),
        ({"reason": "off\x1b[2J"}, "reason: expected one line"),
        ({"override": "device-reads-off"}, "override: expected circuit-breaker or device-reads-on with ack-off"),
        ({"seen_off": False, "override": "device-reads-on"}, "override: expected circuit-breaker with fence"),
    ],
    ids=["no name", "no reason", "lines", "an unknown override", "an override of another word"],
)
async def test_what_begins_an_episode_is_a_whole_word(lacks: dict[str, object], says: str, env: WorkflowEnvironment) -> None:
    """S8, S44: who has a mere Temporal client, where any word is taken, gives no word for off without a name and a reason, and
    an override that means nothing is refused, not dropped."""
    world = World(need=PERSON)
    async with fencing(env, world, **(VOUCHED | {"action": None} | lacks)) as run:
        result = await run.result(Outcome.REFUSED)
    assert (says in result.message, world.acts) == (True, []), result.message


async def test_the_reason_of_an_override_is_shown_in_one_line(env: WorkflowEnvironment) -> None:
    """S50: the NodeAction that kubectl makes may say anything in its reason."""
    world = World(need=PERSON, speaker="ada@example.com")
    why = "burnt\n\x1b[2Jproven"
    wish = WISH | {"override": CIRCUIT_BREAKER, "reason": why, "need": replace(PERSON, reason=why)}
    async with fencing(env, world, at="ask-permit", **wish) as run:
        shown = (await run.status()).override
        assert "burnt  [2Jproven" in shown
        assert shown.isprintable()


# An abort is heard before anything that it was answered with is untrue ------------------------------------------------


@pytest.mark.parametrize("left", [None, left_by("old")], ids=["a node without a mark", "what another one left is adopted first"])
async def test_s20_an_abort_takes_back_a_word_for_off_that_began_the_episode(left: Mark | None, env: WorkflowEnvironment) -> None:
    """S44: its pods were freed on a word that the abort came before, and was answered with "power has not been touched"."""
    world = World(need=PERSON, not_ready_since=BEFORE_IT, speaker="ada@example.com", mark=left)
    async with fencing(env, world, at="mark", **VOUCHED) as run:
        answer = await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert "that the machine is off is taken back: power has not been touched" in answer
    assert (world.consequences, world.pods > 0, result.left_off) == ([], True, False)


async def test_s20_an_abort_while_a_word_for_off_is_looked_at_takes_it_back(env: WorkflowEnvironment) -> None:
    """S44: the permit had come, and the node was looked at once more."""
    world = World(plan=plan(tries=1, restarts=0), silent={BMC.endpoint})
    async with fencing(env, world, parks=True) as run:
        world.gates |= {"ask-permit": asyncio.Event(), "glance": asyncio.Event()}
        await run.acknowledge()
        await run.did("ask-permit")
        glances = world.count("glance")
        world.gates["ask-permit"].set()
        await eventually(env, lambda: world.count("glance") > glances)
        await run.abort()
        world.gates["glance"].set()
        await run.result(Outcome.ABORTED)
    assert (world.consequences, world.pods > 0) == ([], True)


@pytest.mark.parametrize("power_on", [False, True], ids=["off", "on"])
async def test_s44_an_abort_while_an_off_is_under_way_says_what_may_come_of_it(power_on: bool, env: WorkflowEnvironment) -> None:
    """It was answered with "power has not been touched", and the machine was off a moment later."""
    world = World()
    async with fencing(env, world, at="off") as run:
        answer = await run.abort(power_on=power_on)
        result = await run.result(Outcome.ABORTED)
    expected = "what was begun is finished, then the machine is switched on" if power_on else "a machine that is off stays off"
    assert (expected in answer, result.left_off, world.count("on")) == (True, not power_on, power_on), answer


async def test_s44_an_abort_while_the_machine_is_switched_on_says_so(env: WorkflowEnvironment) -> None:
    """It was answered with "a machine that is off stays off", and the machine was on a moment later."""
    world = World()
    async with fencing(env, world, at="on") as run:
        answer = await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert ("is being switched on; it ends once the node is back" in answer, result.left_off) == (True, False), answer


async def test_s44_no_power_on_is_promised_once_a_machine_that_a_person_said_off_is_left_off(env: WorkflowEnvironment) -> None:
    """No device of ours has switched it off; its end was being carried out all the same, and switched nothing on any more."""
    world = World(plan=plan(tries=1, restarts=0), silent={BMC.endpoint})
    async with fencing(env, world, parks=True) as run:
        world.gates |= {"taint": asyncio.Event(), "uncordon": asyncio.Event()}
        await run.acknowledge()
        await run.did("taint")
        await run.abort()
        world.gates["taint"].set()
        await run.did("uncordon")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.abort(power_on=True)
        assert "this one ends, and leaves the machine off" in str(refused.value.cause)
        world.gates["uncordon"].set()
        await run.result(Outcome.ABORTED)
    assert world.count("on") == 0


@pytest.mark.parametrize("word", ["abort", "hold"])
async def test_s44_a_word_that_comes_while_an_end_is_carried_out_is_obeyed(word: str, env: WorkflowEnvironment) -> None:
    """It was answered with "noted", and forgotten: a program fenced the node that a person had in hand, a minute later."""
    world = World(looks=[LookVerdict.GO, LookVerdict.VETOED])
    async with fencing(env, world, at="uncordon") as run:
        await (run.abort() if word == "abort" else run.hold())
        run.go_on()
        if word == "hold":
            status = await run.until(lambda status: status.doing.startswith("held by ada"))
            assert not status.permit, "S14: nothing is done to the node, and others may be repaired"
            await let_pass(env, run.handle, timedelta(hours=3))
            await run.resume()
        result = await run.result(Outcome.ABORTED if word == "abort" else Outcome.RELEASED)
    assert ("ada (identity not verified): drill" in result.message) is (word == "abort")


async def test_s44_a_hold_outlives_the_check_that_asked_for_the_node(env: WorkflowEnvironment) -> None:
    """A check that is made anew asks for it again, and the next episode knew of no hold."""
    world = World(plan=plan(tries=1, restarts=0), locked={BMC.endpoint})
    async with fencing(env, world, parks=True) as run:
        await run.hold()
        world.excused = True
        await run.tell(replace(world.seen_node(), ready=True))
        await run.did("uncordon")
        await run.until(lambda status: status.doing.startswith("held by ada"))
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.resume()
        await run.result(Outcome.RECOVERED)


async def test_s44_an_episode_that_a_person_holds_ends_by_no_refusal(env: WorkflowEnvironment) -> None:
    """It ended, and with it the hold, when a circuit breaker opened while it was queued: the next one was a program's."""
    refused = replace(SHORT_CIRCUIT, rule="CircuitBreakerOpen")
    world = World(need=Need(kind=NeedKind.PERSON, reason="drill"), ready=True, answers=[QUEUED, refused, refused])
    async with fencing(env, world, permit_granted=False) as run:
        await run.until(lambda status: status.phase is Phase.QUEUED and "1 of 1" in status.doing)
        await run.hold()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.resume()
        await run.result(Outcome.REFUSED)


async def test_a_hold_takes_no_time_of_a_drain(env: WorkflowEnvironment) -> None:
    """S20: once it was over there was one round of evictions, and the power went off under all other pods."""
    rounds = [DrainResult(evicted=1, left=1, names=("default/web",))] * 3
    async with fencing(env, world := World(plan=plan(isolation=(CORDON, DRAIN)), drains=rounds), at="drain") as run:
        await run.hold()
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.resume()
        await run.result(Outcome.RECOVERED)
    assert world.count("drain") == 4


async def test_a_hold_takes_no_time_of_freeing(env: WorkflowEnvironment) -> None:
    """S32, S47: once it was over the taint stood for a second, which frees nothing. That it is held is said no longer (S44)."""
    async with fencing(env, world := World(stubborn=True), at="taint") as run:
        await run.hold()
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by ada"))
        await let_pass(env, run.handle, timedelta(hours=3))
        await run.resume()
        await run.until(lambda status: status.doing == "frees the workloads of the node that is off")
        world.stubborn, world.pods = False, 0
        result = await run.result(Outcome.RECOVERED)
    assert "still standing" not in result.message
