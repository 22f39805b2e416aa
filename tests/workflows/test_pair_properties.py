"""A scanner and its episodes, all of them the real workflows, in one play: budgets hold, one episode has a node, and both think
the same of who may act.

The moves are those of docs/adversary.md. `NODEWARDEN_TEST_PAIR_PLAYS` sets how many plays, `NODEWARDEN_TEST_SEED` from which
number on; a play that fails prints the fewest moves that it takes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.workflows.pair import PairPlay
from tests.workflows.plays import least, read

PLAYS = int(os.environ.get("NODEWARDEN_TEST_PAIR_PLAYS", "10"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))


@pytest.fixture(autouse=True)
def _in_silence() -> Iterator[None]:
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("temporalio").setLevel(logging.NOTSET)


@pytest.mark.timeout(7200)
def test_whatever_happens_a_scanner_and_its_episodes_keep_the_rules_together() -> None:
    """S6, S9, S14, S15, S17, S18, S20, S35, S38, S44, S52, and the rules of `test_fencing_properties.py` on each machine."""
    acts = 0
    for seed in range(FIRST_SEED, FIRST_SEED + PLAYS):
        play = PairPlay(seed)
        if found := play.run():
            small = PairPlay(seed, least(play.moves, lambda moves, seed=seed: PairPlay(seed, moves).run()))
            pytest.fail("\n".join([f"play {seed}:", *small.run(), *small.told, "at first:", *found]))
        acts += play.referee.acts
    assert acts > PLAYS, "the plays are about nothing"


def test_a_seed_is_the_same_play_each_time() -> None:
    one, other = PairPlay(FIRST_SEED), PairPlay(FIRST_SEED)
    assert (one.run(), one.told, one.referee.acts) == (other.run(), other.told, other.referee.acts)


FOUND = {
    "S14: what an episode has begun counts while it asks anew for a permit that a scanner does not know": (96, """
        sickens(1013979472), then 12 s  stops_scanner(610256382), then 5 s
        sickens(622463284), then 0.3 s  sickens(19315374), then 75 s"""),
    "S14: an episode that gave its permit back in a hold, and gets none any more, does not count as one that acts": (123, """
        sickens(300811111), then 12 s  holds_episode(600509301), then 2 s
        sickens(548004978), then 5 s  resumes(543020164), then 31 s"""),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_a_play_has_found_is_mended(what: str) -> None:
    seed, printed = FOUND[what]
    assert PairPlay(seed, read(printed)).run() == []
