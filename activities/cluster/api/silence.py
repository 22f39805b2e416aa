"""What it means that an API server gave no answer, or no whole one. What its answers mean is `refusals.py`."""

from __future__ import annotations

import os

import aiohttp
from temporalio.exceptions import ApplicationError

from activities.cluster.api.refusals import unconnected
from activities.errors import ErrorType, failure

LONGEST_REASON = 300

UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""What a client raises before anything was sent."""


def broken(error: BaseException, request: str, *, writing: bool) -> ApplicationError:
    """The error for a request that got no (whole) answer."""
    what = f"{request}: {reason_of(error)}"
    if isinstance(error, aiohttp.InvalidURL):
        return failure(ErrorType.INVALID_CONFIG, f"{request}: not an address")
    if isinstance(error, UNCONNECTED):
        return unconnected(what)  # never sent
    if isinstance(error, TimeoutError):
        what = f"{request}: no answer in time"
    if writing:
        return failure(ErrorType.AMBIGUOUS, f"{what}; it may have been carried out")
    return failure(ErrorType.UNREACHABLE, what)


def reason_of(error: BaseException) -> str:
    """Why there is no answer, in the words of the operating system. The client's own hold whole objects and their addresses."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port} is not trusted"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        why = os.strerror(number) if number > 0 else error.os_error.strerror or type(error.os_error).__name__
        return f"no connection to {error.host}:{error.port} ({why})"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    return str(error)[:LONGEST_REASON] or type(error).__name__
