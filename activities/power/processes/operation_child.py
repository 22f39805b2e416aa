"""What every power operation in a process of its own promises. `operation_server.py` forks that process.

Standard input is one JSON object: the operation, where, the credentials, and when all must be over. Standard output is a line of
JSON for each stage and a last one with the answer or the error; `staged_child.py` in the worker reads them.

- It is dead by the deadline even if the worker was killed or a library hangs: the alarm set first is never caught.
- A command goes out after `announce_command` and after nothing else, so never after the deadline or the wall clock's
  `not_after`, and never if nobody reads any more what it says.
- Credentials come in by the pipe only and are in no line and no error text.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - what host names go through; each child would load it anew, which takes longer than a login
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from activities.power.hiding import hidden

REQUEST_TIMEOUT = 10.0
"""Seconds in which the request must have come; only a worker that died or stands still fails this."""


class OperationError(Exception):
    """How the operation failed: a stable type of `errors.py` by name, and the line for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def say(**line: Any) -> None:
    """Tell the worker, at once and unbuffered. Fails when nobody listens any more, and so does what comes after it."""
    os.write(1, json.dumps(line).encode() + b"\n")


def announce_command(request: dict[str, Any]) -> None:
    """Say `sent`, or refuse because it is too late to send."""
    if time.monotonic() >= request["ends"]:
        _expired()
    # By the wall clock too: the other one, and the alarm with it, stands still while the machine is suspended.
    if request["not_after"] is not None and time.time() > request["not_after"]:
        raise OperationError("Expired", "the time by which it was to be sent was over, so it was not sent")
    say(stage="sent")


def credentials_in(request: dict[str, Any]) -> list[str]:
    """What no line may show."""
    return [request["password"], request["username"]]


def run(perform: Callable[[dict[str, Any]], None]) -> None:
    """Have `perform` carry out the request and say the answer. Its errors show none of the secrets."""
    _end_within(REQUEST_TIMEOUT)
    secrets: list[str] = []
    try:
        request = _read_request()
        secrets = credentials_in(request)
        perform(request)
    except OperationError as error:
        say(error=error.kind, message=hidden(str(error), secrets))
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker must hear of it, and without the secrets
        say(error="Unexpected", message=hidden(f"{type(error).__name__}: {error}", secrets))


def _end_within(seconds: float) -> None:
    """Set the alarm. Its default action cannot hang, and nobody here catches it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _read_request() -> dict[str, Any]:
    """The request, with the alarm set that ends this process by its deadline."""
    request: dict[str, Any] = json.loads(b"".join(iter(lambda: os.read(0, 65536), b"")))
    remaining = request["ends"] - time.monotonic()
    if remaining <= 0:
        _expired()
    _end_within(remaining)
    return request


def _expired() -> NoReturn:
    raise OperationError("Expired", "the deadline was over before the command could be sent, so it was not sent")
