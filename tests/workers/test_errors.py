"""Whether Temporal tries again is said by the error itself, since no retry policy lists the errors that are final."""

import pytest
from pydantic import TypeAdapter, ValidationError
from temporalio.exceptions import ActivityError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from activities.errors import FINAL, ErrorType, error_message, failure
from policy.episode.messages import Outcome
from workers.errors import expectations
from workflows.kit.messages import ResumeRequest


@pytest.mark.parametrize("kind", ErrorType)
def test_an_error_says_whether_it_is_final(kind: ErrorType) -> None:
    assert failure(kind, "why").non_retryable is (kind in FINAL)


def test_what_a_repetition_could_do_twice_or_lock_out_is_final() -> None:
    """S33: an unclear outcome is read before anything is repeated; more tries with wrong credentials lock an account."""
    assert {ErrorType.AMBIGUOUS, ErrorType.EXPIRED, ErrorType.UNAUTHORIZED, ErrorType.NOT_LICENSED, ErrorType.VETOED} <= FINAL


@pytest.mark.parametrize("limit", TimeoutType)
@pytest.mark.parametrize("last", [None, failure(ErrorType.TRANSIENT, "the API answers 503")])
def test_an_activity_that_ran_out_of_time_says_what_failed_else_that_no_worker_did_it(
    limit: TimeoutType, last: Exception | None
) -> None:
    timeout = ActivityTimeout("activity ScheduleToClose timeout", type=limit, last_heartbeat_details=[])
    timeout.__cause__ = last
    error = ActivityError(
        "Activity task timed out",
        scheduled_event_id=5,
        started_event_id=0,
        identity="",
        activity_type="look",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = timeout
    said = "the API answers 503" if last else "no worker has done it in time: does one serve the cluster?"
    assert error_message(error) == said


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (
            ResumeRequest,
            {"reason": "x", "question": "soon"},
            "who: expected a value, got none; question: expected a valid integer",
        ),
        (Outcome, "fine", "the argument: expected 'recovered', "),
        (int, {}, "the argument: expected a valid integer"),
        (tuple[str, ...], 3, "the argument: expected a valid tuple, got 3"),
    ],
    ids=str,
)
def test_what_a_signal_or_an_input_lacks_is_said_in_our_words(kind: type, value: object, said: str) -> None:
    """As the log of a dropped signal and the failure of a workflow have it."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    assert expectations(refused.value.errors(include_url=False), "the argument").startswith(said)
