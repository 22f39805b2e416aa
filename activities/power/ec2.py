"""EC2 instances as power devices: which question and which command each act is, and what an instance's state means.

The first section makes one request and says what a refusal means, the last one replaces security groups.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from activities.power.driver import Deadline, DeviceCredentials, PowerError, invalid, parameters_of, require_own_cloud
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
from policy.fence.drivers.ec2 import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, Ec2Parameters
from policy.fence.power import InterfaceGroups, PowerCapability, PowerState, Quarantine, VolumeState, host_of, instance_of

# One request to EC2, so that none is late and none is sent twice: boto3 builds, signs and reads it, a `CloudCall` sends it:
# botocore's event `before-send` allows for that.

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
            # One request per call: with more, one that hangs is sent again while it may still be carried out (S33). How often an
            # act is tried, the plan says (`tries`).
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


CONSOLE_LENGTH = 64 * 1024
"""Characters of console output, the newest: what EC2 itself keeps of it."""

# An instance that is stopping or shutting down still runs, and one that is pending may come to run at any moment.
POWER = {"running": PowerState.ON, "stopped": PowerState.OFF, "terminated": PowerState.OFF}

GOING_OFF = frozenset({"stopping", "stopped", "shutting-down", "terminated"})
COMING_ON = frozenset({"pending", "running"})
GONE = frozenset({"shutting-down", "terminated"})

HIBERNATED = "Client.UserInitiatedHibernate"
"""The reason of a stop that keeps the memory (EC2's API reference, StateReason)."""
INTERRUPTED = "Server.Spot"
"""How the reason begins where EC2 itself has stopped a Spot instance, which may be by hibernation."""

VOLUME_ID = re.compile(r"vol-[0-9a-f]{3,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Factory:
    """EC2 as the registry knows it. trusted: further APIs that are given the worker's own identity."""

    trusted: frozenset[str] = frozenset()

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        return _parsed(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> Ec2Driver:
        """The driver of one instance. Without keys it acts as the worker itself."""
        place = _parsed(parameters)
        given = {name for name, value in credentials.values.items() if value}
        if given & {ACCESS_KEY, SECRET_KEY, SESSION_TOKEN} and not given >= {ACCESS_KEY, SECRET_KEY}:
            there = ", ".join(sorted(given & {ACCESS_KEY, SECRET_KEY, SESSION_TOKEN}))
            raise invalid(f"{place.endpoint}: expected both {ACCESS_KEY} and {SECRET_KEY}, or neither; got only {there}")
        if not given:
            api_url = place.endpoint_url or ""
            require_own_cloud(place.endpoint, api_url, ACCESS_KEY, own=place.api_is_amazons, trusted=self.trusted)
        api = Ec2Api(device=place.endpoint, region=place.region, endpoint_url=place.endpoint_url, credentials=credentials)
        return Ec2Driver(place=place, api=api)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Driver:
    """One instance. Each act is one request, but for what says otherwise; only the last of those changes anything."""

    place: Ec2Parameters
    api: Ec2Api = field(repr=False)

    @property
    def endpoint(self) -> str:
        return self.place.endpoint

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """No reset: a node is fenced by its off half (S5)."""
        all_but_quarantine = {
            PowerCapability.READ,
            PowerCapability.OFF,
            PowerCapability.ON,
            PowerCapability.CONSOLE,
            PowerCapability.VOLUMES,
            PowerCapability.TERMINATE,
        }
        return frozenset(all_but_quarantine | ({PowerCapability.QUARANTINE} if self.place.quarantine_group else set()))

    def session(self) -> AbstractAsyncContextManager[Ec2Driver]:
        """Each call is a request of its own."""
        return nullcontext(self)

    async def read(self, deadline: Deadline) -> Reading:
        """The instance's state. `stopped` and `terminated` are off, but not one that is hibernated, which would go on in the
        middle of a write once it is started. One that is not there is a mistake, and not off (S3)."""
        asked_at = datetime.now(UTC)
        instance = await self._instance("read", deadline)
        state, name, hibernated = _state(instance), instance.get("PrivateDnsName"), _is_hibernated(instance)
        return Reading(
            endpoint=self.endpoint,
            state=PowerState.UNKNOWN if hibernated else POWER.get(state, PowerState.UNKNOWN),
            at=asked_at,
            detail=f"{state}, hibernated with its memory kept" if hibernated else state,
            serves=(instance_of(self.place.instance), *((host_of(name),) if name else ())),
        )

    async def off(self, deadline: Deadline) -> None:
        """Stop it by force and without asking its operating system: a hung one would only use up the time, and a shutdown that
        works would go on writing. Where EC2 says that the state is wrong, one more question tells whether it goes off anyway; and
        where it was stopped already, whether it is hibernated, which another stop does not change."""
        try:
            answer = await self.api.command(
                "off",
                "stop_instances",
                deadline,
                InstanceIds=[self.place.instance],
                Force=True,
                SkipOsShutdown=True,
                Hibernate=False,
            )
        except Ec2RefusedError as error:
            if error.code not in WRONG_STATE or await self._state_after(error, deadline) not in GOING_OFF:
                raise
            return
        self._accepted("off", answer.get("StoppingInstances"))
        if any((change.get("PreviousState") or {}).get("Name") == "stopped" for change in answer["StoppingInstances"]):
            self._refuse_hibernated("off", await self._instance("read", deadline))

    async def on(self, deadline: Deadline) -> None:
        """Start it, unless it is hibernated. One that is still stopping can't be started yet: Transient, and nothing was carried
        out."""
        self._refuse_hibernated("on", await self._instance("on", deadline))
        try:
            answer = await self.api.command("on", "start_instances", deadline, InstanceIds=[self.place.instance])
        except Ec2RefusedError as error:
            state = await self._state_after(error, deadline) if error.code in WRONG_STATE else ""
            if state in GONE:
                text = f"{self.endpoint}: 'on': the instance is {state}: it can never be started again"
                raise PowerError(ErrorType.NOT_SUPPORTED, text) from None
            if state not in COMING_ON:
                raise
            return
        self._accepted("on", answer.get("StartingInstances"))

    async def console(self, deadline: Deadline) -> str:
        """The newest output; where the type of the instance has no newest, what was kept of its last start or stop."""
        wanted = {"InstanceId": self.place.instance}
        try:
            answer = await self.api.ask("console", "get_console_output", deadline, **wanted, Latest=True)
        except Ec2RefusedError as error:
            if error.type is not ErrorType.NOT_SUPPORTED:
                raise
            answer = await self.api.ask("console", "get_console_output", deadline, **wanted)
        return str(answer.get("Output", ""))[-CONSOLE_LENGTH:]

    async def volumes(self, deadline: Deadline) -> tuple[VolumeReading, ...]:
        """The EBS volumes that the instance has, also those that are on their way from or to it. What goes with the instance is
        its own, as what it boots from: no driver of Kubernetes attaches volumes so."""
        asked_at = datetime.now(UTC)
        instance = await self._instance("volumes", deadline)
        root = instance.get("RootDeviceName")
        return tuple(
            VolumeReading(
                volume=mapping["Ebs"]["VolumeId"],
                # Whatever else is said of it: only the volume itself can say that it is available.
                state=VolumeState.UNKNOWN if mapping["Ebs"].get("Status") == "detached" else VolumeState.ATTACHED,
                at=asked_at,
                root=mapping.get("DeviceName") == root or mapping["Ebs"].get("DeleteOnTermination") is True,
                detail=f"{mapping.get('DeviceName')}, {mapping['Ebs'].get('Status')}",
            )
            for mapping in instance.get("BlockDeviceMappings", ())
            if "Ebs" in mapping
        )

    async def read_volume(self, volume: str, deadline: Deadline) -> VolumeReading:
        """Where it is. Which volume is the root only `volumes` says: a volume itself does not know."""
        asked_at = datetime.now(UTC)
        state, detail, _ = await self._volume("read-volume", volume, deadline)
        return VolumeReading(volume=volume, state=state, at=asked_at, detail=detail)

    async def detach(self, volume: str, deadline: Deadline) -> None:
        """Detach it by force from this instance and no other. Where EC2 says that it is not attached here, one more question
        tells whether that is because it is free already."""
        self._check_volume(volume)
        try:
            answer = await self.api.command(
                "detach", "detach_volume", deadline, VolumeId=volume, InstanceId=self.place.instance, Force=True
            )
        except Ec2RefusedError as error:
            if error.code not in WRONG_STATE and not error.code.startswith("InvalidAttachment"):
                raise
            await self._refuse_elsewhere(volume, error, deadline)
            return
        if answer.get("VolumeId") != volume:
            raise self._not_ec2("detach")

    async def quarantine(self, deadline: Deadline) -> Quarantine:
        """Only the configured group on every interface: as many requests as there are interfaces to change, and three.

        Interfaces that a network plugin adds later, and groups of single pods (branch interfaces), are not reached.
        """
        return await shut_off(self.api, self.place.instance, self._quarantine_group("quarantine"), deadline)

    async def lift_quarantine(self, quarantine: Quarantine | None, deadline: Deadline) -> tuple[InterfaceGroups, ...]:
        group = quarantine.group if quarantine is not None else self._quarantine_group("lift-quarantine")
        return await give_back(self.api, self.place.instance, group, quarantine, deadline)

    async def terminate(self, deadline: Deadline) -> None:
        answer = await self.api.command("terminate", "terminate_instances", deadline, InstanceIds=[self.place.instance])
        self._accepted("terminate", answer.get("TerminatingInstances"))

    async def given_up(self, machine: str, deadline: Deadline) -> GivenUpReading:  # noqa: ARG002 - no id is used again
        """`shutting-down` has no way back, and ends as `terminated`. An instance that EC2 does not know (any more) is an error:
        an id that was never there looks the same."""
        asked_at = datetime.now(UTC)
        state = _state(await self._instance("given-up", deadline))
        return GivenUpReading(endpoint=self.endpoint, given_up=state in GONE, at=asked_at, detail=state)

    async def _instance(self, act: str, deadline: Deadline) -> dict[str, Any]:
        return await self.api.instance(act, self.place.instance, deadline)

    async def _state_after(self, refused: Ec2RefusedError, deadline: Deadline) -> str:
        """The state for which a command was refused; the refusal itself stands where that cannot be read."""
        try:
            return _state(await self._instance("read", deadline))
        except PowerError:
            raise refused from None

    async def _volume(self, act: str, volume: str, deadline: Deadline) -> tuple[VolumeState, str, frozenset[str]]:
        """Its state, what EC2 says of it, and the instances it is attached to."""
        self._check_volume(volume)
        try:
            answer = await self.api.ask(act, "describe_volumes", deadline, VolumeIds=[volume])
        except Ec2RefusedError as error:
            if error.code != "InvalidVolume.NotFound":
                raise
            return VolumeState.UNKNOWN, "EC2 knows no such volume", frozenset()
        found = next((known for known in answer.get("Volumes", ()) if known.get("VolumeId") == volume), None)
        if found is None:
            raise PowerError(ErrorType.TRANSIENT, f"{self.endpoint}: {act!r}: the answer does not name {volume}")
        state, attachments = found.get("State") or "in no state", found.get("Attachments", ())
        detail = ", ".join([state, *(f"{place.get('State')} {place.get('InstanceId')}" for place in attachments)])
        holders = frozenset(str(place.get("InstanceId")) for place in attachments)
        if state == "in-use":
            return VolumeState.ATTACHED, detail, holders
        if state == "available" and not attachments:
            return VolumeState.AVAILABLE, detail, holders
        return VolumeState.UNKNOWN, detail, holders

    async def _refuse_elsewhere(self, volume: str, refused: Ec2RefusedError, deadline: Deadline) -> None:
        """Raise, unless the volume is free, or is being detached from here already."""
        try:
            state, detail, holders = await self._volume("detach", volume, deadline)
        except PowerError:
            raise refused from None
        if state is VolumeState.AVAILABLE:
            return
        if state is VolumeState.ATTACHED and self.place.instance not in holders:
            text = f"{self.endpoint}: 'detach': {volume} is not attached here: {detail}"
            raise PowerError(ErrorType.TARGET_CHANGED, text)
        if f"detaching {self.place.instance}" not in detail:
            raise refused

    def _refuse_hibernated(self, act: str, instance: Mapping[str, Any]) -> None:
        if _is_hibernated(instance):
            problem = "the instance is hibernated with its memory kept: expected a person to start or terminate it"
            raise PowerError(ErrorType.NOT_SUPPORTED, f"{self.endpoint}: {act!r}: {problem}")

    def _check_volume(self, volume: str) -> None:
        if VOLUME_ID.fullmatch(volume) is None:
            raise invalid(f"{self.endpoint}: {volume!r} is not the id of an EBS volume: expected one like vol-0123456789abcdef0")

    def _quarantine_group(self, act: str) -> str:
        if self.place.quarantine_group is None:
            text = f"{self.endpoint}: {act!r}: expected the parameter 'quarantine-group', got nothing"
            raise PowerError(ErrorType.NOT_SUPPORTED, text)
        return self.place.quarantine_group

    def _accepted(self, act: str, changes: Any) -> None:
        """A page of a proxy in between may look like an answer, too; EC2's names the instance."""
        if not any(change.get("InstanceId") == self.place.instance for change in changes or ()):
            raise self._not_ec2(act)

    def _not_ec2(self, act: str) -> PowerError:
        text = f"{self.endpoint}: {act!r}: the answer does not name the instance or volume; it may have been carried out"
        return PowerError(ErrorType.AMBIGUOUS, text)


def _parsed(parameters: Mapping[str, str]) -> Ec2Parameters:
    with parameters_of("ec2"):
        return Ec2Parameters.parse(parameters)


def _is_hibernated(instance: Mapping[str, Any]) -> bool:
    """Whether it is stopped and, once it is started, goes on where it stood. What EC2 says of a Spot instance that it has stopped
    leaves open how: then one that can be hibernated may be."""
    if _state(instance) != "stopped":
        return False
    reason = str((instance.get("StateReason") or {}).get("Code", ""))
    can_be = bool((instance.get("HibernationOptions") or {}).get("Configured"))
    return reason == HIBERNATED or (can_be and reason.startswith(INTERRUPTED))


def _state(instance: Mapping[str, Any]) -> str:
    return str(instance.get("State", {}).get("Name", "not known"))


# The security groups of an instance's network interfaces: replaced by one, and given back exactly as they were.
#
# Several requests, of which any may be lost. So the instance's own tags remember what each interface had, from before the first
# change until after the last one back, and a repeated call goes on where the last one ended: with the tag of an interface that
# is shut already, which is never overwritten; with the groups of one that is not, whatever an old tag says.

TAG = "nodewarden.io/former-groups/"
"""And the interface. Removed when its groups are back. One tag holds 256 characters, an interface up to 16 groups of 20: what is
too long goes on in a tag with `/2` behind it."""

TAG_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    """What one question tells: the groups of each interface now, and the tags that remember."""

    groups: Mapping[str, frozenset[str]]
    tags: Mapping[str, str]
    gone: bool
    """Terminated: EC2 forgets its tags by itself."""

    def remembered(self, interface: str) -> frozenset[str]:
        """What the tags say; empty where they say nothing."""
        text = " ".join(self.tags.get(key, "") for key in _keys(interface))
        return frozenset(text.split())


async def shut_off(api: Ec2Api, instance: str, group: str, deadline: Deadline) -> Quarantine:
    """Replace the groups of every interface by `group`. Answers what is to be given back."""
    act = "quarantine"
    found = await _look(api, act, instance, deadline)
    if not found.groups:
        raise PowerError(ErrorType.NOT_SUPPORTED, f"{api.device}: {act!r}: the instance has no network interface: nothing to cut")
    shut = frozenset({group})
    to_change = {interface: groups for interface, groups in found.groups.items() if groups != shut}
    # Nothing is written for those that are shut already: EC2 shows tags late, and a write would replace what ours remember.
    tags = _tags_of({name: groups for name, groups in to_change.items() if groups != found.remembered(name)}, found.tags)
    if tags:
        await api.command(act, "create_tags", deadline, Resources=[instance], Tags=tags)
    await _set_groups(api, act, dict.fromkeys(to_change, shut), deadline)
    former = {name: to_change.get(name) or found.remembered(name) or groups for name, groups in found.groups.items()}
    return Quarantine(group=group, former=_listed(former), at=datetime.now(UTC))


async def give_back(
    api: Ec2Api, instance: str, group: str, quarantine: Quarantine | None, deadline: Deadline
) -> tuple[InterfaceGroups, ...]:
    """Undo `shut_off`: by what it answered, else by what the instance remembers. Answers the groups that are then in force."""
    act = "lift-quarantine"
    found = await _look(api, act, instance, deadline)
    shut = frozenset({group})
    recorded = {entry.interface: frozenset(entry.groups) for entry in quarantine.former} if quarantine is not None else {}
    if quarantine is None and not found.tags and found.groups and set(found.groups.values()) == {shut}:
        raise invalid(f"{api.device}: {act!r}: the instance does not remember which groups it had before {group}")
    # A record of the group itself was made when the tags did not show yet, or says that it always was so.
    former = {name: groups for name, groups in recorded.items() if groups and groups != shut}
    for name in {key.removeprefix(TAG).removesuffix("/2") for key in found.tags} - former.keys():
        former[name] = found.remembered(name)
    # One that was detached meanwhile is not the instance's any more, and still shut.
    now = {**found.groups, **await _groups_of(api, act, former.keys() - found.groups.keys(), deadline)}
    back = {name: groups for name, groups in former.items() if groups and now.get(name) == shut}
    await _set_groups(api, act, back, deadline)
    if found.tags and not found.gone:
        keys = [{"Key": key} for key in sorted(found.tags)]
        await api.command(act, "delete_tags", deadline, Resources=[instance], Tags=keys)
    return _listed({**now, **back})


async def _look(api: Ec2Api, act: str, instance: str, deadline: Deadline) -> _Instance:
    known = await api.instance(act, instance, deadline)
    return _Instance(
        groups=_groups(known.get("NetworkInterfaces", ())),
        tags={tag["Key"]: tag["Value"] for tag in known.get("Tags", ()) if tag["Key"].startswith(TAG)},
        gone=known.get("State", {}).get("Name") == "terminated",
    )


async def _groups_of(api: Ec2Api, act: str, interfaces: Iterable[str], deadline: Deadline) -> dict[str, frozenset[str]]:
    """Asked by a filter, which leaves out those that are gone instead of refusing them all."""
    wanted = sorted(interfaces)
    if not wanted:
        return {}
    by_name = [{"Name": "network-interface-id", "Values": wanted}]
    answer = await api.ask(act, "describe_network_interfaces", deadline, Filters=by_name)
    return _groups(answer.get("NetworkInterfaces", ()))


async def _set_groups(api: Ec2Api, act: str, wanted: Mapping[str, frozenset[str]], deadline: Deadline) -> None:
    """One command per interface, one after the other. What fails after the first is Ambiguous: part of it is carried out."""
    done: list[str] = []
    for interface, groups in sorted(wanted.items()):
        try:
            await api.command(
                act, "modify_network_interface_attribute", deadline, NetworkInterfaceId=interface, Groups=sorted(groups)
            )
        except PowerError as error:
            if not done:
                raise
            text = f"{error}; of {len(wanted)} interfaces only {', '.join(done)} is changed for certain"
            raise PowerError(ErrorType.AMBIGUOUS, text) from None
        done.append(interface)


def _tags_of(former: Mapping[str, frozenset[str]], there: Mapping[str, str]) -> list[dict[str, str]]:
    tags = []
    for interface, groups in sorted(former.items()):
        parts = ["", ""]
        for group in sorted(groups):
            part = 0 if len(parts[0]) + 1 + len(group) <= TAG_LENGTH else 1
            parts[part] = f"{parts[part]} {group}".strip()
        # An empty one overwrites what an earlier quarantine had to say there.
        tags += [{"Key": key, "Value": part} for key, part in zip(_keys(interface), parts, strict=True) if part or key in there]
    return tags


def _keys(interface: str) -> Sequence[str]:
    return (f"{TAG}{interface}", f"{TAG}{interface}/2")


def _groups(interfaces: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    return {
        interface["NetworkInterfaceId"]: frozenset(group["GroupId"] for group in interface.get("Groups", ()))
        for interface in interfaces
    }


def _listed(groups: Mapping[str, frozenset[str]]) -> tuple[InterfaceGroups, ...]:
    return tuple(InterfaceGroups(interface=name, groups=tuple(sorted(found))) for name, found in sorted(groups.items()))
