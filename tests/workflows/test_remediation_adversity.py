"""What the adversary has found once in a ladder, each in its smallest form: on the clockwork, with nothing left to chance."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.episode.messages import Kind, Outcome
from policy.fence.plan import CORDON, UNCORDON, FencingPlan, PowerDevice
from policy.fence.power import PowerState
from policy.remediation.strategies import Strategy
from policy.values.errors import PolicyError
from tests.workflows.drawing import NEEDS, Drawn, arranged
from tests.workflows.mishaps import Ambush, Mishap
from tests.workflows.plans import BMC, CLOUD, CUTS, GIVEN_BACK, PDUS, step
from tests.workflows.playing import Play
from tests.workflows.test_fencing_adversity import at, played
from tests.workflows.world import plan
from workflows.fencing.power import PowerSequence
from workflows.remediation import detaching

HOUR = timedelta(hours=1)


def climbing(*steps: Strategy, ambush: Ambush, planned: FencingPlan | None = None, **changes: object) -> Drawn:
    """A remediation by these steps."""
    given = {"kinds": (Kind.REMEDIATION,), "ladder": tuple(step(each, HOUR) for each in steps)}
    return arranged(planned or plan(), ambush, **(given | changes))


def test_without_an_adversary_a_ladder_fences_and_the_node_comes_back() -> None:
    """The rest of this module would mean nothing else."""
    play = played(climbing(Strategy.FENCE, ambush=at("drain", Mishap.ABORT)))
    assert play.result.outcome is Outcome.RECOVERED
    assert play.adversary.referee.freed


def test_a_step_that_brought_the_node_back_beside_a_deletion_is_not_taken_again_in_the_next_history() -> None:
    """S5, S33: a deletion that never comes to its end would have the machine started anew in every history."""
    stuck = climbing(
        Strategy.DELETE_MACHINE,
        Strategy.REBOOT,
        ambush=at("power_on", (Mishap.ROLL, 300.0)),
        goes_after=None,
        need=NEEDS[1],
        reactions=("abort",),
    )
    play = played(stuck)
    offs = [each for each in play.adversary.referee.commands if each.state is PowerState.OFF]
    assert play.clockwork.executions["episode/adversity/node-7"].former is not None
    assert len(offs) == 1


def test_a_machine_that_a_step_has_left_off_is_a_person_s_case_though_nobody_asks_for_it_any_more() -> None:
    """S35: recovered is not said of a machine that is off."""
    given_up = plan(levels=((CLOUD,),), terminate_instance=True)
    drawn = climbing(
        Strategy.FENCE,
        Strategy.DELETE_MACHINE,
        ambush=at("power_off", Mishap.NEED_GONE),
        planned=given_up,
        reactions=("abort",),
    )
    play = played(drawn)
    assert not play.adversary.machine.runs
    assert play.result.outcome is Outcome.ABORTED
    assert "may be off" in play.result.message


def test_a_machine_that_a_step_has_left_off_is_told_of_though_its_node_is_gone() -> None:
    """S9, S35: a Node that somebody deletes strands no machine unseen."""
    drawn = climbing(
        Strategy.FENCE,
        Strategy.EXTERNAL,
        ambush=at("read_power", Mishap.LOCKED, Mishap.NODE_GONE, number=2),
        reactions=("abort",),
    )
    play = played(drawn)
    assert not play.adversary.machine.runs
    assert play.result.outcome is Outcome.REPLACED
    assert "may be off" in play.result.message


def test_what_a_predecessor_had_cut_is_told_where_no_step_gives_it_back() -> None:
    """S35: the mark stays for a clean-up, and people hear why."""
    cut = plan(isolation=(CORDON, *CUTS), recovery=(*GIVEN_BACK, UNCORDON))
    drawn = climbing(
        Strategy.EXTERNAL, ambush=at("cut_path", (Mishap.TERMINATE, 1.0)), planned=cut, kinds=(Kind.FENCING, Kind.REMEDIATION)
    )
    play = Play(drawn)
    assert play.run() == [], play.story()
    assert f"left cut: {CUTS[0].device.endpoint}" in play.result.message  # type: ignore[union-attr]


def test_a_node_that_was_made_anew_while_a_person_was_waited_for_is_let_go() -> None:
    """S9: no word makes it the one that was pinned, so that each `resume` would ask for another one."""
    drawn = climbing(
        Strategy.REBOOT,
        ambush=at("read_power", Mishap.LOCKED, (Mishap.NODE_ANEW, 2.0)),
        reactions=("resume",),
    )
    assert played(drawn).result.outcome in {Outcome.REPLACED, Outcome.RECOVERED}


LEVELS = (PDUS, (BMC,)), ((BMC,), PDUS[:2])


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(
    "steps", [(Strategy.FENCE,), (Strategy.REBOOT, Strategy.FENCE), (Strategy.DETACH_VOLUMES, Strategy.REBOOT)]
)
def test_a_later_step_switches_on_by_every_device_that_an_earlier_one_has_left_off(
    levels: tuple[tuple[PowerDevice, ...], ...], steps: tuple[Strategy, ...]
) -> None:
    """S5, S35: the first level is silent, and the second can't be switched on again; then a person has mended both."""
    drawn = climbing(*steps, ambush=at("power_off", Mishap.FIRST_SILENT), planned=plan(levels=levels))
    play = played(replace(drawn, ambushes=(*drawn.ambushes, at("power_on", Mishap.SILENT))))
    commands = play.adversary.referee.commands
    assert {each.endpoint for each in commands if each.state is PowerState.OFF} == set(play.adversary.machine.power)
    assert set(play.adversary.machine.power.values()) == {PowerState.ON}
    assert play.result.outcome is Outcome.RECOVERED


def test_a_deleted_node_takes_along_what_its_terminated_episode_has_left_off() -> None:
    """S9, S35: a person hears that there is no Node, and no device of a machine that nobody has pinned is touched."""
    drawn = climbing(
        Strategy.FENCE,
        ambush=at("read_workload", (Mishap.NODE_GONE, 0.01), (Mishap.TERMINATE, 0.01)),
        planned=plan(levels=((CLOUD,),)),
    )
    play = played(drawn)
    assert not play.adversary.machine.runs
    assert {each.incident for each in play.adversary.referee.commands} == {"incident-1"}
    assert (play.result.incident, play.result.outcome) == ("incident-2", Outcome.ABORTED)
    assert "there is no such Node" in play.result.message


def test_a_device_that_only_others_have_switched_off_is_left_to_them() -> None:
    """S35: what the step has switched off is on again, and a person hears that the node does not come back."""
    drawn = climbing(Strategy.FENCE, ambush=at("mark_unschedulable", Mishap.OTHERS_OFF), planned=plan(levels=(PDUS, (BMC,))))
    play = played(drawn)
    power = play.adversary.machine.power
    assert power.pop(BMC.endpoint) is PowerState.OFF
    assert set(power.values()) == {PowerState.ON}
    assert BMC.endpoint not in {each.endpoint for each in play.adversary.referee.commands}
    assert play.result.outcome is Outcome.ABORTED
    assert "the node is not back Ready" in play.result.message


@pytest.mark.parametrize("others", [Mishap.NOTHING, Mishap.OTHERS_OFF, Mishap.NODE_GONE])
def test_a_machine_that_stays_off_by_a_step_s_own_command_is_found(monkeypatch: pytest.MonkeyPatch, others: Mishap) -> None:
    """S35: or the three before would mean nothing."""
    monkeypatch.setattr(PowerSequence, "_to_switch_on", lambda _self, _needed: [])
    drawn = climbing(Strategy.FENCE, ambush=at("read_workload", others), planned=plan(levels=((CLOUD,),)))
    assert any("twice `resume` does not bring the machine back" in each for each in Play(drawn).run())


OFF_BEFORE = {
    "by others": ((Kind.REMEDIATION,), at("find_volumes", Mishap.OTHERS_OFF)),
    "by a terminated predecessor": ((Kind.FENCING, Kind.REMEDIATION), at("read_workload", (Mishap.TERMINATE, 0.1))),
}
"""How a machine is off that no step has switched off."""


def detaches(off: str, planned: FencingPlan) -> Drawn:
    """A ladder that can only detach volumes, of a machine that is off already."""
    kinds, ambush = OFF_BEFORE[off]
    return climbing(Strategy.DETACH_VOLUMES, ambush=ambush, planned=planned, kinds=kinds, need=NEEDS[1])


@pytest.mark.parametrize("off", OFF_BEFORE)
def test_a_ladder_none_of_whose_steps_has_a_device_is_a_person_s_case_though_the_machine_is_off(off: str) -> None:
    """S35: each `resume` asks again and says why, and the step touches no device."""
    play = played(detaches(off, plan()))
    assert not play.adversary.machine.runs
    assert [each for each in play.adversary.referee.commands if each.incident == play.result.incident] == []
    assert play.result.outcome is Outcome.ABORTED
    assert "a cloud whose volumes are known" in play.result.message


@pytest.mark.parametrize("off", OFF_BEFORE)
def test_a_ladder_that_detaches_brings_a_machine_back_that_was_off_before(off: str) -> None:
    """S35: by its own off and on."""
    play = played(detaches(off, plan(levels=((CLOUD,),))))
    assert play.adversary.machine.runs
    assert play.result.outcome is Outcome.RECOVERED


@pytest.mark.parametrize("rolls", [False, True], ids=["in-one-history", "in-a-new-history-after-every-rest"])
def test_a_ladder_that_has_detached_brings_a_machine_back_that_it_has_left_off(*, rolls: bool) -> None:
    """S35: nothing is left to be detached when a person has it go on, which had kept the machine off for ever."""
    drawn = climbing(
        Strategy.DETACH_VOLUMES,
        ambush=at("power_on", Mishap.SILENT),
        planned=plan(levels=((CLOUD,),), tries=1, restarts=0),
        need=NEEDS[1],
        reactions=("mend",),
    )
    play = Play(drawn, rolls=rolls)
    assert play.run() == [], play.story()
    assert play.adversary.acts.count(f"detach_volume {CLOUD.endpoint}") == 1
    assert (play.result.outcome, play.adversary.machine.runs) == (Outcome.RECOVERED, True)


def test_a_step_that_has_its_device_and_never_comes_to_switch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """S35: the two before would mean nothing else."""

    def refuse(*_: object, **__: object) -> None:
        raise PolicyError("test", "detach-volumes", "broken")

    monkeypatch.setattr(detaching, "detaching", refuse)
    found = Play(detaches("by a terminated predecessor", plan(levels=((CLOUD,),)))).run()
    assert any("twice `resume` does not bring the machine back" in each for each in found)
