"""What runs in a child: the session with one device, and what such a process promises. `fork_server.py` forks it.

Standard input is lines of JSON: first the device and its credentials, then a line for each thing to do, with the moment when all
of it must be over. Standard output is a line of JSON for each stage, and one with the answer or the error; `drivers.py` in the
worker reads them. All that is asked goes through one login. After an error, and once nothing more is asked, the session ends.

- It is dead by the deadline of what it was last asked, even if the worker was killed or a library hangs: the alarm is set before
  anything else, and never caught.
- A command goes out after `announce_command` and after nothing else, so never after its deadline or the wall clock's
  `not_after`, and never if nothing reads any more what is said here.
- Credentials come in by the pipe only and are in no line and no error text.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - what host names go through; each child would load it anew, which takes longer than a login
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

from activities.power.redaction import hidden

REQUEST_TIMEOUT = 10.0
"""Seconds in which the first line must have come; only a worker that died or stands still fails this."""


class DeviceSession(Protocol):
    """A device that was logged in to, or, where the protocol has no login, that will be with each request."""

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what a line asks for: its `operation`, by its `ends`. Raises OperationError."""

    def close(self) -> None:
        """Log out. Waits for nothing."""


class OperationError(Exception):
    """How the operation failed: a stable type of `activities/power/driver.py` by name, and the line for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def write_line(**line: Any) -> None:
    """Write a line for the worker, at once and unbuffered. Fails when the worker is gone, and so does what comes after it."""
    os.write(1, json.dumps(line).encode() + b"\n")


def announce_command(asked: dict[str, Any]) -> None:
    """Say `sent`, or refuse because it is too late to send (S20, S45)."""
    if time.monotonic() >= asked["ends"]:
        _expired()
    # By the wall clock too: the other one, and the alarm with it, stands still while the machine is suspended.
    if asked["not_after"] is not None and time.time() > asked["not_after"]:
        raise OperationError("Expired", "the time by which it was to be sent was over, so it was not sent")
    write_line(stage="sent")


def credentials_in(device: dict[str, Any]) -> list[str]:
    return [device["password"], device["username"]]


def run(log_in: Callable[[dict[str, Any]], DeviceSession]) -> None:
    """Have everything that is asked answered. Errors show none of the secrets."""
    _end_within(REQUEST_TIMEOUT)
    secrets: list[str] = []
    session: DeviceSession | None = None
    try:
        lines = _lines()
        device = json.loads(next(lines))
        secrets = credentials_in(device)
        for line in lines:
            asked = json.loads(line)
            remaining = asked["ends"] - time.monotonic()
            if remaining <= 0:
                _expired()
            _end_within(remaining)
            session = session or log_in(device)
            write_line(answer=session.answer(asked))
    except OperationError as error:
        write_line(error=error.kind, message=hidden(str(error), secrets))
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker must learn of it, and without the secrets
        write_line(error="Unexpected", message=hidden(f"{type(error).__name__}: {error}", secrets))
        return  # in the middle of a question, perhaps: logging out could hang
    if session is not None:
        session.close()


def _lines() -> Iterator[bytes]:
    """Each line as it comes. Raises ValueError for one that was not written to its end."""
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        raise ValueError("the request ends in the middle of a line")


def _end_within(seconds: float) -> None:
    """Set the alarm. Its default action cannot hang, and nothing here catches it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _expired() -> NoReturn:
    raise OperationError("Expired", "the deadline was over before the command could be sent, so it was not sent")
