"""Whatever happens to a machine that is kept, its people and the episode: it is kept as long as is said, touched by nothing else,
and given up only as the rules have it.

The moves are those of docs/adversary.md. `NODEWARDEN_TEST_KEPT_PLAYS` sets how many plays, `NODEWARDEN_TEST_SEED` from which
number on; a play that fails prints the fewest moves that it takes.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.workflows.plays import Move
from tests.workflows.preservation_moves import EPISODE, FIRST, LATER, LATEST, NODES, KeptPlay, story
from tests.workflows.taken_out import changed

PLAYS = int(os.environ.get("NODEWARDEN_TEST_KEPT_PLAYS", "60"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))


@pytest.fixture(autouse=True)
def _in_silence() -> Iterator[None]:
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("temporalio").setLevel(logging.NOTSET)


@pytest.mark.timeout(7200)
def test_whatever_happens_a_machine_is_kept_as_is_said_and_given_up_by_the_rules() -> None:
    """S1, S14, S20-S22, S25, S35, S44, S52."""
    acts = Counter[str]()
    for seed in range(FIRST_SEED, FIRST_SEED + PLAYS):
        alphabet = (FIRST, LATER, LATEST, NODES)[seed % 4]
        play = KeptPlay(seed, alphabet=alphabet)
        if play.run():
            pytest.fail(story(seed, alphabet))
        acts += play.acts
    about = {"hold", "drain", "give_up", "pin", "last_look"}
    assert all(acts[each] > PLAYS / 5 for each in about), f"the plays are about nothing: {acts}"


class TakenOver(KeptPlay):
    """One that a worker of this build takes over, as the last of its moves."""

    former: ExitStack

    def goes_on_here(self) -> None:
        self.former.close()
        self.clockwork.executions[EPISODE].forget()


@pytest.mark.parametrize(
    ("file", "was", "moves", "left"),
    [
        (
            "workflows/preservation/isolation.py",
            "waited and workflow.patched(LOOKS_AFTER_WAIT)",
            "machine_fails@0 machine_is_to_be_kept@0.4 no_permit_is_granted@0 person_isolates@100",
            "cut_path",
        ),
        (
            "workflows/preservation/story.py",
            "(found and not progress.cutting_off.marked and workflow.patched(FOUND_MARKED))",
            "machine_is_to_be_kept@0 answers_are_lost@0 machine_fails@70 machine_recovers@400 scanner_tells@70",
            "mark",
        ),
        (
            "workflows/fencing/paths.py",
            "workflow.patched(MAY_BE_NOTED)",
            (
                "machine_fails@0 machine_is_to_be_kept@0.4 no_permit_is_granted@0 person_isolates@10 "
                "answers_are_lost@90 machine_recovers@200"
            ),
            "note_path",
        ),
    ],
)
def test_a_history_of_a_build_that_did_otherwise_is_replayed(file: str, was: str, moves: str, left: str) -> None:
    """Of builds until 30 November: the machine was not looked at after the wait for the permit; our mark, of which the answer was
    lost, has stayed, also for a path that was noted and never cut. It goes on so."""
    named = [(name, float(wait)) for name, _, wait in (each.partition("@") for each in [*moves.split(), "goes_on_here@60"])]
    play = TakenOver(1, [Move(name, 7, wait) for name, wait in named])
    with ExitStack() as play.former:
        play.former.enter_context(changed(file, was, "False"))
        found = play.run()
    assert play.acts[left] > 0
    assert not [each for each in found if "replay" in each], found
    assert bool(found) is (left != "cut_path")
