"""The error types that activities raise and workflows switch on: one list, one place that decides what is final.

`type` strings are a stable interface. Which client error becomes which type is decided once, where the client is called
(`activities/cluster/api/connection.py`, `activities/power/service.py`); workflows ask `error_type` and never read texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory
from temporalio.exceptions import TimeoutError as ActivityTimeout

from policy.values.errors import PolicyError


class ErrorType(StrEnum):
    """Stable names of failures. See `FINAL` for those that repetition cannot mend."""

    INVALID_CONFIG = "InvalidConfig"
    UNAUTHORIZED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    TARGET_CHANGED = "TargetChanged"
    NOT_FOUND = "NotFound"
    VETOED = "Vetoed"
    OWN_NODE = "OwnNode"
    WRONG_CLOCK = "WrongClock"
    NOT_SUPPORTED = "NotSupported"
    NOT_PROVEN = "NotProven"
    NOT_LICENSED = "NotLicensed"
    UNREACHABLE = "Unreachable"
    RATE_LIMITED = "RateLimited"
    TRANSIENT = "Transient"
    AMBIGUOUS = "Ambiguous"
    EXPIRED = "Expired"


FINAL = frozenset(
    {
        ErrorType.INVALID_CONFIG,
        ErrorType.UNAUTHORIZED,
        ErrorType.TARGET_CHANGED,
        ErrorType.NOT_FOUND,
        ErrorType.VETOED,
        ErrorType.OWN_NODE,
        ErrorType.NOT_SUPPORTED,
        ErrorType.NOT_PROVEN,
        ErrorType.NOT_LICENSED,
        ErrorType.AMBIGUOUS,
        ErrorType.EXPIRED,
    }
)
"""Never retried by policy. Ambiguous and Expired are not failures of the target: the workflow reads the state and decides.
NotLicensed may pass (a scanner that has just moved): another try is the workflow's, after another look. Unauthorized is what a
device or a cloud says: more tries would lock the account. Forbidden is what the Kubernetes API says to a caller without the
right, and for a moment after its start to everybody: it is tried again for a minute (`workflows/kit/interrupts.py`), and
nothing was done. So it is with WrongClock, by which a worker leaves something to another one."""


_BENIGN = frozenset(
    {
        ErrorType.RATE_LIMITED,
        ErrorType.TRANSIENT,
        ErrorType.EXPIRED,
        ErrorType.WRONG_CLOCK,
        ErrorType.UNREACHABLE,
        ErrorType.FORBIDDEN,
        ErrorType.NOT_SUPPORTED,
    }
)
"""What ordinary life brings: the workflow notes it, and an outage is logged where it is noticed, not once for each attempt."""


def failure(kind: ErrorType, message: str, *details: Any, retry_after: timedelta | None = None) -> ApplicationError:
    """The ApplicationError to raise in an activity. `retry_after` is a server's own Retry-After."""
    return ApplicationError(
        message,
        *details,
        type=kind.value,
        non_retryable=kind in FINAL,
        next_retry_delay=retry_after,
        category=ApplicationErrorCategory.BENIGN if kind in _BENIGN else ApplicationErrorCategory.UNSPECIFIED,
    )


@contextmanager
def as_invalid_config() -> Iterator[None]:
    """What policy refuses is a configuration that can't be used, in its words."""
    try:
        yield
    except PolicyError as error:
        raise failure(ErrorType.INVALID_CONFIG, str(error)) from error


def error_type(error: BaseException) -> ErrorType | None:
    """The type of the first ApplicationError in the chain of causes, None where there is none of ours."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError):
            return ErrorType(cause.type) if cause.type in _NAMES else None
        cause = cause.__cause__
    return None


def error_message(error: BaseException) -> str:
    """The one line for people: the outermost application error's own text without its type, else the error's."""
    chain = _chain(error)
    messages: Sequence[str] = [link.message for link in chain if isinstance(link, ApplicationError)]
    if not messages and isinstance(error, ActivityError) and isinstance(chain[-1], ActivityTimeout):
        return "no worker has done it in time: does one serve the cluster?"
    return messages[0] if messages else str(error)


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        links.append(cause)
        cause = cause.__cause__
    return links


_NAMES = frozenset(kind.value for kind in ErrorType)
