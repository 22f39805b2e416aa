"""Random faults, words and kills against whole fencings and ladders: the safety rules hold at every moment, and each comes to an
end.

They are played on a clockwork (`clockwork.py`), where an episode takes some hundredths of a second and a seed is the same run
each time. `NODEWARDEN_TEST_EPISODES` sets how many are tried (a bounded number in `make test`), `NODEWARDEN_TEST_SEED` from which
on; a failing one prints the least that it takes, and all that was done then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from policy.episode.messages import Kind
from policy.fence.plan import CORDON, UNCORDON
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategy_rules import Strategy
from tests.workflows.attempts import Attempt
from tests.workflows.contract import act_of
from tests.workflows.faults import Fault, PlacedFault
from tests.workflows.plans import ASKS, CUTS, FREE, GIVEN_BACK, MINUTE, step
from tests.workflows.plays import least
from tests.workflows.scenario_run import EPISODE, Play, Scenario, arranged, story
from tests.workflows.taken_out import changed
from tests.workflows.world import plan

EPISODES = int(os.environ.get("NODEWARDEN_TEST_EPISODES", "60"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
PARTS = 3
"""In so many tests, so that several processes may share them."""
SHOWN = 3
"""So many problems are shown with their stories."""


@pytest.fixture(autouse=True)
def _in_silence() -> Iterator[None]:
    """What workflows log of their troubles is what they are made to have, some thousand times."""
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("temporalio").setLevel(logging.NOTSET)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("rolls", [False, True], ids=["in-one-history", "in-a-new-history-after-every-rest"])
def test_whatever_happens_the_rules_hold_and_every_episode_ends(rolls: bool, part: int) -> None:
    """S1-S10, S14, S16-S18, S20, S21, S32-S35, S38, S45: of fencings, of ladders, and of those that follow a terminated one."""
    problems: list[str] = []
    for seed in range(FIRST_SEED + rolls + 2 * part, FIRST_SEED + EPISODES, 2 * PARTS):
        if found := Play(Scenario.of(seed), rolls=rolls).run():
            problems += found if len(problems) >= SHOWN else [*found, story(Scenario.of(seed), rolls=rolls)]
    assert problems == [], "\n".join(problems)


def test_s20_a_step_of_a_ladder_is_left_once_it_has_had_its_time() -> None:
    """S20, S37: a hold, the queue, a mode, a missing licence, another clock or time without workers uses up none of it."""
    problems: list[str] = []
    for seed in range(FIRST_SEED, FIRST_SEED + EPISODES // 4):
        problems += Play(Scenario.climbing(seed), rolls=seed % 2 == 0).run()
    assert problems == [], "\n".join(problems)


def test_a_seed_is_the_same_run_each_time() -> None:
    """Or nobody could look into what a seed has found."""
    one, other = Play(Scenario.of(FIRST_SEED + 11)), Play(Scenario.of(FIRST_SEED + 11))
    assert (one.run(), one.adversary.acts) == (other.run(), other.adversary.acts)


def test_a_play_is_cut_down_to_what_it_takes() -> None:
    wild = Scenario.of(FIRST_SEED + 1)
    parts = wild.parts()
    assert wild.of_parts(parts) == wild
    assert wild.of_parts([]).parts() == []
    needed = {parts[0], parts[-1]}
    assert set(least(parts, lambda kept: needed <= set(kept))) == needed


# A history may be left at any rest: the next one does what the same one would have done -------------------------------

LADDER = (step(Strategy.EXTERNAL, MINUTE), step(Strategy.FENCE))
TROUBLES = {
    "none": (),
    "an answer to off is lost": (PlacedFault(method="power_off", number=1, faults=((Fault.LOST_AFTER, 0.0),)),),
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


def whole_and_rolled(drawn: Scenario) -> tuple[Play, Play]:
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


def _spoken_to_after_a_reset(strategy: Strategy, word: Fault) -> Play:
    """While what was in flight is waited out."""
    said = PlacedFault(method=ASKS[strategy], number=1, faults=((Fault.RESET, 0.5), (word, 0.7)))
    return Play(arranged(plan(), said, seed=5, kinds=(Kind.REMEDIATION,), ladder=(step(strategy, MINUTE),)))


of_others = pytest.mark.parametrize("strategy", [Strategy.EXTERNAL, Strategy.ANNOTATE_EXTERNAL])
words = pytest.mark.parametrize("word", [Fault.ABORT, Fault.HOLD])


@words
@of_others
def test_s20_what_is_said_while_a_reset_is_waited_out_is_heard_before_others_are_asked(strategy: Strategy, word: Fault) -> None:
    """S34 has what was in flight waited out, and the look that comes then is one activity with the act: nothing hears of a word
    afterwards. Of seed 376 of 30 November, in which an object was made after an abort."""
    assert _spoken_to_after_a_reset(strategy, word).run() == []


@words
@of_others
def test_a_history_in_which_nothing_was_heard_after_a_reset_is_replayed(strategy: Strategy, word: Fault) -> None:
    """Of builds until 30 November: it has begun what was objected to, and then a worker of this build goes on with it."""
    play, begun = _spoken_to_after_a_reset(strategy, word), list[str]()
    perform, former = play.clockwork.perform, ExitStack()

    def performed(attempt: Attempt) -> Any:
        begun.append(act_of(attempt.call))
        if begun.count(ASKS[strategy]) == 2:
            former.close()
            play.clockwork.executions[EPISODE].forget()
        return perform(attempt)

    play.clockwork.perform = performed
    with former:
        was, instead = "self._episode.was_reset and workflow.patched", "False and workflow.patched"
        former.enter_context(changed("workflows/episode/preflight.py", was, instead))
        found = play.run()
    assert {each.split(": ")[1] for each in found} == {"S20"}, found
