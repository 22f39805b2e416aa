"""Random mishaps, words and kills against whole fencings and ladders: the safety rules hold at every moment, and each comes to an
end.

They are played on a clockwork (`clockwork.py`), where an episode takes some hundredths of a second and a seed is the same run
each time. `NODEWARDEN_TEST_EPISODES` sets how many are tried (a bounded number in `make test`), `NODEWARDEN_TEST_SEED` from which
on; a failing one prints its seed and all that was done. Not hypothesis: what matters is the order of events between them all,
which no shrinking of a script would keep.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.workflows.drawing import Drawn
from tests.workflows.playing import Play

EPISODES = int(os.environ.get("NODEWARDEN_TEST_EPISODES", "160"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
PARTS = 3
"""In so many tests, so that several processes may share them."""
SHOWN = 3
"""So many failing episodes are shown in full."""


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
        play = Play(Drawn.of(seed), rolls=rolls)
        if found := play.run():
            problems += found if len(problems) >= SHOWN else [*found, play.story()]
    assert problems == [], "\n".join(problems)


def test_a_seed_is_the_same_run_each_time() -> None:
    """Or nobody could look into what a seed has found."""
    one, other = Play(Drawn.of(FIRST_SEED + 11)), Play(Drawn.of(FIRST_SEED + 11))
    assert (one.run(), one.adversary.acts) == (other.run(), other.adversary.acts)
