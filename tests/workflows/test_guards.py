"""What the players hold, by taking it out: `guards.py` has each guard with the play that fails without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.docs.reading import pages
from tests.workflows.guards import GUARDS, Guard, episode, table
from tests.workflows.taken_out import changed
from workflows.remediation.story import RemediationStory


@pytest.fixture(autouse=True)
def _in_silence() -> Iterator[None]:
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("temporalio").setLevel(logging.NOTSET)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("play", "guard"),
    [pytest.param(play, guard, id=f"{play.__name__}: {guard.what}") for play, guards in GUARDS.items() for guard in guards],
)
def test_a_guard_that_is_taken_out_is_noticed(play: Callable[[int], list[str]], guard: Guard) -> None:
    """After a new move: `python -m tests.workflows.guards` looks for other seeds."""
    assert guard.noticed(play), f"seed {guard.seed} notices nothing without: {guard.what}"
    assert play(guard.seed) == [], "nor does it fail by itself"


def test_the_page_has_the_table_of_guards() -> None:
    assert table() in pages()["docs/adversary.md"], "python -m tests.workflows.guards --table"


def test_a_guard_is_taken_out_for_as_long_as_it_is_said() -> None:
    story = "workflows/remediation/story.py"
    with changed(story, "return TO_SWITCH_ON if", "return MAY_BE_OFF if"):
        during = _speaks_against_code()
    assert "MAY_BE_OFF" in during
    assert "MAY_BE_OFF" not in _speaks_against_code()
    with pytest.raises(ValueError, match="expected once, found 0 times"), changed(story, "no such text", ""):
        pass
    with (
        pytest.raises(ValueError, match="no function says"),
        changed(story, "TRY_AGAIN = timedelta(seconds=5)", "TRY_AGAIN = None"),
    ):
        pass
    assert episode(1) == []


def _speaks_against_code() -> tuple[str, ...]:
    return RemediationStory._speaks_against.__code__.co_names
