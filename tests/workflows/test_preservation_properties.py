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

import pytest

from tests.workflows.preservation_moves import KeptPlay, story

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
        play = KeptPlay(seed)
        if play.run():
            pytest.fail(story(seed))
        acts += play.acts
    about = {"hold", "drain", "give_up", "pin", "last_look"}
    assert all(acts[each] > PLAYS / 5 for each in about), f"the plays are about nothing: {acts}"
