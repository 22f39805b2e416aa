"""What it means when an API server refuses, and the one loop over conflicts of writes.

The one place where an answer becomes an error; what no answer means is said in `connection.py`, where requests are made. Every
failure is an ApplicationError of `activities.errors`. What callers often handle has a subclass of its own here, and still
crosses an activity's boundary under its stable type when no caller handles it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TypeVar

import msgspec
from temporalio.exceptions import ApplicationError

from activities.cluster.api.responses import Status
from activities.errors import ErrorType, error_type, failure

MAXIMUM_RETRY_AFTER = timedelta(minutes=1)
"""A server may ask for more; a fencing that waits looks again by itself."""
LONGEST_STATUS = 64 * 1024
LONGEST_DIGITS = 9
DENIED = ("denied the request", "denied request")
"""How the API server says that an admission webhook, or a ValidatingAdmissionPolicy, refuses."""

Found = TypeVar("Found")
Refused = TypeVar("Refused", bound=ApplicationError)


class ObjectNotFound(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """404: the object, its namespace or its whole kind is not there."""


class ObjectConflict(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """409, or the failed `test` of a JSON patch: the object is not (any more) as the write assumed. Nothing was written."""


class ObjectExists(ObjectConflict):
    """409 AlreadyExists on create."""


class VersionExpired(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """410: the resourceVersion or continue token is too old; list again."""


class VersionUnknown(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """504 "Too large resource version": the server has less history than we saw (a restored etcd), or lags behind."""


class NamespaceEnding(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """403 because the namespace is being terminated: what was asked of an object in it comes about by itself."""


class Unconnected(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """No connection to the server: nothing was sent. The connection itself has logged it (`connection.py`)."""


class AnswerTooLong(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """More than is ever held in memory at once. Of a list less can be asked for."""


class PatchInapplicable(ApplicationError):  # noqa: N818 - a state of the API, not a mistake
    """422 that names no field, nor who denied it: the patch could not be applied to the object as it is. Nothing was written."""


def typed(subclass: type[Refused], kind: ErrorType, message: str) -> Refused:
    """An error that callers handle, which crosses an activity's boundary under `kind`."""
    plain = failure(kind, message)
    return subclass(message, type=plain.type, non_retryable=plain.non_retryable, category=plain.category)


_status = msgspec.json.Decoder(Status)


async def unless_gone(reading: Awaitable[Found]) -> Found | None:
    """What is read, None where the object, its namespace or its whole kind is not there."""
    try:
        return await reading
    except ObjectNotFound:
        return None


def refusal(code: int, headers: Mapping[str, str], payload: bytes, request: str, *, writing: bool) -> ApplicationError:
    """The error for an answer of 400 and above. `request` names verb and path for people."""
    try:
        status = _status.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        # A proxy or load balancer answered: its text is all we have.
        status = Status(message=payload[:200].decode(errors="replace").strip())
    return refusal_of_status(code, status, request, writing=writing, retry_after=headers.get("Retry-After", ""))


def refusal_within(payload: bytes, request: str, *, writing: bool) -> ApplicationError | None:
    """The error that an answer of 200 holds, None for one that is no refusal: a proxy may forward the body alone."""
    if len(payload) > LONGEST_STATUS or b'"Failure"' not in payload:
        return None
    try:
        status = _status.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    if (status.kind, status.status) != ("Status", "Failure"):
        return None
    return refusal_of_status(
        status.code if status.code is not None and 400 <= status.code < 600 else 500, status, request, writing=writing
    )


def refusal_of_status(code: int, status: Status, request: str, *, writing: bool, retry_after: str = "") -> ApplicationError:
    """The same for a Status object that has been decoded already."""
    line = f"{request}: {code} {(status.reason or 'without a reason')[:100]}: {(status.message or 'no message')[:500]}"
    budgets = (cause.message or "" for cause in status.causes if cause.reason == "DisruptionBudget")
    line += "".join(f" {budget[:200]}" for budget in budgets)  # only there is the budget's name
    too_large = any(cause.reason == "ResourceVersionTooLarge" for cause in status.causes)
    too_large |= "too large resource version" in (status.message or "").lower()
    match code:
        case 403 if any(cause.reason == "NamespaceTerminating" for cause in status.causes):
            return typed(NamespaceEnding, ErrorType.TRANSIENT, line)
        case 401 | 403:
            return failure(ErrorType.FORBIDDEN, line)
        case 404:
            return typed(ObjectNotFound, ErrorType.NOT_FOUND, line)
        case 409 if status.reason == "AlreadyExists":
            return typed(ObjectExists, ErrorType.TRANSIENT, line)
        case 409:
            return typed(ObjectConflict, ErrorType.TRANSIENT, line)
        case 410:
            return typed(VersionExpired, ErrorType.TRANSIENT, line)
        case 422 if not any(cause.field for cause in status.causes) and not any(each in line for each in DENIED):
            return typed(PatchInapplicable, ErrorType.INVALID_CONFIG, line)
        case 429 | 503:
            return failure(ErrorType.RATE_LIMITED, line, retry_after=_retry_after(retry_after, status))
        case 504 if too_large:
            return typed(VersionUnknown, ErrorType.TRANSIENT, line)
        case _ if code < 500:
            return failure(ErrorType.INVALID_CONFIG, line)
        case _ if writing:
            # A time-out or crash behind the API server: etcd may have taken the write all the same.
            return failure(ErrorType.AMBIGUOUS, line)
        case _:
            return failure(ErrorType.TRANSIENT, line)


def _retry_after(header: str, status: Status) -> timedelta | None:
    """Seconds from header or body; a date in the header is no API server's habit and left to the usual back-off."""
    in_header = header.isascii() and header.isdigit()
    seconds = int(header[:LONGEST_DIGITS]) if in_header else (status.details.retry_after_seconds if status.details else None)
    return timedelta(seconds=min(seconds, MAXIMUM_RETRY_AFTER.total_seconds())) if seconds and seconds > 0 else None


# The one loop over conflicts: every reading of an object, decision on it and write of it goes through here.
#
# Others write the same objects at any moment. A write therefore names the version that was read (`resourceVersion`, or a JSON
# patch's `test`), the API server refuses one that comes too late, and what was decided is decided anew on what is there now.

ATTEMPTS = 5
"""Readings before giving up: kubelets and controllers write an object a few times a minute, not a second."""

Made = TypeVar("Made")


async def edit(what: str, once: Callable[[], Awaitable[Made]], *, may_vanish: bool = False, look_again: bool = False) -> Made:
    """What `once` makes of the object: it reads, decides, and writes in the version that was read.

    It is called anew after an ObjectConflict, so it may raise to refuse at any time before it writes. may_vanish: also where the
    object was gone by the time of the write. look_again: also after a lost answer (Ambiguous), where the next reading shows
    whether the write has arrived.

    Raises Transient after ATTEMPTS conflicts. Once an answer was lost it is Ambiguous, whatever comes later: the write may
    still be found, and that nothing was begun would be a lie (S33).
    """
    again = (ObjectConflict, ObjectNotFound) if may_vanish else (ObjectConflict,)
    lost: ApplicationError | None = None
    for _ in range(ATTEMPTS):
        try:
            return await once()
        except again:
            continue
        except ApplicationError as error:
            if look_again and error_type(error) is ErrorType.AMBIGUOUS:
                lost = error
            elif lost is None:
                raise
            else:
                raise lost from error
    raise lost or failure(ErrorType.TRANSIENT, f"{what} was changed by others {ATTEMPTS} times between our read and our write")
