"""One call to a cloud's API by packages that block: in a thread, over by its deadline, its request sent once or not at all.

By themselves the clouds' clients block a thread that can't be stopped, repeat what hangs, and start a time-out anew with every
byte that trickles in; so a command could leave long after its deadline, and be in flight with nothing waiting for it (S20, S34).
Here they sign and read only. The exchange itself runs on the event loop, where it can be ended at any moment, and the last look
at the clocks comes after name, connection and TLS, just before the first byte. What remains:

- A thread that looks up a name, or credentials, cannot be stopped. It is left behind; it holds no request and sends none.
- A socket is closed by a reset, so that what the kernel still holds is not delivered later. What a proxy or the cloud itself has
  taken in may be carried out after the deadline: that is why such a call is Ambiguous, and its margin is the caller's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from activities.errors import ErrorType
from activities.power.driver import Deadline, PowerError
from activities.power.redaction import excerpt

Result = TypeVar("Result")

CALLS_AT_ONCE = 64
"""Each waits in a thread for its exchange, so it is a number of its own and not the few of the event loop's own pool."""

ANSWER_LIMIT = 8 * 1024 * 1024
"""Bytes of one answer. The largest that is asked for, a console's output, has 64 KiB."""

THREADS = ThreadPoolExecutor(max_workers=CALLS_AT_ONCE, thread_name_prefix="cloud")
_RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)


class CallStage(Enum):
    """How far a call has come; the value says what was missing when it ended there."""

    WAITING = "no thread was free"
    LOADING = "the client library was still being loaded"
    AUTHORIZING = "no credentials were had"
    CONNECTING = "no connection was made"
    SENT = "no answer came"


class NotSentError(Exception):
    """A request of a call that is over, or a client's second one for one call."""


class NotThereError(PowerError):
    """The API answered that there is no such thing (404): never a state, and nothing was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """As a client has built and signed it."""

    method: str
    url: str
    headers: Mapping[str, str | bytes]
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """All of it, decompressed. headers: found by their names in any case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class CloudCall:
    """One call about `device`, named `operation` to people. Made on the event loop. A `command` changes something; anything else
    only asks."""

    def __init__(self, device: str, operation: str, deadline: Deadline, *, command: bool) -> None:
        self.device = device
        self.operation = operation
        self.command = command
        self.stage = CallStage.WAITING
        self.secrets: Sequence[str] = ()
        """What no failure may show."""
        self._deadline = deadline
        self._limit = max(0.0, deadline.remaining().total_seconds())
        self._loop = asyncio.get_running_loop()
        self._exchange: asyncio.Task[Any] | None = None
        self._over = False

    def begin(self) -> None:
        """Raises Expired where it is too late already (S20)."""
        if self._deadline.remaining().total_seconds() <= 0:
            raise self.failure(ErrorType.EXPIRED, "its time was over before it began")
        self._refuse_late()

    async def run(self, work: Callable[[], Result]) -> Result:
        """`work` in a thread, until it ends or the deadline does. However this is left, nothing more is sent.

        Raises Expired where it is too late already, and what `silence` says where time runs out.
        """
        self.begin()
        try:
            async with asyncio.timeout(self.remaining()):
                return await self._loop.run_in_executor(THREADS, work)
        except TimeoutError:
            raise self.silence() from None
        finally:
            await self._end()

    def send(
        self,
        request: HttpRequest,
        *,
        tls: ssl.SSLContext | None,
        proxy: str | None,
        itself: bool = True,
        limit: float | None = None,
    ) -> HttpAnswer:
        """In the thread: have a request sent, and wait. itself: it is the call's own, and not one for a token. limit: seconds,
        where a token is waited for with less patience than the call.

        Raises NotSentError, TimeoutError after `limit`, Expired for a command after its moment, aiohttp's own errors.
        """
        exchange = self._send(request, tls, proxy, itself=itself, limit=limit)
        return asyncio.run_coroutine_threadsafe(exchange, self._loop).result()

    def remaining(self) -> float:
        """Seconds that may still be waited for anything. Raises `silence` where there are none."""
        seconds = self._deadline.remaining().total_seconds()
        if self._over or seconds <= 0:
            raise self.silence()
        return seconds

    def excerpt(self, text: str) -> str:
        """What the other side said, fit to be part of a problem: without secrets, and with an end."""
        return excerpt(text, self.secrets)

    def failure(self, kind: ErrorType, problem: str) -> PowerError:
        return PowerError(kind, f"{self.device}: {self.operation!r}: {problem}")

    def broken(self, problem: str) -> PowerError:
        """What may be concluded when the client failed at the stage that was reached."""
        if self.stage is not CallStage.SENT:
            return self.failure(ErrorType.UNREACHABLE, f"{problem}; nothing was commanded")
        if self.command:
            return self.failure(ErrorType.AMBIGUOUS, f"it was sent, but {problem}; it may have been carried out")
        return self.failure(ErrorType.UNREACHABLE, problem)

    def silence(self) -> PowerError:
        """What may be concluded when the time is over at the stage that was reached."""
        missing = f"{self.stage.value} within {self._limit:.1f} s"
        if self.stage in {CallStage.WAITING, CallStage.LOADING}:
            # Ours to blame and soon over: the next try finds the library loaded.
            return self.failure(ErrorType.TRANSIENT, f"{missing}; nothing was sent")
        return self.broken(missing)

    async def _end(self) -> None:
        """Whatever is under way is over when this returns, and nothing begins any more."""
        self._over = True
        if self._exchange is not None and not self._exchange.done():
            self._exchange.cancel()
            await asyncio.gather(self._exchange, return_exceptions=True)

    def _refuse_late(self) -> None:
        # By the wall clock too: the deadline's own stands still while the machine is suspended.
        not_after = self._deadline.not_after
        if self.command and not_after is not None and datetime.now(UTC) > not_after:
            raise self.failure(ErrorType.EXPIRED, "the time by which it was to be sent was over, so it was not sent")

    def _begin(self, connection: aiohttp.connector.Connection, *, itself: bool) -> None:
        """The connection stands; the request is written next. Raises where it must not be any more."""
        plug = connection.transport.get_extra_info("socket") if connection.transport is not None else None
        if plug is not None:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
        if itself:
            self._refuse_late()
            self.stage = CallStage.SENT

    async def _send(
        self, request: HttpRequest, tls: ssl.SSLContext | None, proxy: str | None, *, itself: bool, limit: float | None
    ) -> HttpAnswer:
        if self._over or self.stage is CallStage.SENT:
            raise NotSentError
        self._exchange = asyncio.current_task()
        async with (
            asyncio.timeout(limit),
            aiohttp.ClientSession(
                connector=_Connector(self, tls, itself=itself),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the call's deadline holds for all of it
            ) as http,
            http.request(
                request.method,
                URL(request.url, encoded=True),
                headers={name: _text(value) for name, value in request.headers.items()},
                data=request.body,
                allow_redirects=False,
                proxy=proxy,
            ) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > ANSWER_LIMIT:
                    raise aiohttp.ClientPayloadError(f"an answer of more than {ANSWER_LIMIT} bytes")
            return HttpAnswer(status=response.status, reason=response.reason or "", headers=response.headers, body=bytes(body))


class _Connector(aiohttp.TCPConnector):
    """For one connection that serves one request: a stale one never leaves open whether a command has arrived."""

    def __init__(self, call: CloudCall, tls: ssl.SSLContext | None, *, itself: bool) -> None:
        super().__init__(ssl=tls or True, force_close=True, limit=1)
        self._call, self._itself = call, itself

    async def connect(self, *arguments: Any, **named: Any) -> aiohttp.connector.Connection:
        """As always, then the last look at the clocks."""
        connection = await super().connect(*arguments, **named)
        try:
            self._call._begin(connection, itself=self._itself)
        except BaseException:
            connection.close()
            raise
        return connection


@cache
def tls_of(bundle: str) -> ssl.SSLContext:
    """Trusts the authorities in that file."""
    return ssl.create_default_context(cafile=bundle)


def reason_of(error: BaseException) -> str:
    """What the system said of a failed connection. The clients' own texts repeat whole URLs."""
    links = [error]
    for link in links:  # which grows meanwhile
        if isinstance(link, ssl.SSLError):
            return link.strerror or str(link.reason)
        if isinstance(link, OSError) and link.errno and link.errno > 0:
            return os.strerror(link.errno)
        if isinstance(link, OSError) and link.strerror:  # of a name that can't be resolved
            return link.strerror
        below = (link.__cause__, link.__context__, getattr(link, "reason", None), *link.args)
        links += [item for item in below if isinstance(item, BaseException) and item not in links]
    return type(error).__name__


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
