"""One request to EC2: boto3 builds, signs and reads it, a `CloudCall` sends it: botocore's event `before-send` allows for that.

The first section says what EC2's error codes mean; what is asked and commanded is in `driver.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
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

from activities.errors import ErrorType
from activities.power.cloud_call import CallStage, CloudCall, HttpRequest, reason_of, tls_of
from activities.power.driver import Deadline, DeviceCredentials, PowerError
from policy.fence.drivers.ec2 import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN

# What EC2's error codes let one conclude. The codes are of its API reference ("Error codes for the Amazon EC2 API").

UNAUTHORIZED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
RATE_LIMITED = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
# Server errors by their status, but said to be refusals: nothing was started.
NO_CAPACITY = frozenset(
    {"InsufficientCapacity", "InsufficientHostCapacity", "InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity"}
)
WRONG_STATE = frozenset({"IncorrectInstanceState", "IncorrectState"})
NOT_SUPPORTED = frozenset({"OperationNotPermitted", "UnsupportedOperation", "UnsupportedHibernationConfiguration", "Unsupported"})
UNUSABLE = ("Invalid", "Missing", "Malformed", "Unknown")

CLOCK_HINT = frozenset({"RequestExpired", "SignatureDoesNotMatch"})


class Ec2RefusedError(PowerError):
    """EC2 answered, and not with what was wanted. code: its own word, which may mean something else for another request."""

    def __init__(self, error_type: ErrorType, message: str, *, code: str) -> None:
        super().__init__(error_type, message)
        self.code = code


def refusal(error: ClientError, call: CloudCall) -> Ec2RefusedError:
    """The answer as an error of ours, without any of the secrets: a refusal may repeat what was sent."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    kind = _kind(code, status, command=call.command)
    text = f"EC2 said {call.excerpt(code) or 'nothing'} ({status})"
    if kind is not ErrorType.UNAUTHORIZED or code == "UnauthorizedOperation":
        # What is said of wrong keys shows what they were used for, down to the signed text with its session token.
        message, _, _ = str(error.response.get("Error", {}).get("Message", "")).partition("Encoded authorization failure")
        text += f": {call.excerpt(message)}"
    elif code in CLOCK_HINT:
        text += ": wrong keys, or a wrong clock on this worker"
    if kind is ErrorType.AMBIGUOUS:
        text += "; it may have been carried out"
    return Ec2RefusedError(kind, str(call.failure(kind, text)), code=code)


def _kind(code: str, status: int, *, command: bool) -> ErrorType:
    if code in UNAUTHORIZED:
        return ErrorType.UNAUTHORIZED
    if code in RATE_LIMITED:
        return ErrorType.RATE_LIMITED
    if code in NO_CAPACITY:
        return ErrorType.TRANSIENT
    if not 400 <= status < 500 or status == 408:
        # An internal error, or a proxy in between: whether it got through is not known.
        return ErrorType.AMBIGUOUS if command else ErrorType.TRANSIENT
    if code in WRONG_STATE:
        return ErrorType.TRANSIENT
    if code in NOT_SUPPORTED:
        return ErrorType.NOT_SUPPORTED
    return ErrorType.INVALID_CONFIG if code.startswith(UNUSABLE) else ErrorType.TRANSIENT


# At DEBUG botocore writes whole requests, session tokens included, whatever level a worker's other logs have (S12).
logging.getLogger("botocore").setLevel(logging.INFO)

CLIENTS_KEPT = 64
"""One per region and endpoint, about 1 MB each beside the 30 MB of EC2's description, which all of them share."""


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
        """The answer to a command: it was accepted. Ambiguous where it may have been and no answer came."""
        return await self._call(act, operation, deadline, parameters, command=True)

    async def instance(self, act: str, instance: str, deadline: Deadline) -> dict[str, Any]:
        """All that EC2 tells of an instance. One that is not there is refused by EC2, and InvalidConfig."""
        answer = await self.ask(act, "describe_instances", deadline, InstanceIds=[instance])
        for reservation in answer.get("Reservations", ()):
            for known in reservation.get("Instances", ()):
                if known.get("InstanceId") == instance:
                    return dict(known)
        # EC2 would have refused: an answer of something in its place is no reason to think that there is no instance.
        problem = f"{self.device}: {act!r}: the answer does not name {instance}"
        raise PowerError(ErrorType.TRANSIENT, problem)

    async def _call(
        self, act: str, operation: str, deadline: Deadline, parameters: dict[str, Any], *, command: bool
    ) -> dict[str, Any]:
        call = CloudCall(self.device, act, deadline, command=command)
        call.begin()
        keys = await self._keys(call)
        call.secrets = [key for key in (keys.access_key, keys.secret_key, keys.token) if key]
        context = contextvars.copy_context()
        context.run(_CALL.set, (call, keys))
        answer: dict[str, Any] = await call.run(partial(context.run, self._perform, call, operation, parameters))
        return answer

    def _perform(self, call: CloudCall, operation: str, parameters: dict[str, Any]) -> Any:
        call.stage = CallStage.CONNECTING
        try:
            return getattr(_CLIENTS.client(self.region, self.endpoint_url), operation)(**parameters)
        except PowerError:
            raise
        except ClientError as error:
            raise refusal(error, call) from None
        except Exception as error:  # noqa: BLE001 - whatever it was: what matters is whether the request may have left
            raise _failure(call, error) from None

    async def _keys(self, call: CloudCall) -> ReadOnlyCredentials:
        """The keys to sign with. A role's are looked up before there is a request, since that may take any time."""
        given = self.credentials.values
        if given.get(ACCESS_KEY):
            return ReadOnlyCredentials(given[ACCESS_KEY], given.get(SECRET_KEY), given.get(SESSION_TOKEN) or None)
        call.stage = CallStage.AUTHORIZING
        try:
            async with asyncio.timeout(call.remaining()):
                return await asyncio.wrap_future(_OWN_IDENTITY.keys())
        except TimeoutError:
            raise call.silence() from None
        except Exception as error:  # noqa: BLE001 - each of the chain's providers has failures of its own
            raise call.failure(*_no_identity(error)) from None


def _failure(call: CloudCall, error: Exception) -> PowerError:
    lost = isinstance(error, aiohttp.ClientError | HTTPClientError | OSError)
    if call.stage is CallStage.SENT:
        # Not its text: a parser's holds the answer, whatever that was.
        what = f"its answer was {'lost' if lost else 'unreadable'} ({type(error).__name__})"
        return call.broken(what) if lost or call.command else call.failure(ErrorType.TRANSIENT, what)
    if lost:
        return call.broken(f"the connection failed ({call.excerpt(reason_of(error))})")
    text = call.excerpt(f"{type(error).__name__}: {error}")
    if isinstance(error, BotoCoreError | ValueError):
        return call.failure(ErrorType.INVALID_CONFIG, f"boto3 refused to send it: {text}")
    return call.failure(ErrorType.TRANSIENT, f"nothing was sent: {text}")


# What signs -------------------------------------------------------------------------------------------------------------

_CALL: contextvars.ContextVar[tuple[CloudCall, ReadOnlyCredentials]] = contextvars.ContextVar("ec2-call")


class _CallersKeys(BotoCredentials):  # botocore has no types
    """Stands for the keys of whichever call is being signed, so that no client, and no key of a cache, ever holds a secret."""

    def __init__(self) -> None:
        super().__init__("", "")

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return _CALL.get()[1]

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
        """The one for a region. Signs as the caller and has its `CloudCall` send."""
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
            tls = proxy = None
            if request.url.startswith("https:"):  # else on the loopback, where no proxy of the environment is meant
                tls = tls_of(bundle)
                proxy = ProxyConfiguration(proxies=get_environ_proxies(request.url)).proxy_url_for(request.url)
            asked = HttpRequest(method=request.method, url=request.url, headers=request.headers, body=request.body)
            answer = _CALL.get()[0].send(asked, tls=tls, proxy=proxy)
            return AWSResponse(request.url, answer.status, dict(answer.headers), _Body(answer.body))

        client.meta.events.register("before-send.ec2", send)
        return client


@dataclass(frozen=True, slots=True)
class _Body:
    content: bytes

    def stream(self) -> Iterator[bytes]:
        """As botocore asks for it."""
        yield self.content


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
                self._looking.set_running_or_notify_cancel()  # so that a caller that stops waiting cancels it for no other
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
        except BaseException as error:  # noqa: BLE001 - the callers that wait must learn of it
            found.set_exception(error)


def _no_identity(error: Exception) -> tuple[ErrorType, str]:
    """Only what is known to hold no secret is repeated: a failed provider's text may be what its process wrote."""
    if isinstance(error, HTTPClientError):
        return ErrorType.UNREACHABLE, f"the worker's own AWS identity could not be asked for ({type(error).__name__})"
    telling = isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound)
    why = f"{error}" if telling else type(error).__name__
    return ErrorType.UNAUTHORIZED, f"the worker has no AWS identity of its own, and no keys were given: {why}"


_CLIENTS = _Clients()
_OWN_IDENTITY = _OwnIdentity()
