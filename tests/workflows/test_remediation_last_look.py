"""What is slow comes first and the last look last: whatever happens until then is heard before anything is asked of anybody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategies import Strategy
from tests.workflows.attempts import START
from tests.workflows.contract import LookVerdict
from tests.workflows.remediated import DELETE, MINUTE, OBJECT, SELF, Made, Remediated, step
from tests.workflows.remediating import Play, remediated

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
    world.objects[OBJECT] = Made(name=OBJECT, created=START, goes_at=START + 5 * MINUTE)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.stands = ("theirs", world.stands[1])
        world.node.ready = True
        play.result(Outcome.RECOVERED)
    assert world.stands == ("theirs", "before")
