"""One request to EC2: boto3 builds, signs and reads it; it is sent here, once, before its deadline or not at all.

By itself boto3 blocks a thread that nobody can stop, tries each address of a name with a full time-out of its own, and starts a
time-out anew with every byte that trickles in; so a command could leave long after its deadline, and be in flight with nobody
waiting for it (S20, S34). But botocore's event `before-send` takes an answer from elsewhere: so the exchange runs on the event
loop, where it can be ended at any moment, and the last look at the clocks comes after name, connection and TLS, just before the
first byte. What remains:

- A thread that looks up a name, or credentials, cannot be stopped. It is left behind; it holds no request and sends none.
- A socket is closed by a reset, so that what the kernel still holds is not delivered later. What a proxy or EC2 itself has taken
  in may be carried out after the deadline: that is why such a call is Ambiguous, and its margin is the caller's.

What EC2's own words of refusal mean is in `refusals.py`; what is asked and commanded is in `driver.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import socket
import ssl
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import aiohttp
import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials as BotoCredentials
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.httpsession import ProxyConfiguration, get_cert_path
from botocore.session import Session as BotoSession
from botocore.utils import get_environ_proxies
from yarl import URL

from activities.errors import ErrorType
from activities.power.driver import Deadline, DeviceCredentials
from activities.power.ec2.refusals import refusal
from activities.power.errors import PowerError
from policy.fence.drivers.ec2 import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN

# At DEBUG botocore writes whole requests, session tokens included, whatever level a worker's other logs have (S12).
logging.getLogger("botocore").setLevel(logging.INFO)

CALLS_AT_ONCE = 64
"""Each waits in a thread for its exchange, so it is a number of its own and not the few of the event loop's own pool."""

CLIENTS_KEPT = 64
"""One per region and endpoint, about 1 MB each beside the 30 MB of EC2's description, which all of them share."""

ANSWER_LIMIT = 8 * 1024 * 1024
"""Bytes of one answer. The largest that is asked for here, a console's output, has 64 KiB."""

_THREADS = ThreadPoolExecutor(max_workers=CALLS_AT_ONCE, thread_name_prefix="ec2")
_RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Api:
    """EC2 of one region, as one identity. device: what errors are about. Holds no connection: each call makes its own."""

    device: str
    region: str
    endpoint_url: str | None = None
    credentials: DeviceCredentials = field(default_factory=DeviceCredentials, repr=False)
    """Keys of a user; empty: the worker's own identity (its environment, profile, pod or instance)."""

    async def ask(self, act: str, operation: str, deadline: Deadline, **parameters: Any) -> dict[str, Any]:
        """The answer to a question that changes nothing. `act` is our word for it, `operation` boto3's."""
        return await self._call(act, operation, deadline, parameters, command=False)

    async def command(self, act: str, operation: str, deadline: Deadline, **parameters: Any) -> dict[str, Any]:
        """The answer to a command: it was accepted. Ambiguous where it may have been without our hearing of it."""
        return await self._call(act, operation, deadline, parameters, command=True)

    async def instance(self, act: str, instance: str, deadline: Deadline) -> dict[str, Any]:
        """All that EC2 tells of an instance. One that is not there is refused by EC2, and InvalidConfig."""
        answer = await self.ask(act, "describe_instances", deadline, InstanceIds=[instance])
        for reservation in answer.get("Reservations", ()):
            for known in reservation.get("Instances", ()):
                if known.get("InstanceId") == instance:
                    return dict(known)
        # EC2 would have refused: whoever answered in its place is no reason to think that there is no instance.
        raise self._error(ErrorType.TRANSIENT, act, f"the answer does not name {instance}")

    async def _call(
        self, act: str, operation: str, deadline: Deadline, parameters: dict[str, Any], *, command: bool
    ) -> dict[str, Any]:
        if deadline.remaining().total_seconds() <= 0:
            raise self._error(ErrorType.EXPIRED, act, "its time was over before it began")
        keys = await self._keys(act, deadline)
        attempt = _Attempt(keys, not_after=deadline.not_after if command else None)
        context = contextvars.copy_context()
        context.run(_ATTEMPT.set, attempt)
        limit = deadline.remaining().total_seconds()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit):
                answer: dict[str, Any] = await loop.run_in_executor(_THREADS, context.run, self._perform, operation, parameters)
                return answer
        except TimeoutError:
            raise self._silence(act, limit, begun=attempt.begun, command=command) from None
        except _LateError:
            raise self._error(
                ErrorType.EXPIRED, act, "the moment until which it was licensed has passed; nothing was sent"
            ) from None
        except ClientError as error:
            raise refusal(error, device=self.device, act=act, secrets=_secrets(keys), command=command) from None
        except Exception as error:  # noqa: BLE001 - whatever it was: what matters is whether the request may have left
            raise self._failure(act, error, keys, begun=attempt.begun, command=command) from None
        finally:
            await attempt.end()

    def _perform(self, operation: str, parameters: dict[str, Any]) -> Any:
        return getattr(_CLIENTS.client(self.region, self.endpoint_url), operation)(**parameters)

    async def _keys(self, act: str, deadline: Deadline) -> ReadOnlyCredentials:
        """The keys to sign with. A role's are looked up before there is a request, since that may take any time."""
        given = self.credentials.values
        if given.get(ACCESS_KEY):
            return ReadOnlyCredentials(given[ACCESS_KEY], given.get(SECRET_KEY), given.get(SESSION_TOKEN) or None)
        limit = deadline.remaining().total_seconds()
        try:
            async with asyncio.timeout(limit):
                return await asyncio.wrap_future(_OWN_IDENTITY.keys())
        except TimeoutError:
            late = f"the worker's own AWS identity was not there within {limit:.1f} s; nothing was sent"
            raise self._error(ErrorType.UNREACHABLE, act, late) from None
        except Exception as error:  # noqa: BLE001 - each of the chain's providers has failures of its own
            raise self._error(*_no_identity(act, error)) from None

    def _silence(self, act: str, limit: float, *, begun: bool, command: bool) -> PowerError:
        if begun and command:
            lost = f"it was sent and not answered within {limit:.1f} s; it may have been carried out"
            return self._error(ErrorType.AMBIGUOUS, act, lost)
        what = "EC2 did not answer" if begun else "no connection to EC2"
        return self._error(ErrorType.UNREACHABLE, act, f"{what} within {limit:.1f} s")

    def _failure(self, act: str, error: Exception, keys: ReadOnlyCredentials, *, begun: bool, command: bool) -> PowerError:
        kind = type(error).__name__
        if begun:
            # Not its text: a parser's holds the answer, whatever that was.
            if command:
                return self._error(ErrorType.AMBIGUOUS, act, f"its answer was lost ({kind}); it may have been carried out")
            lost = isinstance(error, aiohttp.ClientError | OSError)
            return self._error(
                ErrorType.UNREACHABLE if lost else ErrorType.TRANSIENT, act, f"EC2's answer was lost or unreadable ({kind})"
            )
        text = _secrets(keys).excerpt_of(f"{kind}: {error}")
        if isinstance(error, aiohttp.ClientError | HTTPClientError | OSError):
            return self._error(ErrorType.UNREACHABLE, act, f"no connection to EC2: {text}")
        if isinstance(error, BotoCoreError | ValueError):
            return self._error(ErrorType.INVALID_CONFIG, act, f"boto3 refused to send it: {text}")
        return self._error(ErrorType.TRANSIENT, act, f"nothing was sent: {text}")

    def _error(self, kind: ErrorType, act: str, text: str) -> PowerError:
        return PowerError(kind, f"{self.device}: {act!r}: {text}")


def _secrets(keys: ReadOnlyCredentials) -> DeviceCredentials:
    return DeviceCredentials(values={"id": keys.access_key or "", "secret": keys.secret_key or "", "token": keys.token or ""})


class _LateError(Exception):
    """The wall clock has passed `not_after` while the connection was made."""


class _NotSentError(Exception):
    """A request that nobody waits for any more, or botocore's second one for one call."""


class _Attempt:
    """One call on its way. Made and ended on the event loop; a thread builds the request and waits for the answer."""

    def __init__(self, keys: ReadOnlyCredentials, *, not_after: datetime | None) -> None:
        self.keys = keys
        self.begun = False
        """A byte of the request may have left."""
        self._not_after = not_after
        self._loop = asyncio.get_running_loop()
        self._exchange: asyncio.Task[Any] | None = None
        self._over = False

    def send(self, request: AWSPreparedRequest, tls: ssl.SSLContext | None, proxy: str | None) -> AWSResponse:
        """In the thread: have it sent and wait."""
        return asyncio.run_coroutine_threadsafe(self._send(request, tls, proxy), self._loop).result()

    async def end(self) -> None:
        """Whatever is under way is over when this returns, and nothing begins any more."""
        self._over = True
        if self._exchange is not None and not self._exchange.done():
            self._exchange.cancel()
            await asyncio.gather(self._exchange, return_exceptions=True)

    def begin(self, connection: aiohttp.connector.Connection) -> None:
        """The connection stands; the request is written next. Raises where it must not be any more."""
        if self._not_after is not None and datetime.now(UTC) > self._not_after:
            raise _LateError
        plug = connection.transport.get_extra_info("socket") if connection.transport is not None else None
        if plug is not None:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
        self.begun = True

    async def _send(self, request: AWSPreparedRequest, tls: ssl.SSLContext | None, proxy: str | None) -> AWSResponse:
        if self._over or self._exchange is not None:
            raise _NotSentError
        self._exchange = asyncio.current_task()
        async with (
            aiohttp.ClientSession(
                connector=_Connector(self, tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the caller's deadline holds for all of it
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
            return AWSResponse(request.url, response.status, dict(response.headers), _Body(bytes(body)))


class _Connector(aiohttp.TCPConnector):
    """For one connection that serves one request."""

    def __init__(self, attempt: _Attempt, tls: ssl.SSLContext | None) -> None:
        super().__init__(ssl=tls or True, force_close=True, limit=1)
        self._attempt = attempt

    async def connect(self, *arguments: Any, **named: Any) -> aiohttp.connector.Connection:
        """As always, then the last look at the clocks."""
        connection = await super().connect(*arguments, **named)
        try:
            self._attempt.begin(connection)
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class _Body:
    content: bytes

    def stream(self) -> Iterator[bytes]:
        """As botocore asks for it."""
        yield self.content


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


# What signs -------------------------------------------------------------------------------------------------------------

_ATTEMPT: contextvars.ContextVar[_Attempt] = contextvars.ContextVar("ec2-attempt")


class _CallersKeys(BotoCredentials):  # type: ignore[misc]  # botocore has no types
    """Stands for the keys of whichever call is being signed, so that no client, and no key of a cache, ever holds a secret."""

    def __init__(self) -> None:
        super().__init__("", "")

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return _ATTEMPT.get().keys

    def load_credentials(self) -> _CallersKeys:
        """Its own provider, too."""
        return self


class _Clients:
    """boto3's clients. To make one is neither quick (0.2 s for the first) nor safe in threads; to use it is both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._core: BotoSession | None = None
        self._kept: OrderedDict[tuple[str, str | None], Any] = OrderedDict()

    def client(self, region: str, endpoint_url: str | None) -> Any:
        """The one for a region. Signs as the caller, whoever that is, and has `_Attempt` send."""
        place = (region, endpoint_url)
        with self._lock:
            if place not in self._kept:
                self._kept[place] = self._make(region, endpoint_url)
                if len(self._kept) > CLIENTS_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(place)
            return self._kept[place]

    def _make(self, region: str, endpoint_url: str | None) -> Any:
        if self._core is None:
            self._core = BotoSession()
            self._core.register_component("credential_provider", _CallersKeys())
        bundle = self._core.get_config_variable("ca_bundle") or get_cert_path(verify=True)
        client = boto3.session.Session(botocore_session=self._core).client(
            "ec2",
            region_name=region,
            endpoint_url=endpoint_url,
            # One request per call: with more, one that hangs is sent again while it may still be carried out (S33).
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=1, read_timeout=1),
        )

        def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
            if not request.url.startswith("https:"):
                return _ATTEMPT.get().send(request, None, None)  # on the loopback, where no proxy of the environment is meant
            proxy = ProxyConfiguration(proxies=get_environ_proxies(request.url)).proxy_url_for(request.url)
            return _ATTEMPT.get().send(request, _tls(bundle), proxy)

        client.meta.events.register("before-send.ec2", send)
        return client


@cache
def _tls(bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=bundle)


class _OwnIdentity:
    """The worker's own keys by boto3's chain, which keeps them and renews them in time. One look-up at once, in a thread that may
    be left behind: a process that a profile names, say, may hang for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: BotoSession | None = None
        self._looking: Future[ReadOnlyCredentials] | None = None

    def keys(self) -> Future[ReadOnlyCredentials]:
        """The keys, as soon as they are known. All who ask meanwhile wait for the same look-up."""
        with self._lock:
            if self._looking is None or self._looking.done():
                self._looking = Future()
                self._looking.set_running_or_notify_cancel()  # so that one who stops waiting cancels it for nobody
                threading.Thread(target=self._look, args=(self._looking,), name="aws-identity", daemon=True).start()
            return self._looking

    def _look(self, found: Future[ReadOnlyCredentials]) -> None:
        try:
            if self._session is None:
                self._session = BotoSession()
                # For a role by web identity STS is asked, by default for up to 60 s, five times.
                self._session.set_default_client_config(
                    Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=3, read_timeout=5)
                )
            credentials = self._session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            found.set_result(credentials.get_frozen_credentials())
        except BaseException as error:  # noqa: BLE001 - those who wait must hear of it
            found.set_exception(error)


def _no_identity(act: str, error: Exception) -> tuple[ErrorType, str, str]:
    """Only what is known to hold no secret is repeated: a failed provider's text may be what its process wrote."""
    if isinstance(error, HTTPClientError):
        return ErrorType.UNREACHABLE, act, f"the worker's own AWS identity could not be asked for ({type(error).__name__})"
    telling = isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound)
    why = f"{error}" if telling else type(error).__name__
    return ErrorType.UNAUTHORIZED, act, f"the worker has no AWS identity of its own, and no keys were given: {why}"


_CLIENTS = _Clients()
_OWN_IDENTITY = _OwnIdentity()
