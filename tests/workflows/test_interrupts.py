"""What a failed act says of what was done: whether it began at all, and whether it may have been carried out (S33, S34)."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as OutOfTime

from activities.errors import ErrorType, failure
from workflows.kit.interrupts import INTERRUPTS, NonRetryable, is_unclear, never_began

ONCE, AGAIN = RetryState.MAXIMUM_ATTEMPTS_REACHED, RetryState.TIMEOUT


def failed(cause: TimeoutType | ApplicationError, retry_state: RetryState = ONCE) -> ActivityError:
    """An activity that has failed with that."""
    named = {"identity": "w", "activity_type": "a", "activity_id": "1"}
    error = ActivityError("failed", scheduled_event_id=1, started_event_id=2, retry_state=retry_state, **named)
    late = isinstance(cause, TimeoutType)
    error.__cause__ = OutOfTime("late", type=cause, last_heartbeat_details=()) if late else cause
    return error


@pytest.mark.parametrize(
    ("error", "began", "unclear"),
    [
        (failed(TimeoutType.SCHEDULE_TO_START), False, False),
        (failed(TimeoutType.START_TO_CLOSE), True, True),
        (failed(TimeoutType.HEARTBEAT), True, True),
        (failed(TimeoutType.SCHEDULE_TO_CLOSE), True, True),
        (failed(failure(ErrorType.WRONG_CLOCK, "behind")), False, False),
        (failed(failure(ErrorType.WRONG_CLOCK, "behind"), AGAIN), True, False),
        (failed(failure(ErrorType.AMBIGUOUS, "lost")), True, True),
        (failed(failure(ErrorType.TRANSIENT, "refused")), True, False),
    ],
    ids=[
        "nobody took it",
        "out of time",
        "its worker died",
        "out of all time",
        "declined",
        "declined at last",
        "unsure",
        "refused",
    ],
)
def test_only_what_a_worker_may_have_begun_is_waited_out(error: ActivityError, *, began: bool, unclear: bool) -> None:
    """S33, S34: what no worker has taken has done nothing, so that it is neither waited out nor taken for done."""
    assert (never_began(error), is_unclear(error)) == (not began, unclear)


def test_what_an_earlier_build_has_left_an_episode_in_is_known() -> None:
    """S35: the name is part of the state that a new history begins with; one that is not known would end it in every task."""
    assert INTERRUPTS["Hopeless"] is NonRetryable
    assert all(INTERRUPTS[each.__name__] is each for each in INTERRUPTS.values())
