"""What is slow comes first and the last look last: whatever happens until then is heard before anything is asked of anybody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.remediation.escalation import EscalationStep
from policy.remediation.strategies import Strategy
from tests.workflows.attempts import START
from tests.workflows.contract import LookVerdict
from tests.workflows.remediated import DELETE, FENCE, MINUTE, OBJECT, SELF, Made, Remediated, step
from tests.workflows.remediating import Play, remediated
from tests.workflows.world import World, plan

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


# What happens meanwhile -----------------------------------------------------------------------------------------------


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


# What is remembered ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("befalls", ["after", "refused"])
def test_a_deletion_that_may_have_been_asked_for_is_remembered_and_one_that_was_refused_is_not(befalls: str) -> None:
    """S33: of an answer that was lost nobody knows whether it was."""
    world = Remediated(ladder=(DELETE,), stands=("before", "before"))
    refused = failure(ErrorType.VETOED, "somebody says no")
    world.errors["preservation.give-up"] = [befalls if befalls == "after" else refused]
    remediated(world)
    assert (world.stands == ("before", "before")) is (befalls == "refused")


def test_what_an_earlier_step_has_done_stays_remembered() -> None:
    """The first was tried; that the look forbids the second takes nothing of that back."""
    world = Remediated(ladder=(SELF, DELETE), stands=("before", "before"))
    with Play(world) as play:
        play.did(f"time-out {OBJECT}")
        world.before[GIVE_UP] = gets_well(world)
        play.result(Outcome.RECOVERED)
    assert world.count("give-up") == 0
    assert world.stands == (world.memories[-1],) * 2
    assert world.remembered[-1] == (SELF.name,)


@pytest.mark.parametrize("others", [False, True], ids=["ours", "written by others meanwhile"])
def test_an_object_that_only_had_to_wait_for_an_earlier_one_is_not_remembered(*, others: bool) -> None:
    """S20: the earlier one is on its way out, and the node has recovered before another could be made. What others have written
    is left alone."""
    world = Remediated(ladder=(SELF,), stands=("before", "before"))
    world.objects[OBJECT] = Made(name=OBJECT, created=START, several=False, goes_at=START + 5 * MINUTE)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.stands = ("theirs", "theirs") if others else world.stands
        world.node.ready = True
        play.result(Outcome.RECOVERED)
    assert world.stands == (("theirs", "theirs") if others else ("before", "before"))


def test_a_fencing_that_came_to_nothing_is_not_remembered() -> None:
    """The node came back while it was waited for, and nothing was done to it."""
    node = World(plan=plan(wait_before_power=10 * MINUTE, isolation=()))
    world = Remediated(ladder=(FENCE,), node=node, stands=("before", "before"))
    with Play(world) as play:
        play.until(lambda status: status.doing == "waits before power-management")
        node.ready = True
        play.tell(node.observation())
        play.result(Outcome.RECOVERED)
    assert (node.commands, world.stands) == ([], ("before", "before"))
