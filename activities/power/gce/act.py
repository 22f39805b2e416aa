"""One request to a cloud's API through a client that blocks: run in a thread, over by its deadline, and how far it had come.

The loop's side. What runs in the thread is `client.py`; both share a `ComputeRequest`. Why a pair: S34: a thread can't
be killed, so its socket is, and nothing is sent without asking the act. What remains after the deadline:

- a name that is being resolved holds its thread until the resolver gives up; nothing is sent then, because the last check comes
  after the connection is made;
- a request that was delivered may still be carried out by the cloud. That is what Ambiguous says, and why state is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from enum import Enum
from typing import TypeVar

from activities.errors import ErrorType
from activities.power.driver import Deadline
from activities.power.errors import PowerError
from activities.power.hiding import excerpt

Result = TypeVar("Result")

THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="gce")
"""Our own: those of `asyncio.to_thread` are few, and requests that hang together would keep everything else waiting."""

# On closing, drop what was not delivered yet. Otherwise the kernel repeats a command for minutes after we gave up on it.
_DROP, _KEEP = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)


class ComputeStage(Enum):
    """How far an act has come; the value says what was missing when it ended there."""

    WAITING = "no thread was free"
    LOADING = "the client library was still being loaded"
    AUTHORIZING = "no token was had"
    CONNECTING = "no connection was made"
    SENT = "no answer came"


class NotThereError(PowerError):
    """The API answered that there is no such thing (404): never a state, and nothing was carried out."""


class ComputeRequest:
    """One request to `endpoint`, called `operation`. A `command` changes something; anything else only asks."""

    def __init__(self, endpoint: str, operation: str, deadline: Deadline, *, command: bool) -> None:
        self.endpoint = endpoint
        self.operation = operation
        self.command = command
        self.stage = ComputeStage.WAITING
        self.deadline = deadline
        self.secrets: list[str] = []
        """What no failure may show."""
        self._limit = max(0.0, deadline.remaining().total_seconds())
        self._lock = threading.Lock()
        self._given_up = False
        self._socket: socket.socket | None = None

    def told(self, text: str) -> str:
        """What somebody else said, fit to be part of a problem: without secrets, and with an end."""
        return excerpt(text, self.secrets)

    def failure(self, kind: ErrorType, problem: str) -> PowerError:
        """A failure of this act."""
        return PowerError(kind, f"{self.endpoint}: {self.operation!r}: {problem}")

    def broken(self, problem: str) -> PowerError:
        """What may be concluded when the client failed at the stage that was reached."""
        if self.stage is not ComputeStage.SENT:
            return self.failure(ErrorType.UNREACHABLE, f"{problem}; nothing was commanded")
        if self.command:
            return self.failure(ErrorType.AMBIGUOUS, f"it was sent, but {problem}; it may have been carried out")
        return self.failure(ErrorType.UNREACHABLE, problem)

    def silence(self) -> PowerError:
        """What may be concluded when the time is over at the stage that was reached."""
        missing = f"{self.stage.value} within {self._limit:.1f} s"
        if self.stage in {ComputeStage.WAITING, ComputeStage.LOADING}:
            # Ours to blame and soon over: the next try finds the library loaded.
            return self.failure(ErrorType.TRANSIENT, f"{missing}; nothing was sent")
        return self.broken(missing)

    def begin(self) -> None:
        """Refuse what is too late already (S20)."""
        if self.deadline.remaining().total_seconds() <= 0:
            raise self.failure(ErrorType.EXPIRED, "its time was over before it began")
        self._refuse_late()

    def remaining(self) -> float:
        """Seconds that may still be waited for anything; raises when there are none."""
        seconds = self.deadline.remaining().total_seconds()
        if self._given_up or seconds <= 0:
            raise self.silence()
        return seconds

    def watch(self, connection: socket.socket) -> None:
        """From now on this is the connection to cut when the act is over."""
        with self._lock:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
            try:
                connection.settimeout(self.remaining())
            except PowerError:
                connection.close()
                raise
            self._socket = connection

    def send(self) -> None:
        """The last moment before a request goes out. After this it counts as sent, whatever happens."""
        with self._lock:
            self.remaining()
            self._refuse_late()
            self.stage = ComputeStage.SENT

    def answered(self) -> None:
        """The answer is there in full: its connection is closed in the ordinary way."""
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _KEEP)
                self._socket = None

    def give_up(self) -> None:
        """Nothing is sent from now on, and what waits for an answer wakes up and closes."""
        with self._lock:
            self._given_up = True
            if self._socket is not None:
                # Closed or, in mid-handshake, handed over already: that one ends by its own time-out, and nothing was sent.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _refuse_late(self) -> None:
        # By the wall clock too: the deadline's own stands still while the machine is suspended.
        not_after = self.deadline.not_after
        if self.command and not_after is not None and datetime.now(UTC) > not_after:
            raise self.failure(ErrorType.EXPIRED, "the time by which it was to be sent was over, so it was not sent")


async def perform(act: ComputeRequest, call: Callable[[], Result]) -> Result:
    """Run `call` in a thread until it ends or the deadline does. However this is left, nothing more is sent."""
    act.begin()
    running = asyncio.get_running_loop().run_in_executor(THREADS, call)
    running.add_done_callback(_heard)
    try:
        async with asyncio.timeout(act.deadline.remaining().total_seconds()):
            return await asyncio.shield(running)
    except TimeoutError:
        act.give_up()  # first, so that how far it came can no longer change
        raise act.silence() from None
    finally:
        act.give_up()


def _heard(running: asyncio.Future[Result]) -> None:
    """What a thread says after it was given up is no news to anybody."""
    if not running.cancelled():
        running.exception()
