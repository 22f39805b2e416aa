"""Remediation at its worst moments, on the clockwork: lost workers and answers, a person's word, a silent API, a new history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome, Phase
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.fence.power import PowerState
from policy.remediation.ladder import EscalationStep
from policy.remediation.memory import read_memory
from policy.remediation.strategy_rules import Strategy
from policy.values.mode import Mode
from tests.workflows.attempts import START
from tests.workflows.contract import LookVerdict
from tests.workflows.executions import Word
from tests.workflows.remediation_run import (
    ANNOTATE,
    DELETE,
    FENCE,
    HOUR,
    MINUTE,
    OBJECT,
    OWNER,
    REBOOT,
    SELF,
    Play,
    Remediated,
    RemediationObject,
    remediated,
    step,
    succeeds,
)
from tests.workflows.world import World, left_by, plan
from workflows.kit import options

SLOW = step(Strategy.EXTERNAL, 5 * HOUR)


@pytest.mark.parametrize("lost", ["before", "after", "unclear"])
@pytest.mark.parametrize("of_machines", [True, False], ids=["check of Machines", "check of Nodes"])
@pytest.mark.parametrize("goes_after", [timedelta(0), 10 * MINUTE])
def test_a_worker_lost_between_the_request_and_its_answer_deletes_no_second_machine(
    lost: str, of_machines: bool, goes_after: timedelta
) -> None:
    """S33, S34: the request is waited out, then what stands is read; the successor is told, and is never the patient."""
    world = Remediated(ladder=(DELETE,), of_machines=of_machines, goes_after=goes_after)
    befalls = failure(ErrorType.AMBIGUOUS, "the answer was lost") if lost == "unclear" else lost
    world.errors["preservation.give-up"] = [befalls]
    result = remediated(world, Outcome.REPLACED)
    assert len(world.deletions) == 1
    assert "w-8 has taken its place" in result.message
    assert read_memory(world.successor().memory).of == "w-7"
    assert world.count("give-up") == 1


def test_nothing_is_asked_again_before_the_lost_request_is_waited_out() -> None:
    """S34: it may still be on its way for as long as it may begin, and then it is read whether it has arrived."""
    world = Remediated(ladder=(DELETE,))
    world.errors["preservation.give-up"] = ["before"]
    with Play(world) as play:
        play.until(lambda _: not world.errors["preservation.give-up"])
        sent = play.clockwork.now
        play.did("give-up")
        assert play.clockwork.now - sent > options.ACT_WINDOW + options.IN_FLIGHT_MARGIN
        assert world.acts[world.acts.index("give-up") - 3 :][:3] == ["follow", "look", "remember"]
        play.result()


ACTS = [
    *(f"remediation.{each}-object" for each in ("create", "read", "time-out", "delete")),
    *(f"remediation.{each}" for each in ("remember", "follow-machine", "request-owner", "annotate-external", "take-back")),
    *("isolation.mark", "isolation.pin-target", "target.last-look", "target.publish", "preservation.give-up"),
    *("power-management.power-off", "power-management.power-on", "recovery.mark-schedulable"),
]


@pytest.mark.parametrize("befalls", ["before", "after"])
@pytest.mark.parametrize("name", ACTS)
def test_a_worker_lost_at_any_act_changes_nothing_of_how_it_ends(name: str, befalls: str) -> None:
    """S33, S35: every step is tried, one deletion is asked for, and nothing of it is left behind."""
    short = [replace(each, timeout=timedelta(seconds=20)) for each in (SELF, ANNOTATE, OWNER, FENCE)]
    world = Remediated(ladder=(*short, DELETE), goes_after=MINUTE, ready_after=MINUTE)
    world.node = World(boot_seconds=None, plan=plan(tries=1, restarts=0))
    world.errors[name] = [befalls] * 2
    remediated(world, Outcome.REPLACED)
    assert len(world.deletions) == 1
    assert (world.objects, world.annotated, world.node.marked) == ({}, False, "")
    assert world.count("off") <= 1


@pytest.mark.parametrize(
    ("step_", "name", "kind"),
    [
        (DELETE, "preservation.give-up", ErrorType.OWN_NODE),
        (OWNER, "remediation.request-owner", ErrorType.NOT_LICENSED),
        (SELF, "remediation.create-object", ErrorType.UNREACHABLE),
        (ANNOTATE, "remediation.annotate-external", ErrorType.EXPIRED),
    ],
)
def test_what_may_pass_speaks_against_no_step(step_: object, name: str, kind: ErrorType) -> None:
    """S16, S38: another worker, another moment; the ladder does not go on for that."""
    world = Remediated(ladder=(step_, FENCE))
    world.errors[name] = [failure(kind, "not now")] * 4
    with Play(world) as play:
        play.until(lambda _: not world.errors[name])
        play.skip(2 * MINUTE)
        assert all(not failed for failed in world.remembered)
    assert world.node.commands == []


def test_an_api_that_is_away_for_minutes_fails_no_deletion() -> None:
    world = Remediated(ladder=(DELETE, FENCE), goes_after=15 * MINUTE)
    with Play(world) as play:
        play.did("give-up")
        world.errors["remediation.follow-machine"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 60
        play.until(lambda status: "can be looked at" in status.doing)
        play.result(Outcome.REPLACED)
    assert world.node.commands == []


def slow_to_look() -> Remediated:
    """Each look before the on takes longer than that may wait after it."""
    world = Remediated(ladder=(step(Strategy.FENCE),), has_machine=False)
    slow = [*[failure(ErrorType.UNREACHABLE, "the API is slow")] * 5, None] * 500
    world.errors["power-management.untaint-out-of-service"] = slow
    return world


def test_looks_that_are_always_answered_too_late_to_switch_on_are_told_and_a_person_is_asked() -> None:
    """S35, S45: meanwhile people see why the machine stays off."""
    world = slow_to_look()
    with Play(world) as play:
        play.did("taint")
        play.until(lambda status: "in time" in status.doing)
        off_since = play.clockwork.now
        assert "in time" in play.parked().problem
        assert play.clockwork.now - off_since < HOUR
        assert world.node.commands == ["off ipmi://10.0.0.7:623"]
        world.errors.clear()
        play.abort(power_on=True)
        result = play.result()
    assert "the node is back" in result.message


def test_a_server_that_never_answers_a_deletion_has_the_time_of_the_step() -> None:
    """S34, S35: each request is waited out and read; then a person is asked, with no history that grows for ever."""
    world = Remediated(ladder=(DELETE,))
    webhook = failure(ErrorType.AMBIGUOUS, "failed calling webhook: context deadline exceeded")
    world.errors["preservation.give-up"] = [webhook] * 200
    with Play(world) as play:
        status = play.parked()
        assert 30 * MINUTE < play.passed < 32 * MINUTE
        world.errors.clear()
    assert "failed calling webhook" in status.problem


def test_a_node_that_goes_before_its_machine_is_not_the_end() -> None:
    """The machine's deletion hangs and its Node is gone, which is another target to the next step: only its end is the end, and
    whoever replaces it is told what to remember."""
    world = Remediated(ladder=(DELETE, SELF), goes_after=40 * MINUTE)
    with Play(world) as play:
        play.did("give-up")
        world.node.present = False
        result = play.result(Outcome.REPLACED)
    assert world.objects == {}
    assert "w-8 has taken its place" in result.message
    assert read_memory(world.successor().memory).of == "w-7"


def test_a_step_that_can_never_be_begun_is_given_up_after_half_an_hour() -> None:
    """S16: the episode does not wait for ever for a worker that may."""
    world = Remediated(ladder=(step(Strategy.EXTERNAL),))
    world.errors["remediation.create-object"] = [failure(ErrorType.OWN_NODE, "this worker runs there")] * 10_000
    with Play(world) as play:
        status = play.parked()
        assert 30 * MINUTE < play.passed < 40 * MINUTE
    assert "this worker runs there" in status.problem


@pytest.mark.parametrize(
    ("ladder", "word"),
    [
        ((DELETE,), "abort"),
        ((OWNER,), "cancel"),
        ((SELF,), "abort"),
        ((ANNOTATE,), "cancel"),
        ((FENCE,), "abort"),
        ((FENCE,), "cancel"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value[0].strategy.value),
)
def test_an_abort_at_any_moment_ends_it_and_leaves_nothing_behind(ladder: tuple[object, ...], word: str) -> None:
    """S35: said right before each activity of the whole story, one run for each."""
    for moment in range(18):
        world = Remediated(ladder=ladder, goes_after=None)
        with Play(world) as play:
            told = play.when(moment, play.abort if word == "abort" else lambda: play.execution.cancel("drill"))
            result = play.result()
        if not told:
            break
        ends = {Outcome.ABORTED, Outcome.RECOVERED} if ladder == (FENCE,) else {Outcome.ABORTED, Outcome.REFUSED}
        assert result.outcome in ends, (moment, result.message)
        assert (world.objects, world.annotated, world.owner_asked, world.node.marked) == ({}, False, None, ""), moment
        assert not world.permit
        assert ("has been asked for" in result.message) == bool(world.deletions), (moment, result.message)
    assert moment > 5


def test_s35_an_end_after_a_later_step_says_that_a_deletion_goes_on() -> None:
    """Its Machine is held up by a finalizer, and the next step has failed. Of seed 182 of 30 November."""
    world = Remediated(ladder=(step(Strategy.DELETE_MACHINE, 5 * MINUTE), REBOOT), goes_after=None)
    world.node.plan = plan(levels=())
    with Play(world) as play:
        assert play.parked().problem.startswith("every step has failed")
        play.abort()
        assert "; the deletion of its machine was asked for and goes on" in play.result(Outcome.ABORTED).message


@pytest.mark.parametrize("later", [False, True], ids=["at that step", "at a later one"])
def test_an_abort_says_that_a_deletion_goes_on(*, later: bool) -> None:
    """S44: nobody can take it back, and the episode's end is not the machine's."""
    world = Remediated(ladder=(DELETE, SELF), goes_after=None)
    with Play(world) as play:
        play.did(f"create {OBJECT}" if later else "give-up")
        play.skip(MINUTE)
        told = play.abort()
        play.result(Outcome.ABORTED)
    assert "the deletion of its machine was asked for and goes on" in told.answer


def test_s44_an_abort_says_that_a_deletion_is_on_its_way() -> None:
    """Said while it is asked for, it was answered as if nothing but a cordon had to be taken back, and the Machine went."""
    world, said = Remediated(ladder=(DELETE,), goes_after=None), list[Word]()
    with Play(world) as play:
        world.before["preservation.give-up"] = lambda: said.append(play.abort())
        result = play.result(Outcome.ABORTED)
    (word,) = said
    assert "its machine is being asked for, which can't be taken back" in word.answer
    assert "has been asked for" in result.message


def test_a_hold_during_a_deletion_keeps_the_next_step_away() -> None:
    """S20: what was asked for goes its way; nothing more is begun."""
    world = Remediated(ladder=(DELETE, FENCE), goes_after=None)
    with Play(world) as play:
        play.did("give-up")
        play.hold()
        play.roll()
        play.until(lambda status: status.doing.startswith("held by ada"))
        play.skip(3 * HOUR)
        assert world.node.commands == []
        play.resume()
        play.did("off")


@pytest.mark.parametrize(
    ("ladder", "act"),
    [((DELETE,), "give-up"), ((OWNER,), "request-owner"), ((SELF,), f"create {OBJECT}"), ((ANNOTATE,), "annotate-external")],
)
def test_a_wait_goes_on_in_a_new_history_where_it_stood(ladder: tuple[object, ...], act: str) -> None:
    """S14, S33: the same incident and permit, no second request, and the step's time goes on."""
    world = Remediated(ladder=ladder, goes_after=None)
    with Play(world) as play:
        play.did(act)
        for _ in range(3):
            play.skip(MINUTE)
            play.roll()
            play.skip(timedelta(seconds=40))
        before = play.clockwork.now
        status = play.status()
        assert (status.incident, status.permit, status.phase in {Phase.RUNNING, Phase.TERMINATING}) == ("i-1", True, True)
        assert len(play.runs) == 4
        play.parked()
        timeout = ladder[0].timeout
        assert timedelta(0) < play.passed - timeout < MINUTE, (before, play.passed)
        play.abort()
        result = play.result()
    assert (world.objects, world.annotated, world.owner_asked, world.node.marked) == ({}, False, None, "")
    assert (world.count(act), world.count("ask-permit"), world.count("pin-target")) == (1, 0, 1)
    assert result.started == play.execution.result.started < play.clockwork.now - timeout
    assert sum(entry.act == "pin" for entry in result.record) == 1


@pytest.mark.parametrize("ours", [True, False])
def test_a_fencing_after_a_new_history_takes_the_mark_for_its_own(ours: bool) -> None:
    """S34: nothing was under way when the history ended; of another incident's nobody knows, and its last act is waited out."""
    world = Remediated(ladder=(SELF, FENCE))
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        play.goes_on_anew()
        if not ours:
            world.node.mark = left_by("i-0")
        play.did("mark", 2)
        marked = play.clockwork.now
        play.did("off")
        waited = play.clockwork.now - marked
        play.result(Outcome.RECOVERED)
    assert (waited < timedelta(seconds=10)) == ours, waited


def test_who_is_parked_stays_so_in_a_new_history() -> None:
    """S14: without a permit, with what failed, and a person's word works as before."""
    world = Remediated(ladder=(SELF, DELETE))
    world.errors["preservation.give-up"] = [failure(ErrorType.NOT_SUPPORTED, "nothing would replace it")]
    with Play(world) as play:
        before = play.parked()
        play.roll()
        play.skip(10 * MINUTE)
        after = play.status()
        assert (len(play.runs), after.phase, world.count("event NeedsHuman")) == (2, Phase.NEEDS_HUMAN, 1)
        assert (after.problem, after.permit, after.incident) == (before.problem, False, "i-1")
        play.resume()
        world.on_create = succeeds(world)
        play.result(Outcome.RECOVERED)
    assert (world.count("ask-permit"), world.objects) == (1, {})


def test_an_abort_is_not_lost_to_a_new_history() -> None:
    """S20: said while the node is looked at right before the history ends."""
    world = Remediated(ladder=(ANNOTATE,))
    with Play(world) as play:
        play.did("annotate-external")
        play.skip(MINUTE)

        def both() -> None:
            play.roll()
            play.abort()

        world.before["target.last-look"] = both
        play.result(Outcome.ABORTED)
    assert not world.annotated


def test_an_object_that_cannot_be_read_has_not_failed() -> None:
    """S3: not being able to look is no answer."""
    world = Remediated(ladder=(SLOW, FENCE), has_machine=False)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        for name in ("remediation.read-object", "target.last-look"):
            world.errors[name] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 60
        play.skip(10 * MINUTE)
        world.objects[OBJECT].succeeded, world.node.ready = "True", True
        play.result(Outcome.RECOVERED)
    assert world.node.commands == []


def test_a_silent_api_does_not_make_a_machine_that_goes_one_that_stays() -> None:
    """S18: not being able to look is no answer. The fencing after a deletion that hung has brought its node back."""
    world = Remediated(ladder=(DELETE, FENCE), goes_after=60 * MINUTE)
    away = [failure(ErrorType.UNREACHABLE, "the API is away")] * 40
    world.after["power-management.power-on"] = lambda: world.errors.update({"remediation.follow-machine": away})
    result = remediated(world, Outcome.REPLACED)
    assert "w-8 has taken its place" in result.message


def test_a_claim_that_came_to_nothing_is_taken_off_however_often_it_takes() -> None:
    """S35: it would tell whoever wants to keep the machine that it is being given up."""
    world = Remediated(ladder=(DELETE,))
    conflict = failure(ErrorType.TRANSIENT, "changed by others")
    unlicensed = failure(ErrorType.NOT_LICENSED, "the cluster Lease is not ours")
    world.errors["preservation.give-up"] = [failure(ErrorType.VETOED, "it is held"), conflict, "before", unlicensed]
    remediated(world, Outcome.RELEASED)
    assert (world.deletions, world.count("withdraw")) == ([], 1)


def test_a_machine_that_is_kept_after_all_is_not_remembered_as_remediated() -> None:
    """S21, S27: somebody preserves it right before its deletion. Nothing came of that, so that no pause and no retry follows."""
    world = Remediated(ladder=(DELETE,), kept="it is preserved")
    result = remediated(world, Outcome.RELEASED)
    assert "it is preserved" in result.message
    assert (world.deletions, len(world.memories), world.stands) == ([], 1, ("", ""))


@pytest.mark.parametrize("ladder", [(DELETE,), (SELF,), (FENCE,)], ids=["deletion", "object", "fencing"])
def test_a_hold_before_the_act_is_obeyed_until_resume(ladder: tuple[object, ...]) -> None:
    """S20: said while the last look is under way, or before that is asked for where it is made by whoever acts."""
    moment = "target.last-look" if ladder == (FENCE,) else "isolation.mark"
    world = Remediated(ladder=ladder)
    acts = {"give-up", "request-owner", f"create {OBJECT}", "annotate-external", "off"}
    with Play(world) as play:
        world.after[moment] = play.hold
        play.until(lambda status: status.doing.startswith("held by ada"))
        play.skip(3 * HOUR)
        assert not acts & set(world.acts)
        play.resume()
        play.until(lambda _: bool(acts & set(world.acts)))


@pytest.mark.parametrize("kind", [ErrorType.EXPIRED, ErrorType.OWN_NODE])
def test_s20_a_hold_before_a_step_begins_takes_none_of_its_time(kind: ErrorType) -> None:
    """Nor of the half hour for its first try: what passes by itself makes no next step, here a deletion. Of seed 854."""
    world = Remediated(ladder=(step(Strategy.EXTERNAL, 5 * MINUTE), DELETE))
    with Play(world) as play:
        world.after["isolation.mark"] = play.hold
        play.until(lambda status: status.doing.startswith("held by ada"))
        play.skip(HOUR)
        world.errors["remediation.create-object"] = [failure(kind, "not now")] * 2
        play.resume()
        play.did(f"create {OBJECT}")
        assert [failed for failed in world.remembered if failed] == []


@pytest.mark.parametrize("waits", ["a pause", "a pause, and a new history", "the queue after a hold", "a mode"])
def test_s20_what_a_fencing_waits_for_takes_no_time_of_its_step(waits: str) -> None:
    """The reboot was never tried, and the machine was deleted once the pause was over."""
    world = Remediated(ladder=(REBOOT, DELETE))
    node, queued = world.node, PermitAnswer(decision=PermitDecision.QUEUED, reason="paused by ada", holder="us")
    node.answers = [queued] * 8
    with Play(world) as play:
        if waits == "the queue after a hold":
            play.did("look")
            play.hold()
            play.until(lambda status: bool(status.held) and not status.permit)
            play.resume()
        elif waits == "a mode":
            play.did("pin")
            node.mode = Mode.CORDON
            play.until(lambda status: "its mode" in status.doing)
            node.permitted = False
            play.roll()
            play.skip(2 * HOUR)
            node.mode = Mode.REPAIR
        else:
            play.did("pin")
            world.permit = node.permitted = False
        play.did("ask-permit", 5)
        if waits == "a pause, and a new history":
            play.roll()
            play.skip(20 * MINUTE)
        assert play.passed > 10 * MINUTE
        play.result(Outcome.RECOVERED)
    assert (world.count("off"), world.deletions) == (1, [])
    assert len(play.runs) == (2 if waits in {"a pause, and a new history", "a mode"} else 1)


def test_s20_an_api_server_with_a_clock_that_is_behind_ends_no_step() -> None:
    """By that clock its time was over when its object had just been made: the next step deleted the machine."""
    world = Remediated(ladder=(step(Strategy.EXTERNAL, 5 * MINUTE), DELETE))
    world.on_create = lambda made: setattr(made, "created", made.created - 10 * MINUTE)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        made = play.passed
        play.did("give-up")
        assert play.passed - made > 5 * MINUTE - options.IN_FLIGHT_MARGIN


@pytest.mark.parametrize(
    ("by", "came_of_it"), [("", ""), ("i-0", ""), ("i-0", "timed out"), ("i-0", "failed")], ids=lambda word: word or "-"
)
@pytest.mark.parametrize("dated", [True, False], ids=["dated", "undated"])
def test_s20_an_object_of_an_earlier_failure_ends_no_step(by: str, came_of_it: str, *, dated: bool) -> None:
    """Its episode was terminated, and no scanner took it away. By its age, or by what came of it then, the next step came at
    once. One of ours goes before another is made, by which its controller begins anew; one of others has its time."""
    world = Remediated(ladder=(step(Strategy.EXTERNAL, 5 * MINUTE), DELETE))
    world.need = replace(world.need, since=START - MINUTE if dated else None)
    succeeded = "False" if came_of_it == "failed" else ""
    old = RemediationObject(created=START - 2 * HOUR, by=by, timed_out=came_of_it == "timed out", succeeded=succeeded)
    world.objects[OBJECT] = old
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        found = play.passed
        play.did("give-up")
        assert play.passed - found > 5 * MINUTE - options.IN_FLIGHT_MARGIN
    assert world.acts.count(f"delete {OBJECT}") == 1 + bool(by)


@pytest.mark.parametrize("dated", [True, False], ids=["dated", "undated"])
@pytest.mark.parametrize("came_of_it", ["", "succeeded"], ids=lambda word: word or "-")
def test_s20_an_object_at_work_on_this_failure_is_not_made_anew(came_of_it: str, *, dated: bool) -> None:
    """Its episode was terminated, and Ready went from False to Unknown as its controller restarted the node. Another object
    would restart it twice, and by the age of this one its time was nearly over."""
    world = Remediated(ladder=(step(Strategy.EXTERNAL, 5 * MINUTE), DELETE))
    world.need = replace(world.need, since=START - MINUTE if dated else None)
    succeeded = "True" if came_of_it == "succeeded" else ""
    world.objects[OBJECT] = RemediationObject(created=START - 4 * MINUTE, by="i-0", succeeded=succeeded)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        found = play.passed
        play.did("give-up")
        assert play.passed - found > 5 * MINUTE - options.IN_FLIGHT_MARGIN
    assert world.acts.count(f"delete {OBJECT}") == 1  # at its end


@pytest.mark.parametrize("ladder", [(DELETE,), (SELF,)], ids=["deletion", "object"])
def test_s14_a_ladder_that_is_held_before_it_began_has_no_permit(ladder: tuple[EscalationStep, ...]) -> None:
    """No other node of the cluster was repaired for as long as the person looked at this one."""
    with Play(Remediated(ladder=ladder)) as play:
        play.world.after["isolation.mark"] = play.hold
        play.until(lambda status: status.doing.startswith("held by ada") and not status.permit)
        play.skip(MINUTE)
        assert [release.held for release in play.world.releases] == [True]
        play.resume()
        play.until(lambda status: status.permit)


def test_pods_whose_readings_are_always_late_are_not_freed_and_people_hear_why() -> None:
    """S35, S45: workers decline one after the other because of their clocks, and the last one answers."""
    world = Remediated(ladder=(FENCE,), has_machine=False)
    declined = failure(ErrorType.WRONG_CLOCK, "its clock is behind", retry_after=timedelta(seconds=10))
    late = {"power-management.read-power": [*[declined] * 4, None] * 500}
    world.after["power-management.power-off"] = lambda: world.errors.update(late)
    with Play(world) as play:
        play.until(lambda status: "read in time" in status.doing)
        assert world.node.pods == 3
        world.errors.clear()
        play.result(Outcome.RECOVERED)
    assert world.node.pods == 0


def test_what_a_wrong_clock_declines_is_not_asked_of_another_worker_once_it_is_held() -> None:
    """S20, S33: nothing was begun, and who has held it meanwhile was told that nothing is."""
    world = Remediated(ladder=(FENCE,))
    world.errors["power-management.power-off"] = [failure(ErrorType.WRONG_CLOCK, "its clock is behind")]
    with Play(world) as play:
        world.before["power-management.power-off"] = play.hold
        play.until(lambda status: status.doing.startswith("held by"))
        assert world.node.commands == []
        play.resume()
        play.result(Outcome.RECOVERED)
    assert world.count("off") == 1


# What is slow comes first and the last look last: whatever happens until then is heard before anything is asked of anybody.

GIVE_UP = "preservation.give-up"
STEPS = [
    (DELETE, "give-up", GIVE_UP),
    (step(Strategy.REQUEST_OWNER, 30 * MINUTE), "request-owner", "remediation.request-owner"),
    (step(Strategy.ANNOTATE_EXTERNAL, 30 * MINUTE), "annotate-external", "remediation.annotate-external"),
    (SELF, f"create {OBJECT}", "remediation.create-object"),
]

each_step = pytest.mark.parametrize(("first", "act", "activity"), STEPS, ids=[first.strategy.value for first, _, _ in STEPS])
"""activity: the one in which the last look is made, the note is written, and the act is carried out."""


def gets_well(world: Remediated) -> Callable[[], None]:
    """The node says Ready."""
    return lambda: setattr(world.node, "ready", True)


MEANWHILE: dict[str, tuple[str, Callable[[Play], object], Outcome]] = {
    "the node recovers": ("", lambda play: gets_well(play.world)(), Outcome.RECOVERED),
    "somebody objects": ("", lambda play: play.world.node.looks.append(LookVerdict.VETOED), Outcome.RELEASED),
    "a person aborts": ("isolation.mark", lambda play: play.abort(), Outcome.ABORTED),
}
"""Before which activity, "" for the act's own, which may wait long for a worker and looks for itself."""


@each_step
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_happens_before_a_step_begins_is_heard(first: EscalationStep, act: str, activity: str, meanwhile: str) -> None:
    """S15, S20, S45: an abort was answered that nothing had been done yet; the look finds a veto, a lost permit or a quorum that
    is lost. What was not done is not remembered, or the machine's next failure would wait for a back-off, and count a retry."""
    before, happens, outcome = MEANWHILE[meanwhile]
    world = Remediated(ladder=(first,), stands=("before", "before, on the Node"))
    with Play(world) as play:
        world.before[before or activity] = lambda: happens(play)
        play.result(outcome)
    assert (world.count(act), world.count("remember")) == (0, 0)
    assert world.stands == ("before", "before, on the Node")


@pytest.mark.parametrize("befalls", ["after", "refused"])
def test_a_deletion_that_may_have_been_asked_for_is_remembered_and_one_that_was_refused_is_not(befalls: str) -> None:
    """S33: of an answer that was lost nobody knows whether it was."""
    world = Remediated(ladder=(DELETE,), stands=("before", "before"))
    refused = failure(ErrorType.VETOED, "somebody says no")
    world.errors["preservation.give-up"] = [befalls if befalls == "after" else refused]
    remediated(world)
    assert (world.stands == ("before", "before")) is (befalls == "refused")


def test_an_object_that_only_had_to_wait_for_an_earlier_one_is_not_remembered() -> None:
    """S20: the earlier one is on its way out, and the node has recovered before another could be made. What others have written
    is left alone."""
    world = Remediated(ladder=(SELF,), stands=("before", "before"))
    world.objects[OBJECT] = RemediationObject(created=START, goes_at=START + 5 * MINUTE)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.stands = ("theirs", world.stands[1])
        world.node.ready = True
        play.result(Outcome.RECOVERED)
    assert world.stands == ("theirs", "before")


# A machine that a step of a ladder has left off: who asks for it comes to hear, and a person's word brings it back (S35).

BMC = "ipmi://10.0.0.7:623"
SILENT = failure(ErrorType.UNREACHABLE, "no answer")


def stays_off(*, excused: bool = True, ladder: tuple[object, ...] = (FENCE, SLOW), **changes: object) -> Remediated:
    """Its fencing switches it off and can't switch it on. excused: nobody asks for it any more from then on."""
    node = World(plan=plan(tries=1, restarts=0, **changes), errors={"on": [SILENT] * 500})
    world = Remediated(ladder=ladder, node=node, has_machine=False)  # type: ignore[arg-type]
    if excused:
        world.before["power-management.power-on"] = lambda: setattr(node, "excused", True)
    return world


def go_on(play: Play, histories: int) -> None:
    """In so many."""
    for _ in range(histories - 1):
        play.roll()
        play.skip(10 * MINUTE)
    assert len(play.runs) == histories


@pytest.mark.parametrize(("preserved", "why"), [(False, "no answer"), (True, "left off")], ids=["silent", "preserved"])
def test_a_resume_that_cannot_switch_it_on_says_why_and_waits_for_the_next_word(why: str, *, preserved: bool) -> None:
    """S21, S35, S44: a word to go on is no word against who keeps it."""
    world = stays_off()
    with Play(world) as play:
        play.parked()
        if preserved:
            world.node.errors["on"].clear()
        world.node.preserved = preserved
        play.resume()
        assert why in play.parked().problem
        world.node.errors["on"].clear()
        world.node.preserved = False
        play.resume()
        play.result(Outcome.RECOVERED)
    assert world.node.commands[-1] == f"on {BMC}"


def test_s49_it_is_switched_on_after_more_than_a_week() -> None:
    """The device is asked under a seal that is made anew."""
    world = stays_off()
    with Play(world) as play:
        play.parked()
        play.skip(timedelta(days=8))
        world.node.errors["on"].clear()
        play.resume()
        play.result(Outcome.RECOVERED)
    assert world.node.commands[-1] == f"on {BMC}"


def test_s44_an_abort_while_what_a_step_has_left_off_is_switched_on_says_so() -> None:
    world, said = stays_off(), list[Word]()
    with Play(world) as play:
        play.parked()
        world.node.errors["on"].clear()
        world.before["power-management.power-on"] = lambda: said.append(play.abort())
        play.resume()
        play.result()
    (word,) = said
    assert "the machine is being switched on; it ends once the node is back" in word.answer


def test_no_other_device_is_switched_on_in_a_later_history() -> None:
    """S9: configured since then for the node is the plug of another machine."""
    world = stays_off()
    with Play(world) as play:
        play.parked()
        go_on(play, 2)
        world.node.errors["on"].clear()
        other = replace(world.node.plan.levels[0][0], endpoint="ipmi://10.0.0.8:623")
        world.node.plan = replace(world.node.plan, levels=((other,),))
        world.node.power[other.endpoint] = PowerState.ON
        play.resume()
        assert BMC in play.parked().problem
        play.abort()
        result = play.result()
    assert world.node.commands == [f"off {BMC}"]
    assert "the machine may be off" in result.message


def test_no_other_step_begins_while_our_taint_may_stand() -> None:
    """S32: whoever is asked next may switch the machine on. It can't be removed while the API is away, and is tried again."""
    node, tainted = World(plan=plan(tries=1, restarts=0), stubborn=True), list[bool]()
    world = Remediated(ladder=(FENCE, SLOW), node=node, has_machine=False)
    world.before["remediation.create-object"] = lambda: tainted.append(node.out_of_service)
    with Play(world) as play:
        play.did("taint")
        node.silent = set(node.power)
        node.errors["untaint"] = [failure(ErrorType.UNREACHABLE, "the API is away")] * 30
        play.did(f"create {OBJECT}")
        assert tainted == [False]


def test_a_node_whose_off_was_a_lie_is_not_called_recovered_by_what_comes_after() -> None:
    """S2, S44: as of a fencing by itself; its step has failed, and the next one finds the node well on the boot that was
    fenced."""
    node = World(plan=plan(tries=1, restarts=0, free_timeout=timedelta(hours=1)), stubborn=True)
    with Play(Remediated(ladder=(FENCE, SLOW), node=node, has_machine=False)) as play:
        play.did("taint")
        node.power, node.ready = dict.fromkeys(node.power, PowerState.ON), True
        assert "its pods may have been freed when it was said to be off" in play.parked().problem
        play.roll()
        play.skip(HOUR)
        assert (play.status().phase, node.unschedulable) == (Phase.NEEDS_HUMAN, True)
        play.abort()
        play.result(Outcome.ABORTED)


@pytest.mark.parametrize("first", [True, False], ids=["said before", "said too late"])
def test_an_abort_asks_for_power_as_long_as_that_is_heard(*, first: bool) -> None:
    """S44: said while it was on its way out it was answered as if the machine were switched on, and that stayed off."""
    world, said = stays_off(excused=False), list[Word]()
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.before["recovery.mark-schedulable"] = lambda: said.append(play.abort(power_on=True))
        play.abort(power_on=first)
        play.result(Outcome.ABORTED)
    (word,) = said
    assert ("leaves the machine off" in word.refused) is not first


def test_an_abort_that_cannot_switch_it_on_says_so() -> None:
    """S35: once, and with the reason."""
    world = stays_off(excused=False)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        play.abort(power_on=True)
        result = play.result(Outcome.ABORTED)
    assert result.message.count("power on: ") == 1
    assert "the machine may be off" in result.message


@pytest.mark.parametrize("back_to", ["create", "pin"])
def test_s35_what_a_reset_took_back_of_a_ladder_is_undone_and_an_abort_switches_the_machine_on(
    back_to: str,
) -> None:
    """The fence had switched it off, and the history that is left knows of no step, or of the first one alone. Found by plays of
    ladders with resets."""
    world = Remediated(ladder=(step(Strategy.EXTERNAL, timedelta(minutes=2)), step(Strategy.FENCE)))
    with Play(world) as play:
        play.did("create SelfNodeRemediation" if back_to == "create" else "pin-target")
        kept = play.execution.tasks + 1
        play.did("off")
        play.clockwork.turn()
        play.clockwork.reset(play.execution, kept, reapplies=False)
        play.abort(power_on=True)
        result = play.result(Outcome.ABORTED)
    assert set(world.node.power.values()) == {PowerState.ON}
    assert "the machine is switched on again" in result.message
    assert world.objects == {}
