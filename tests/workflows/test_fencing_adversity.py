"""What the adversary has found once, each in its smallest form: on the clockwork, with nothing left to chance."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.episode.messages import Outcome
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, Freeing
from policy.fence.power import PowerState
from tests.workflows.attempts import START
from tests.workflows.drawing import NEEDS, Drawn, arranged
from tests.workflows.mishaps import Ambush, Mishap
from tests.workflows.plans import BMC, CLOUD, CUTS, FREE, GIVEN_BACK, LIFT, PDUS, QUARANTINE
from tests.workflows.playing import Play
from tests.workflows.world import plan

PATIENT = {"free_timeout": timedelta(minutes=5)}


def at(method: str, *mishaps: Mishap | tuple[Mishap, float], number: int = 1) -> Ambush:
    """Strike at the n-th attempt at an act: at once, or so many seconds later."""
    drawn = tuple(each if isinstance(each, tuple) else (each, 0.0) for each in mishaps)
    return Ambush(method=method, number=number, mishaps=drawn)


def played(drawn: Drawn) -> Play:
    """Played to its end, and no rule was broken."""
    play = Play(drawn)
    assert play.run() == [], play.story()
    return play


def test_without_an_adversary_a_node_is_fenced_and_comes_back() -> None:
    """The rest of this module would mean nothing else."""
    play = played(arranged(plan()))
    assert play.result.outcome is Outcome.RECOVERED
    assert play.result.off_proof is not None
    assert play.adversary.referee.freed


def test_a_second_cancellation_does_not_end_an_episode_in_mid_air() -> None:
    """S35: its marks go, and what was switched off is read."""
    play = played(arranged(plan(), at("power_off", (Mishap.CANCEL, 0.1), (Mishap.CANCEL, 0.3))))
    assert play.result.outcome is Outcome.ABORTED


@pytest.mark.parametrize("freeing", [Freeing.DELETION, Freeing.OUT_OF_SERVICE_TAINT])
def test_a_hold_that_comes_while_the_proof_is_read_is_obeyed_before_the_consequence(freeing: Freeing) -> None:
    """S20: whoever was told that the episode is held may rely on it."""
    play = played(arranged(plan(freeing=freeing), at("read_power", Mishap.HOLD, number=2), reactions=("resume",)))
    assert [each.what for each in play.adversary.referee.said if each.word.taken] == ["hold", "resume"]
    assert play.result.outcome is Outcome.RECOVERED


def test_a_hold_that_comes_while_a_cut_path_is_read_is_obeyed_before_pods_are_freed() -> None:
    """S20: the same for what lies behind a cut."""
    drawn = arranged(
        plan(isolation=(CORDON, *CUTS, FREE), recovery=(*GIVEN_BACK, UNCORDON)),
        at("read_path", Mishap.HOLD, number=3),
        reactions=("resume",),
    )
    assert played(drawn).result.outcome is Outcome.RECOVERED


def test_our_taint_does_not_stand_while_a_held_episode_waits_for_a_person() -> None:
    """S1, S6: nobody reads the proof meanwhile, and somebody switches the machine on."""
    drawn = arranged(plan(), at("taint_out_of_service", (Mishap.HOLD, 0.01), (Mishap.OTHERS_ON, 1.0)), reactions=("resume",))
    assert played(drawn).adversary.machine.exposed == timedelta(0)


def test_our_taint_goes_before_paths_are_given_back() -> None:
    """S32: that may take hours, in which somebody switches the machine on that an abort has left off."""
    drawn = arranged(
        plan(levels=((CLOUD,),), isolation=(CORDON, QUARANTINE), recovery=(LIFT, UNCORDON), freeing=Freeing.OUT_OF_SERVICE_TAINT),
        at("taint_out_of_service", Mishap.ABORT, Mishap.VETO, (Mishap.OTHERS_ON, 3.0)),
    )
    assert played(drawn).adversary.machine.exposed == timedelta(0)


def test_a_taint_whose_answer_was_lost_goes_before_a_person_is_waited_for() -> None:
    """S1: it may stand, for all that is known, and nobody reads the proof any more."""
    drawn = arranged(
        plan(tries=1, restarts=0),
        at("taint_out_of_service", (Mishap.OTHERS_ON, 32.0), Mishap.LOST_AFTER),
        reactions=("resume",),
    )
    play = played(drawn)
    assert play.adversary.asked_for_a_person
    assert play.adversary.machine.exposed == timedelta(0)


def test_a_node_that_is_back_speaks_against_a_persons_word() -> None:
    """S6: a machine whose devices always say on is said to be off, and is plugged in again while it is being freed."""
    drawn = arranged(
        plan(**PATIENT),
        at("power_off", Mishap.STUCK),
        at("taint_out_of_service", Mishap.STUBBORN, (Mishap.OTHERS_ON, 1.0)),
        reactions=("acknowledge", "abort-on"),
    )
    play = played(drawn)
    assert play.adversary.referee.on_word
    assert timedelta(0) < play.adversary.machine.exposed_ready < timedelta(minutes=1)


def test_a_device_that_takes_no_password_hides_nothing_of_what_the_others_say() -> None:
    """S8: a word ends when any device comes to say on."""
    drawn = arranged(
        plan(levels=((BMC,), PDUS[:2]), freeing=Freeing.DELETION, tries=1, restarts=0, **PATIENT),
        at("delete_workload", Mishap.STUBBORN),
        reactions=("acknowledge", "abort"),
    )
    play = Play(drawn)
    play.adversary.locked, play.adversary.silent = {BMC.endpoint}, {each.endpoint for each in PDUS}
    play.adversary.machine.later(START + timedelta(minutes=1), play.adversary.silent.clear)
    assert play.run() == [], play.story()
    assert play.adversary.referee.contradicted


def test_a_machine_that_is_on_again_is_not_called_fenced_off() -> None:
    """S7: its plan gives it up, and somebody else has switched it on after it was freed."""
    given_up = plan(levels=((CLOUD,),), power_on=False, terminate_instance=True, tries=1, restarts=1)
    play = played(arranged(given_up, at("taint_out_of_service", (Mishap.OTHERS_ON, 0.01))))
    assert play.result.outcome in {Outcome.ABORTED, Outcome.RECOVERED}
    assert not play.adversary.machine.terminated


def test_no_taint_stands_while_the_licence_to_give_a_machine_up_is_waited_for() -> None:
    """S1, S6: somebody else switches it on again meanwhile."""
    given_up = plan(levels=((CLOUD,),), power_on=False, terminate_instance=True)
    lost = at("taint_out_of_service", (Mishap.UNLICENSED_LONG, 0.01), (Mishap.OTHERS_ON, 5.0))
    play = played(arranged(given_up, lost, reactions=("resume", "abort-on")))
    assert not play.adversary.machine.terminated
    assert play.adversary.machine.exposed == timedelta(0)


def test_a_hold_that_comes_while_the_proof_is_read_keeps_a_machine_from_being_given_up() -> None:
    """S20: there is no way back from that one."""
    given_up = plan(levels=((CLOUD,),), power_on=False, terminate_instance=True)
    play = played(arranged(given_up, at("read_power", Mishap.HOLD, number=3), reactions=("resume",)))
    assert (play.result.outcome, play.adversary.machine.terminated) == (Outcome.FENCED_OFF, True)


def test_a_hold_that_comes_while_a_dead_kernels_pods_are_counted_is_obeyed_before_they_are_freed() -> None:
    """S20: on that proof as on any other."""
    drawn = arranged(
        plan(kdump=KdumpRule(trusted=True)),
        at("mark_unschedulable", Mishap.DUMP),
        at("read_workload", Mishap.HOLD),
        reactions=("resume",),
    )
    play = played(drawn)
    assert [each.what for each in play.adversary.referee.said if each.word.taken] == ["hold", "resume"]


def test_a_hold_of_an_aborted_episode_is_refused() -> None:
    """An abort ends every hold, so nobody is told that one is obeyed."""
    play = played(arranged(plan(), at("read_power", Mishap.ABORT_ON, (Mishap.HOLD, 0.3), number=2)))
    assert [bool(each.word.refused) for each in play.adversary.referee.said] == [False, True]


def test_a_wish_that_is_withdrawn_at_once_still_tells_of_the_paths_that_its_predecessor_had_cut() -> None:
    """S35: marks are adopted, and what is left is told."""
    cut = plan(isolation=(CORDON, *CUTS), recovery=(*GIVEN_BACK, UNCORDON))
    play = played(arranged(cut, at("cut_path", (Mishap.NEED_GONE, 0.1), (Mishap.TERMINATE, 0.2)), need=NEEDS[2]))
    assert play.result.outcome is Outcome.REFUSED
    assert f"left cut: {CUTS[0].device.endpoint}" in play.result.message  # type: ignore[union-attr]


def test_a_consequence_that_no_worker_took_has_not_begun() -> None:
    """S6: the machine is switched on by others, and off again by us; the need is asked for anew before anything is freed."""
    drawn = arranged(plan(tries=2), at("read_power", (Mishap.OTHERS_ON, 10.0), number=2))
    play = Play(drawn)
    play.clockwork.unserved.add("taint_out_of_service")
    assert play.run() == [], play.story()
    assert play.adversary.referee.freed


def test_an_abort_that_asks_for_power_on_is_no_reason_to_try_that_only_once() -> None:
    """S35: the abort was heard between two tries of what it had asked for, and the machine was left off."""
    play = played(
        arranged(
            plan(freeing=Freeing.NONE, restarts=0),
            at("power_off", (Mishap.SLOW, 2.0)),
            at("read_power", (Mishap.SILENT, 0.0), number=2),
            at("power_on", (Mishap.SPEAKS, 0.5)),
            reactions=("abort-on",),
        )
    )
    assert play.result.outcome is Outcome.ABORTED
    assert play.adversary.machine.runs


def test_a_level_of_devices_is_not_left_for_the_next_one_because_a_worker_declined() -> None:
    """S18: half of it was off then, and what said on of it spoke against the next level's proof, so that a person was asked."""
    drawn = arranged(plan(levels=(PDUS, (BMC,)), tries=1, restarts=0), skews=(0.0, 0.0, 120.0))
    play = played(drawn)
    assert play.adversary.asked_for_a_person == 0
    assert {each.endpoint for each in play.adversary.referee.commands} == {each.endpoint for each in PDUS}


def test_a_machine_whose_node_was_made_anew_after_off_is_not_given_up_again_and_again() -> None:
    """S9, S35: the look before it said no for ever, and the flow began anew each time, as fast as it could."""
    given_up = plan(levels=((CLOUD,),), power_on=False, terminate_instance=True)
    play = played(arranged(given_up, at("read_workload", (Mishap.NODE_ANEW, 0.01)), reactions=("abort",)))
    assert play.adversary.asked_for_a_person
    assert not play.adversary.machine.terminated
    assert len(play.adversary.acts) < 100


def test_an_off_that_others_have_undone_before_all_devices_were_read_proves_nothing_when_it_is_off_again() -> None:
    """S6: one supply says off, then on, while the other can't be read; what both say later is an off of somebody else's."""
    drawn = arranged(
        plan(levels=(PDUS[:2],)),
        at("read_power", Mishap.UNREACHABLE, number=3),
        at("read_power", Mishap.OTHERS_ON, number=5),
        at("read_power", Mishap.OTHERS_OFF, number=7),
        seed=2,
    )
    play = played(drawn)
    states = [each.state for each in play.adversary.referee.commands]
    assert states == [PowerState.OFF] * 4 + [PowerState.ON] * 2
    assert play.result.outcome is Outcome.RECOVERED
