"""What the adversary has found once, in fencings and in ladders, each in its smallest form and with nothing left to chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from policy.episode.messages import Kind, Outcome
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, FencingPlan, Freeing
from policy.fence.power import PowerState
from policy.remediation.strategy_rules import Strategy
from tests.workflows.attempts import START
from tests.workflows.faults import Fault, PlacedFault
from tests.workflows.plans import BMC, CLOUD, CUTS, FREE, GIVEN_BACK, LIFT, MINUTE, PDUS, QUARANTINE, step
from tests.workflows.scenario_run import EPISODE, NEEDS, Play, Scenario, arranged
from tests.workflows.world import plan

HOUR = timedelta(hours=1)
PATIENT = {"free_timeout": timedelta(minutes=5)}


def at(method: str, *faults: Fault | tuple[Fault, float], number: int = 1) -> PlacedFault:
    """Strike at the n-th attempt at an act: at once, or so many seconds later."""
    drawn = tuple(each if isinstance(each, tuple) else (each, 0.0) for each in faults)
    return PlacedFault(method=method, number=number, faults=drawn)


def played(drawn: Scenario) -> Play:
    """Played to its end, and no rule was broken."""
    play = Play(drawn)
    assert play.run() == [], play.story()
    return play


def said(play: Play) -> list[str]:
    """What people said that was accepted."""
    return [each.what for each in play.adversary.referee.said if each.word.taken]


def held(play: Play) -> bool:
    return said(play) == ["hold", "resume"] and play.result.outcome is Outcome.RECOVERED


def unexposed(play: Play) -> bool:
    """Our taint never stood on a machine that ran."""
    return play.adversary.machine.exposed == timedelta(0)


def only_what_was_freed_before(play: Play) -> bool:
    """Nothing was freed after what the hold was for had been mended."""
    return not play.adversary.referee.freed and said(play)[:2] == ["hold", "resume"]


GIVEN_UP = plan(levels=((CLOUD,),), power_on=False, terminate_instance=True)
CUT = plan(isolation=(CORDON, *CUTS, FREE), recovery=(*GIVEN_BACK, UNCORDON))
QUARANTINED = plan(
    levels=((CLOUD,),), isolation=(CORDON, QUARANTINE), recovery=(LIFT, UNCORDON), freeing=Freeing.OUT_OF_SERVICE_TAINT
)
OTHERS, RESUME = (Fault.OTHERS_ON, 1.0), {"reactions": ("resume",)}

FOUND: dict[str, tuple[Scenario, Callable[[Play], bool]]] = {
    **{
        f"S47: what was {mended.value} while a hold lasted, which came during the look before freeing, is seen after it": (
            arranged(plan(), at("read_workload", (Fault.HOLD, 0.01), (mended, 20.0)), reactions=("later", "abort-on")),
            only_what_was_freed_before,
        )
        for mended in (Fault.NEED_GONE, Fault.CORRECTED, Fault.REGROUPED)
    },
    "without an adversary a node is fenced and comes back, or the rest of this module would mean nothing": (
        arranged(plan()),
        lambda play: (
            play.result.outcome is Outcome.RECOVERED and play.result.off_proof is not None and play.adversary.referee.freed
        ),
    ),
    "S35: a second cancellation does not end an episode in mid-air; its marks go, and what was switched off is read": (
        arranged(plan(), at("power_off", (Fault.CANCEL, 0.1), (Fault.CANCEL, 0.3))),
        lambda play: play.result.outcome is Outcome.ABORTED,
    ),
    "S20: whoever was told that the episode is held may rely on it while the proof is read before a deletion": (
        arranged(plan(freeing=Freeing.DELETION), at("read_power", Fault.HOLD, number=2), **RESUME),
        held,
    ),
    "S20: a Cluster that is paused in the middle has no machine switched off": (
        arranged(plan(), at("last_look", Fault.CLUSTER_PAUSED)),
        lambda play: play.result.outcome is Outcome.RELEASED and not play.adversary.referee.commands,
    ),
    "S20: the same for what lies behind a cut": (arranged(CUT, at("read_path", Fault.HOLD, number=3), **RESUME), held),
    "S20: a hold is obeyed before the pods of a dead kernel are freed": (
        arranged(
            plan(kdump=KdumpRule(trusted=True)), at("mark_unschedulable", Fault.DUMP), at("read_workload", Fault.HOLD), **RESUME
        ),
        lambda play: said(play) == ["hold", "resume"],
    ),
    "S20: there is no way back from giving a machine up, which a hold keeps from it while the proof is read": (
        arranged(GIVEN_UP, at("read_power", Fault.HOLD, number=3), **RESUME),
        lambda play: (play.result.outcome, play.adversary.machine.terminated) == (Outcome.FENCED_OFF, True),
    ),
    "an abort ends every hold, so that nobody is told that one is obeyed": (
        arranged(plan(), at("read_power", Fault.ABORT_ON, (Fault.HOLD, 0.3), number=2)),
        lambda play: [bool(each.word.refused) for each in play.adversary.referee.said] == [False, True],
    ),
    **{
        f"S35: a path that was noted and never {done} keeps no mark and no cordon": (
            arranged(each, at("note_path", (Fault.UNANSWERED, 100.0), (Fault.ABORT, 80.0))),
            lambda play: play.adversary.machine.mark is None and not play.adversary.machine.unschedulable,
        )
        for done, each in (("cut", CUT), ("quarantined", QUARANTINED))
    },
    "S32: giving paths back may take hours, in which somebody switches a machine on that an abort has left off": (
        arranged(QUARANTINED, at("taint_out_of_service", Fault.ABORT, Fault.VETO, (Fault.OTHERS_ON, 3.0))),
        unexposed,
    ),
    "S1: a taint whose answer was lost may stand, and goes before a person is waited for": (
        arranged(plan(tries=1, restarts=0), at("taint_out_of_service", (Fault.OTHERS_ON, 32.0), Fault.LOST_AFTER), **RESUME),
        lambda play: bool(play.adversary.asked_for_a_person) and unexposed(play),
    ),
    "S1, S6: somebody switches a machine on while the licence to give it up is waited for": (
        arranged(
            GIVEN_UP,
            at("taint_out_of_service", (Fault.UNLICENSED_LONG, 0.01), (Fault.OTHERS_ON, 5.0)),
            reactions=("resume", "abort-on"),
        ),
        lambda play: not play.adversary.machine.terminated and unexposed(play),
    ),
    "S6: a machine whose devices always say on is said to be off, and is plugged in again while it is being freed": (
        arranged(
            plan(**PATIENT),
            at("power_off", Fault.STUCK),
            at("taint_out_of_service", Fault.STUBBORN, OTHERS),
            reactions=("acknowledge", "abort-on"),
        ),
        lambda play: (
            play.adversary.referee.on_word and timedelta(0) < play.adversary.machine.exposed_ready < timedelta(minutes=1)
        ),
    ),
    "S7: a machine that somebody else has switched on after it was freed is not called fenced off": (
        arranged(replace(GIVEN_UP, tries=1, restarts=1), at("taint_out_of_service", (Fault.OTHERS_ON, 0.01))),
        lambda play: play.result.outcome in {Outcome.ABORTED, Outcome.RECOVERED} and not play.adversary.machine.terminated,
    ),
    "S3: a device that was silent when off was read says on right before the end, which nobody who had asked could know": (
        arranged(
            plan(levels=((BMC,), PDUS[:2]), freeing=Freeing.NONE, power_on=False),
            at("power_off", Fault.FIRST_SILENT),
            at("read_workload", (Fault.SPEAKS, 0.01)),
            miswired=True,
        ),
        lambda play: play.result.outcome is Outcome.FENCED_OFF and play.adversary.machine.runs,
    ),
    "S9, S35: the look before a machine is given up said no for ever, and the flow began anew as fast as it could": (
        arranged(GIVEN_UP, at("read_workload", (Fault.NODE_ANEW, 0.01)), reactions=("abort",)),
        lambda play: (
            bool(play.adversary.asked_for_a_person) and not play.adversary.machine.terminated and len(play.adversary.acts) < 100
        ),
    ),
    "S9, S35: the look before a machine is given up said no for ever since its Node was gone, whatever a person said": (
        arranged(replace(GIVEN_UP, power_on=True), at("taint_out_of_service", Fault.NODE_GONE), need=NEEDS[1], **RESUME),
        lambda play: (
            (play.result.outcome, said(play)) == (Outcome.RECOVERED, ["resume"]) and not play.adversary.machine.terminated
        ),
    ),
    "S35: an abort was heard between two tries of the power-on that it had asked for, and the machine was left off": (
        arranged(
            plan(freeing=Freeing.NONE, restarts=0),
            at("power_off", (Fault.SLOW, 2.0)),
            at("read_power", Fault.SILENT, number=2),
            at("power_on", (Fault.SPEAKS, 0.5)),
            reactions=("abort-on",),
        ),
        lambda play: play.result.outcome is Outcome.ABORTED and play.adversary.machine.runs,
    ),
    "S18: half of a level was off when a worker declined, and what said on of it spoke against the next level's proof": (
        arranged(plan(levels=(PDUS, (BMC,)), tries=1, restarts=0), skews=(0.0, 0.0, 120.0)),
        lambda play: (
            play.adversary.asked_for_a_person == 0
            and {each.endpoint for each in play.adversary.referee.commands} == {each.endpoint for each in PDUS}
        ),
    ),
}


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_once_is_not_found_again(found: str) -> None:
    drawn, holds = FOUND[found]
    assert holds(played(drawn))


def test_a_device_that_takes_no_password_hides_nothing_of_what_the_others_say() -> None:
    """S8: a word ends when any device comes to say on."""
    drawn = arranged(
        plan(levels=((BMC,), PDUS[:2]), freeing=Freeing.DELETION, tries=1, restarts=0, **PATIENT),
        at("delete_workload", Fault.STUBBORN),
        reactions=("acknowledge", "abort"),
    )
    play = Play(drawn)
    play.adversary.machine.locked, play.adversary.machine.silent = {BMC.endpoint}, {each.endpoint for each in PDUS}
    play.adversary.machine.later(START + timedelta(minutes=1), play.adversary.machine.silent.clear)
    assert play.run() == [], play.story()
    assert play.adversary.referee.contradicted


def test_a_wish_that_is_withdrawn_at_once_still_tells_of_the_paths_that_its_predecessor_had_cut() -> None:
    """S35: marks are adopted, and what is left is told."""
    cut = plan(isolation=(CORDON, *CUTS), recovery=(*GIVEN_BACK, UNCORDON))
    play = played(arranged(cut, at("cut_path", (Fault.NEED_GONE, 0.1), (Fault.TERMINATE, 0.2)), need=NEEDS[2]))
    assert play.result.outcome is Outcome.REFUSED
    assert f"left cut: {CUTS[0].device.endpoint}" in play.result.message  # type: ignore[union-attr]


def test_a_consequence_that_no_worker_took_has_not_begun() -> None:
    """S6: the machine is switched on by others, and off again by us; the need is asked for anew before anything is freed."""
    drawn = arranged(plan(tries=2), at("read_power", (Fault.OTHERS_ON, 10.0), number=2))
    play = Play(drawn)
    play.clockwork.unserved.add("taint_out_of_service")
    assert play.run() == [], play.story()
    assert play.adversary.referee.freed


def test_an_off_that_others_have_undone_before_all_devices_were_read_proves_nothing_when_it_is_off_again() -> None:
    """S6: one supply says off, then on, while the other can't be read; what both say later is an off of somebody else's."""
    drawn = arranged(
        plan(levels=(PDUS[:2],)),
        at("read_power", Fault.UNREACHABLE, number=3),
        at("read_power", Fault.OTHERS_ON, number=5),
        at("read_power", Fault.OTHERS_OFF, number=7),
        seed=2,
    )
    play = played(drawn)
    states = [each.state for each in play.adversary.referee.commands]
    assert states == [PowerState.OFF] * 4 + [PowerState.ON] * 2
    assert play.result.outcome is Outcome.RECOVERED


def climbing(*steps: Strategy, placed: PlacedFault, planned: FencingPlan | None = None, **changes: object) -> Scenario:
    """A remediation by these steps."""
    given = {"kinds": (Kind.REMEDIATION,), "ladder": tuple(step(each, HOUR) for each in steps)}
    return arranged(planned or plan(), placed, **(given | changes))


def left_off(play: Play, outcome: Outcome, said: str = "may be off") -> bool:
    """It is off at the end, and people are told so."""
    return (play.adversary.machine.runs, play.result.outcome) == (False, outcome) and said in play.result.message


def offs(play: Play) -> list[str]:
    """What was commanded off."""
    return [each.endpoint for each in play.adversary.referee.commands if each.state is PowerState.OFF]


INSTANCE = plan(levels=((CLOUD,),))
FENCE, REBOOT, DETACH, DELETE = Strategy.FENCE, Strategy.REBOOT, Strategy.DETACH_VOLUMES, Strategy.DELETE_MACHINE
ABORT = {"reactions": ("abort",)}

LADDERS: dict[str, tuple[Scenario, Callable[[Play], bool]]] = (
    {
        "without an adversary a ladder fences and the node comes back": (
            climbing(FENCE, placed=at("drain", Fault.ABORT)),
            lambda play: play.result.outcome is Outcome.RECOVERED and play.adversary.referee.freed,
        ),
        "S20: a Cluster that is paused in the middle of a ladder loses no Machine, and its owner is not asked": (
            climbing(FENCE, DELETE, Strategy.REQUEST_OWNER, placed=at("power_off", Fault.LOCKED, Fault.CLUSTER_PAUSED)),
            lambda play: play.adversary.machine_object.deleting is None and play.adversary.machine_object.owner_asked is None,
        ),
        "S5, S33: a deletion that never ends would have the machine started anew in every history, by the step beside it": (
            climbing(DELETE, REBOOT, placed=at("power_on", (Fault.ROLL, 300.0)), goes_after=None, need=NEEDS[1], **ABORT),
            lambda play: play.clockwork.executions[EPISODE].former is not None and len(offs(play)) == 1,
        ),
        "S35: a machine that a step has left off is a person's case though nobody asks for it any more, and not recovered": (
            climbing(FENCE, DELETE, placed=at("power_off", Fault.NEED_GONE), planned=replace(GIVEN_UP, power_on=True), **ABORT),
            lambda play: left_off(play, Outcome.ABORTED),
        ),
        "S9, S35: a Node that somebody deletes strands no machine unseen that a step has left off": (
            climbing(FENCE, Strategy.EXTERNAL, placed=at("read_power", Fault.LOCKED, Fault.NODE_GONE, number=2), **ABORT),
            lambda play: left_off(play, Outcome.REPLACED),
        ),
        "S35: where no step gives back what a predecessor had cut, the mark stays for a clean-up, and people hear why": (
            climbing(
                Strategy.EXTERNAL,
                placed=at("cut_path", (Fault.TERMINATE, 1.0)),
                planned=plan(isolation=(CORDON, *CUTS), recovery=(*GIVEN_BACK, UNCORDON)),
                kinds=(Kind.FENCING, Kind.REMEDIATION),
            ),
            lambda play: f"left cut: {CUTS[0].device.endpoint}" in play.result.message,  # type: ignore[union-attr]
        ),
        "S9: no word makes a Node that was made anew the one that was pinned, so that each `resume` would ask for another one": (
            climbing(REBOOT, placed=at("read_power", Fault.LOCKED, (Fault.NODE_ANEW, 2.0)), **RESUME),
            lambda play: play.result.outcome in {Outcome.REPLACED, Outcome.RECOVERED},
        ),
        "S9, S35: a deleted Node takes along what its terminated episode has left off; nothing unpinned is touched": (
            climbing(FENCE, placed=at("read_workload", (Fault.NODE_GONE, 0.01), (Fault.TERMINATE, 0.01)), planned=INSTANCE),
            lambda play: (
                left_off(play, Outcome.ABORTED, "there is no such Node")
                and {each.incident for each in play.adversary.referee.commands} == {"incident-1"}
                and play.result.incident == "incident-2"
            ),
        ),
        "S35: a device that only others have switched off is left to them, and a person hears that the node does not come back": (
            climbing(FENCE, placed=at("mark_unschedulable", Fault.OTHERS_OFF), planned=plan(levels=(PDUS, (BMC,)))),
            lambda play: (
                left_off(play, Outcome.ABORTED, "the node is not back Ready")
                and play.adversary.machine.power
                == {each.endpoint: PowerState.ON for each in PDUS} | {BMC.endpoint: PowerState.OFF}
                and BMC.endpoint not in {each.endpoint for each in play.adversary.referee.commands}
            ),
        ),
    }
    | {
        f"S5, S35: a later step switches on all that an earlier one has left off: {[*steps]}, {levels[0][0].driver} first": (
            replace(drawn, placed_faults=(*drawn.placed_faults, at("power_on", Fault.SILENT))),
            lambda play: (
                {*offs(play)} == {*play.adversary.machine.power}
                and {*play.adversary.machine.power.values()} == {PowerState.ON}
                and play.result.outcome is Outcome.RECOVERED
            ),
        )
        for levels in ((PDUS, (BMC,)), ((BMC,), PDUS[:2]))
        for steps in ((FENCE,), (REBOOT, FENCE), (DETACH, REBOOT))
        for drawn in [climbing(*steps, placed=at("power_off", Fault.FIRST_SILENT), planned=plan(levels=levels))]
    }
)


@pytest.mark.parametrize("found", LADDERS)
def test_what_was_found_once_in_a_ladder_is_not_found_again(found: str) -> None:
    drawn, holds = LADDERS[found]
    assert holds(played(drawn))


OFF_BEFORE = {
    "by others": ((Kind.REMEDIATION,), at("find_volumes", Fault.OTHERS_OFF)),
    "by a terminated predecessor": ((Kind.FENCING, Kind.REMEDIATION), at("read_workload", (Fault.TERMINATE, 0.1))),
}
"""How a machine is off that no step has switched off."""


@pytest.mark.parametrize("off", OFF_BEFORE)
@pytest.mark.parametrize("planned", [plan(), INSTANCE], ids=["without a device", "of a cloud"])
def test_a_ladder_that_only_detaches_brings_a_machine_back_that_was_off_or_says_why_not(off: str, planned: FencingPlan) -> None:
    """S35: by its own off and on; a step without a device touches none, and each `resume` asks again."""
    kinds, placed = OFF_BEFORE[off]
    play = played(climbing(DETACH, placed=placed, planned=planned, kinds=kinds, need=NEEDS[1]))
    if planned is INSTANCE:
        assert (play.adversary.machine.runs, play.result.outcome) == (True, Outcome.RECOVERED)
    else:
        assert [each for each in play.adversary.referee.commands if each.incident == play.result.incident] == []
        assert left_off(play, Outcome.ABORTED, "a cloud with volumes that we know")


@pytest.mark.parametrize("rolls", [False, True], ids=["in-one-history", "in-a-new-history-after-every-rest"])
def test_a_ladder_that_has_detached_brings_a_machine_back_that_it_has_left_off(*, rolls: bool) -> None:
    """S35: nothing is left to be detached when a person has it go on, which had kept the machine off for ever."""
    once = replace(INSTANCE, tries=1, restarts=0)
    mend = {"need": NEEDS[1], "reactions": ("mend",)}
    play = Play(climbing(DETACH, placed=at("power_on", Fault.SILENT), planned=once, **mend), rolls=rolls)
    assert play.run() == [], play.story()
    assert play.adversary.acts.count(f"detach_volume {CLOUD.endpoint}") == 1
    assert (play.result.outcome, play.adversary.machine.runs) == (Outcome.RECOVERED, True)


# A path that was cut before ---------------------------------------------------------------------------------------------

PORTS = plan(isolation=(CORDON, *CUTS), recovery=(*GIVEN_BACK, UNCORDON), tries=1, restarts=0)
PORT = CUTS[0].device.endpoint  # type: ignore[union-attr]
STRIPPED = at("untaint_out_of_service", Fault.UNMARKED, (Fault.TERMINATE, 0.01))
"""Pods are freed behind a machine that is off, then the episode is terminated, and its mark goes."""
NOBODY_ASKS = {"need": NEEDS[2]}


def in_both(drawn: Scenario) -> list[Play]:
    """Played in one history, and in a new one after every rest."""
    plays = [Play(drawn), Play(drawn, rolls=True)]
    for play in plays:
        assert play.run() == [], play.story()
    return plays


@pytest.mark.parametrize(
    "gives_up",
    [at("cut_path", Fault.NEED_GONE, number=3), at("cut_path", Fault.NEED_GONE, Fault.UNREACHABLE, number=3)],
    ids=["after it has commanded them", "before it has commanded any"],
)
@pytest.mark.parametrize("word", ["resume", "abort"])
def test_who_finds_a_path_cut_and_no_mark_opens_it_on_a_word_only(word: str, gives_up: PlacedFault) -> None:
    """S1, S35: it took the cut for its own, and opened it behind pods that run elsewhere by now."""
    for play in in_both(arranged(PORTS, STRIPPED, gives_up, reactions=(word,), **NOBODY_ASKS)):
        opened = play.adversary.machine.paths[PORT] is PowerState.ON
        assert (play.result.incident, opened, PORT in play.result.message) == ("incident-2", word == "resume", word == "abort")
        assert set(said(play)) == {"return-path" if word == "resume" else word}


def test_who_finds_a_path_cut_and_no_mark_opens_it_after_a_restart() -> None:
    """S35: nobody is asked where the successor goes through with it."""
    for play in in_both(arranged(PORTS, STRIPPED)):
        assert (play.result.incident, play.adversary.asked_for_a_person) == ("incident-2", 0)
        assert set(play.adversary.machine.paths.values()) == {PowerState.ON}


def test_a_path_that_was_never_cut_since_its_switch_was_away_is_left_alone_without_a_person() -> None:
    """S35: it is read once its episode gives up; it was open all the time."""
    for play in in_both(arranged(PORTS, at("cut_path", Fault.NEED_GONE, Fault.UNREACHABLE), **NOBODY_ASKS)):
        assert (play.result.outcome, "left cut" in play.result.message) == (Outcome.RECOVERED, False)
        assert [act for act in play.adversary.acts if act.startswith("restore_path")] == []
        assert said(play) == []


def test_whether_a_path_was_open_is_not_known_where_the_answer_to_its_cut_was_lost() -> None:
    """S3, S35: the safe side; a person hears of it."""
    lost = at("cut_path", Fault.NEED_GONE, Fault.LOST_AFTER)
    for play in in_both(arranged(PORTS, lost, reactions=("abort",), **NOBODY_ASKS)):
        assert f"left cut: {PORT}" in play.result.message


def test_an_abort_that_comes_between_two_histories_is_heard_by_who_gives_a_path_back() -> None:
    """S35, S44: another machine has the name, its switch is silent, and each new history took the abort for an old one."""
    silent = at("restore_path", Fault.SILENT, (Fault.NODE_REPLACED, 3.0))
    for play in in_both(arranged(PORTS, at("cut_path", Fault.NEED_GONE, number=2), silent, reactions=("abort",), **NOBODY_ASKS)):
        assert f"left cut: {PORT}" in play.result.message


def test_a_word_on_a_path_that_comes_between_two_histories_is_not_asked_for_again() -> None:
    """S44: the next history had forgotten that it had asked, and dropped the answer."""
    free = plan(levels=(), isolation=(CORDON, CUTS[0], FREE), recovery=(GIVEN_BACK[0], UNCORDON))
    for play in in_both(arranged(free, at("free_cut_pods", (Fault.FLAP, 0.1)), reactions=("resume",))):
        assert (play.adversary.asked_for_a_person, said(play)) == (1, ["return-path"])


def test_a_path_is_not_given_back_on_a_signal_that_no_look_confirms() -> None:
    """S42, S43: it comes while the API answers nobody, and says that the node is on another boot."""
    free = plan(levels=(), isolation=(CORDON, CUTS[0], FREE), recovery=(GIVEN_BACK[0], UNCORDON))
    lie = at("last_look", (Fault.FORBIDDEN, 400.0), (Fault.HEARSAY, 5.0), number=6)
    play = played(arranged(free, at("free_cut_pods", (Fault.FLAP, 0.1)), lie, reactions=("later", "later")))
    assert (said(play), play.result.restart_proof) == (["return-path"], None)


def unanswered(first: int) -> tuple[PlacedFault, ...]:
    """The worker of a look dies three times in a row, after it has looked: that takes longer than an act may wait to begin."""
    return tuple(at("last_look", Fault.LOST_AFTER, number=number) for number in range(first, first + 3))


@pytest.mark.parametrize(
    "drawn",
    [
        arranged(plan(), *unanswered(1)),
        arranged(replace(PORTS, tries=3), at("cut_path", Fault.NEED_GONE, number=2), *unanswered(4), **NOBODY_ASKS),
    ],
    ids=["before power-off", "before a path is given back"],
)
def test_a_look_that_was_answered_too_late_is_looked_again_before_anything_is_asked_for(drawn: Scenario) -> None:
    """S45: the device's worker would refuse it, and a try would be used up for nothing."""
    assert played(drawn).result.outcome is Outcome.RECOVERED


def test_a_machine_that_a_step_has_left_off_comes_back_on_a_word_though_its_node_was_deleted() -> None:
    """S9, S35: each `resume` began from the first step, for which there was no Node to be marked."""
    gone = at("read_power", Fault.LOCKED, Fault.NODE_GONE, number=2)
    for play in in_both(climbing(FENCE, placed=gone, need=NEEDS[1], reactions=("mend",))):
        assert (play.adversary.machine.runs, said(play), offs(play)) == (True, ["resume"], [BMC.endpoint])
        assert play.result.outcome is Outcome.REPLACED  # by its new Node, of which nobody has said anything


MANY = range(8)
"""Seeds: each resets to other tasks, with what was said since or without."""


@pytest.mark.parametrize(
    ("fenced", "placed"),
    [
        (plan(), at("power_off", (Fault.RESET, 1.0), (Fault.LATE, 14.0))),
        (plan(), at("power_off", (Fault.HOLD, 0.3), (Fault.RESET, 1.0), (Fault.LATE, 14.0))),
        (plan(), at("power_off", (Fault.RESET, 0.5), (Fault.NEED_GONE, 0.3))),
        (replace(CUT, levels=(), boot_timeout=MINUTE), at("free_cut_pods", (Fault.RESET, 0.5), (Fault.FLAP, 0.3))),
    ],
    ids=[
        "an off under way",
        "an off that is scheduled anew",
        "an off, and then it is not asked for",
        "a cut, and its node is well",
    ],
)
def test_what_a_reset_took_back_is_waited_out_and_given_back(fenced: FencingPlan, placed: PlacedFault) -> None:
    """S34, S35: a history that was reset tells nothing of it. S42: a licence of the run before is none of this one."""
    for seed in MANY:
        played(replace(arranged(fenced, placed, reactions=("resume", "abort-on")), seed=seed))


def test_a_ladder_that_is_reset_in_a_later_history_goes_on() -> None:
    """S35: what it had decided by the run that it was in was decided otherwise in its replay, and it was stuck for good."""
    ladder = tuple(step(each, 5 * MINUTE) for each in (Strategy.REBOOT, Strategy.FENCE, Strategy.FENCE))
    refused = (at("power_off", Fault.REFUSED, number=number) for number in (1, 2, 3))
    placed = *refused, at("power_on", (Fault.RESET, 0.3))
    climbs = arranged(plan(tries=1, restarts=0), *placed, kinds=(Kind.REMEDIATION,), ladder=ladder)
    drawn = replace(climbs, reactions=("resume", "abort-on"))
    for seed in MANY:
        assert Play(replace(drawn, seed=seed), rolls=True).run() == []
