"""Whether Temporal tries again is said by the error itself, since no retry policy lists the errors that are final."""

import pytest

from activities.errors import FINAL, ErrorType, failure


@pytest.mark.parametrize("kind", ErrorType)
def test_an_error_says_whether_it_is_final(kind: ErrorType) -> None:
    assert failure(kind, "why").non_retryable is (kind in FINAL)


def test_what_a_repetition_could_do_twice_or_lock_out_is_final() -> None:
    """S33: an unclear outcome is read before anything is repeated; more tries with wrong credentials lock an account."""
    assert {ErrorType.AMBIGUOUS, ErrorType.EXPIRED, ErrorType.UNAUTHORIZED, ErrorType.NOT_LICENSED, ErrorType.VETOED} <= FINAL
