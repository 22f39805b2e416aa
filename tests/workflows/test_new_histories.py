"""A history may be left at any rest: the next one does what the same one would have done."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.episode.messages import Kind
from policy.fence.plan import CORDON, UNCORDON
from policy.remediation.escalation import EscalationStep
from policy.remediation.strategies import Strategy
from tests.workflows.drawing import Drawn, arranged
from tests.workflows.mishaps import Ambush, Mishap
from tests.workflows.plans import CUTS, FREE, GIVEN_BACK, MINUTE, step
from tests.workflows.playing import EPISODE, Play
from tests.workflows.world import plan

LADDER = (step(Strategy.EXTERNAL, MINUTE), step(Strategy.FENCE))
TROUBLES = {
    "none": (),
    "an answer to off is lost": (Ambush(method="power_off", number=1, mishaps=((Mishap.LOST_AFTER, 0.0),)),),
}


COMMANDS = ("power_o", "cut_path", "restore_path", "free_cut_pods", "taint_out_of_service", "create_object", "mark_unschedulable")


def commands(play: Play) -> list[str]:
    """What it has done to the machine, and had others do."""
    return [act for act in play.adversary.acts if act.startswith(COMMANDS)]


def histories(play: Play) -> int:
    """In how many the episode was."""
    execution, count = play.clockwork.executions[EPISODE], 1
    while execution.former is not None:
        execution, count = execution.former, count + 1
    return count


def whole_and_rolled(drawn: Drawn) -> tuple[Play, Play]:
    """The same in one history, and in as many as there are rests."""
    whole, rolled = Play(drawn), Play(drawn, rolls=True)
    assert (whole.run(), rolled.run()) == ([], [])
    assert (histories(whole), histories(rolled) > 1) == (1, True)
    return whole, rolled


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(("kind", "ladder"), [(Kind.FENCING, ()), (Kind.REMEDIATION, LADDER)])
def test_histories_that_are_left_at_every_rest_end_as_one_does(
    kind: Kind, ladder: tuple[EscalationStep, ...], trouble: str
) -> None:
    """S1, S5, S35: what the state carries is all that a story knows."""
    fenced = plan(isolation=(CORDON, *CUTS, FREE), recovery=(*GIVEN_BACK, UNCORDON), free_timeout=timedelta(minutes=5), tries=2)
    drawn = arranged(fenced, *TROUBLES[trouble], kinds=(kind,), ladder=ladder, reactions=("resume",))
    whole, rolled = whole_and_rolled(drawn)
    assert (rolled.result.outcome, rolled.result.message) == (whole.result.outcome, whole.result.message)
    assert commands(rolled) == commands(whole)
