"""A machine that a step of a ladder has left off: who asks for it comes to hear, and a person's word brings it back (S35)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome, Phase
from policy.fence.power import PowerState
from policy.remediation.strategies import Strategy
from tests.workflows.executions import Word
from tests.workflows.remediated import FENCE, HOUR, MINUTE, OBJECT, Remediated, step
from tests.workflows.remediating import Play
from tests.workflows.world import World, plan

SLOW = step(Strategy.EXTERNAL, timedelta(hours=5))
BMC = "ipmi://10.0.0.7:623"
SILENT = failure(ErrorType.UNREACHABLE, "no answer")


def stays_off(*, excused: bool = True, ladder: tuple[object, ...] = (FENCE, SLOW), **changes: object) -> Remediated:
    """Its fencing switches it off and can't switch it on. excused: nobody asks for it any more from then on."""
    node = World(plan=plan(tries=1, restarts=0, **changes), on_errors=[SILENT] * 500)
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
            world.node.on_errors.clear()
        world.node.preserved = preserved
        play.resume()
        assert why in play.parked().problem
        world.node.on_errors.clear()
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
        world.node.on_errors.clear()
        play.resume()
        play.result(Outcome.RECOVERED)
    assert world.node.commands[-1] == f"on {BMC}"


def test_no_other_device_is_switched_on_in_a_later_history() -> None:
    """S9: configured since then for the node is the plug of another machine."""
    world = stays_off()
    with Play(world) as play:
        play.parked()
        go_on(play, 2)
        world.node.on_errors.clear()
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
    node, tainted = World(plan=plan(tries=1, restarts=0), pods_stay=True), list[bool]()
    world = Remediated(ladder=(FENCE, SLOW), node=node, has_machine=False)
    world.before["remediation.create-object"] = lambda: tainted.append(node.tainted)
    with Play(world) as play:
        play.did("taint")
        node.silent = set(node.power)
        node.untaint_errors = [failure(ErrorType.UNREACHABLE, "the API is away")] * 30
        play.did(f"create {OBJECT}")
        assert tainted == [False]


def test_a_node_whose_off_was_a_lie_is_not_called_recovered_by_what_comes_after() -> None:
    """S2, S44: as of a fencing by itself; its step has failed, and the next one finds the node well on the boot that was
    fenced."""
    node = World(plan=plan(tries=1, restarts=0, free_timeout=timedelta(hours=1)), pods_stay=True)
    with Play(Remediated(ladder=(FENCE, SLOW), node=node, has_machine=False)) as play:
        play.did("taint")
        node.power, node.ready = dict.fromkeys(node.power, PowerState.ON), True
        assert "its pods may have been freed when it was said to be off" in play.parked().problem
        play.roll()
        play.skip(HOUR)
        assert (play.status().phase, node.cordoned) == (Phase.NEEDS_HUMAN, True)
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
