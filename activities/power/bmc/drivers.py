"""IPMI and Redfish: the drivers' side in the worker, and what the end of a session lets one conclude.

A session is a child of its own (`child_handle.py`), which logs in once and does what it is asked until it is asked for nothing
more. It is sent a line of JSON for the device and one for each thing to do; it says a line for each stage that it reaches,
`{"stage": ...}`, and one with the `answer` or the `error`. The stage `sent` is said just before a command goes out. So a child
that ended or was killed without an answer had commanded nothing, unless it had said that since it was last asked. The child's
side is `child.py`, the protocols are `ipmi.py` and `redfish.py`, and the parameters of devices `policy/fence/drivers/`.

Login, reading and command share one bound and have none of their own: the deadline of the request, which is `act_deadline` of the
plan (`policy/fence/plan.py`). What an activity may take beyond it is in `workflows/kit/options.py`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import Field, asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol, Self

from activities.errors import ErrorType
from activities.power.bmc.child_handle import ChildHandle, ForkServer
from activities.power.driver import Deadline, DeviceCredentials, PowerError, invalid, parameters_of
from policy.episode.messages import Reading
from policy.fence.drivers.bmc import IpmiAddress, RedfishAddress, ipmi_address, redfish_address
from policy.fence.power import PowerCapability, PowerState, system_of
from policy.objects.machines import same_system

SENT = "sent"
"""The stage after which a command may have been carried out, whatever the child says or does not say."""

UNEXPECTED = "Unexpected"
"""What a child calls a failure that it has no type for; how far it had come decides what that means."""

KINDS = frozenset(kind.value for kind in ErrorType)

CAPABILITIES = frozenset({PowerCapability.READ, PowerCapability.OFF, PowerCapability.ON, PowerCapability.EVENT_LOG})

IPMI_SERVER = ForkServer("bmc.ipmi")
REDFISH_SERVER = ForkServer("bmc.redfish")

# Limits of IPMI itself: a BMC would cut or refuse longer ones, and say only "wrong password".
USERNAME_BYTES, PASSWORD_BYTES = 16, 20

MOST_GUIDS = 10_000

_guids: dict[str, dict[str, str]] = {}
"""By endpoint, the GUID that a BMC's login shows and what it means: asked for once for each device and process."""


class DeviceAddress(Protocol):
    """Where a device listens and what its child must know to speak to it: a dataclass with those names."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def endpoint(self) -> str:
        """The device in its one spelling."""

    @property
    def check_system(self) -> bool:
        """Whether the system UUID that it gives is its machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcDriver:
    """A device that is spoken to by such children. Outside of a session each call has one of its own. What a command means on the
    wire is said by the protocol's own module.

    silences: for each stage before `sent`, the furthest first, what is missing where nothing was said after it; it may contain
    `{operation}`. silence: the same where no stage was reached.
    """

    server: ClassVar[ForkServer]
    silences: ClassVar[Mapping[str, str]]
    silence: ClassVar[str]

    address: DeviceAddress
    credentials: DeviceCredentials = field(repr=False)
    dialogue: _Dialogue | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return self.address.endpoint

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """No reset: a node is fenced by its off half (S5)."""
        return CAPABILITIES

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Self]:
        """Each call in it goes through the same login. After one that has failed there is none left to go through."""
        async with self.server.child() as child:
            dialogue = _Dialogue(child, self.endpoint, self.silences, self.silence)
            dialogue.begin({**asdict(self.address), **self._known()}, self.credentials)
            yield replace(self, dialogue=dialogue)

    async def read(self, deadline: Deadline) -> Reading:
        """Read the power state; `at` is the moment before the question."""
        asked_at = datetime.now(UTC)
        answer = await self._ask("read", deadline)
        with self._understood("read"):
            self._learn(answer)
            return Reading(
                endpoint=self.endpoint,
                state=PowerState(answer["state"]),
                at=asked_at,
                detail=str(answer["detail"]),
                serves=(system_of(answer["system_uuid"]),) if answer["system_uuid"] and self.address.check_system else (),
            )

    async def off(self, deadline: Deadline) -> None:
        """Hard off, without asking the operating system."""
        await self._ask("off", deadline)

    async def on(self, deadline: Deadline) -> None:
        await self._ask("on", deadline)

    async def event_log(self, deadline: Deadline) -> str:
        """What the device has noted of its machine."""
        answer = await self._ask("event-log", deadline)
        with self._understood("event-log"):
            return str(answer["text"])

    def _known(self) -> Mapping[str, Any]:
        """What a session may know of earlier ones."""
        return {}

    def _learn(self, answer: Mapping[str, Any]) -> None:
        """Keep of a reading what later sessions may know."""

    async def _ask(self, operation: str, deadline: Deadline) -> Any:
        if deadline.remaining().total_seconds() <= 0:
            raise PowerError(ErrorType.EXPIRED, f"{self.endpoint}: {operation!r}: its time was over before it began")
        if self.dialogue is not None:
            return await self.dialogue.ask(operation, deadline)
        async with self.session() as device:
            return await device._ask(operation, deadline)

    @contextmanager
    def _understood(self, operation: str) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"its process gave an answer that is none ({type(error).__name__})"
            raise _failure(self.endpoint, operation, UNEXPECTED, problem, sent=False) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class IpmiDriver(BmcDriver):
    """One BMC, by chassis control: power down, power up; which machine it is from its GUID."""

    server: ClassVar = IPMI_SERVER
    silences: ClassVar = {
        "logged-in": "the login succeeded but {operation} was not answered",
        "reached": "the BMC answered but the login did not come to its end",
    }
    silence: ClassVar = "no answer from the BMC"

    def _known(self) -> Mapping[str, Any]:
        return {"known": _guids.get(self.endpoint, {})}

    def _learn(self, answer: Mapping[str, Any]) -> None:
        """Only of a BMC that shows the system's GUID at login: then the login is enough to see that it is the same machine."""
        login, system = answer["login_guid"], answer["system_uuid"]
        if login and system and same_system(login, system):
            if len(_guids) >= MOST_GUIDS:
                _guids.clear()
            _guids[self.endpoint] = {"login_guid": login, "system_uuid": system}
        else:
            _guids.pop(self.endpoint, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishDriver(BmcDriver):
    """One system of one service, by ComputerSystem.Reset: ForceOff; On, or ForceOn where only that is allowed."""

    server: ClassVar = REDFISH_SERVER
    silences: ClassVar = {
        "admitted": "the service described the system but {operation} did not come to its end",
        "reached": "the service was reached but did not answer",
    }
    silence: ClassVar = "no connection to the service"


@dataclass(frozen=True, slots=True)
class IpmiFactory:
    """IPMI as the registry knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        return _ipmi_address(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> IpmiDriver:
        for what, text, limit in (
            ("username", credentials.username, USERNAME_BYTES),
            ("password", credentials.password, PASSWORD_BYTES),
        ):
            if not 0 < len(text.encode()) <= limit:
                raise invalid(f"ipmi: the {what} has {len(text.encode())} bytes: expected 1 to {limit}")
        return IpmiDriver(address=_ipmi_address(parameters), credentials=credentials)


@dataclass(frozen=True, slots=True)
class RedfishFactory:
    """Redfish as the registry knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        return _redfish_address(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> RedfishDriver:
        for what, text in (("username", credentials.username), ("password", credentials.password)):
            if not text:
                raise invalid(f"redfish: the {what} is empty: expected one, since a Redfish service refuses a login without it")
        if ":" in credentials.username:
            raise invalid("redfish: the username holds a colon: expected none, since Basic authentication cannot carry it")
        return RedfishDriver(address=_redfish_address(parameters), credentials=credentials)


def _ipmi_address(parameters: Mapping[str, str]) -> IpmiAddress:
    with parameters_of("ipmi"):
        return ipmi_address(parameters)


def _redfish_address(parameters: Mapping[str, str]) -> RedfishAddress:
    with parameters_of("redfish"):
        return redfish_address(parameters)


class _Dialogue:
    """With one child, about one device: what it was asked last, and how far it has come."""

    def __init__(self, child: ChildHandle, endpoint: str, silences: Mapping[str, str], silence: str) -> None:
        self._child = child
        self._endpoint = endpoint
        self._silences = silences
        self._silence = silence
        self._stages: set[str] = set()

    def begin(self, device: Mapping[str, Any], credentials: DeviceCredentials) -> None:
        """Name the device; it is logged in to with the first thing that is asked."""
        login = {"username": credentials.username, "password": credentials.password}
        self._child.send(json.dumps({**device, **login}).encode() + b"\n")

    async def ask(self, operation: str, deadline: Deadline) -> Any:
        """Have one thing done by the deadline, or the child is killed. Returns the answer or raises PowerError."""
        limit = deadline.remaining().total_seconds()
        not_after = deadline.not_after.timestamp() if deadline.not_after else None
        asked = {"operation": operation, "ends": deadline.ends, "not_after": not_after}
        self._stages.discard(SENT)
        self._child.send(json.dumps(asked).encode() + b"\n")
        while line := await self._child.line(deadline):
            said = _json_object(line)
            if "answer" in said:
                return said["answer"]
            if "error" in said:
                raise self._failure(operation, str(said["error"]), str(said.get("message")))
            self._stages.add(str(said.get("stage")))
        returncode = await self._child.returncode(deadline)
        if not self._child.timed_out and returncode != -signal.SIGALRM:
            raise self._failure(operation, UNEXPECTED, f"its process ended with status {returncode} and said nothing")
        if SENT in self._stages:
            lost = f"{operation!r} was sent and not answered within {limit:.1f} s; it may have been carried out"
            raise PowerError(ErrorType.AMBIGUOUS, f"{self._endpoint}: {lost}")
        reached = (missing for stage, missing in self._silences.items() if stage in self._stages)
        missing = next(reached, self._silence).format(operation=repr(operation))
        raise PowerError(ErrorType.UNREACHABLE, f"{self._endpoint}: {missing} within {limit:.1f} s; nothing was commanded")

    def _failure(self, operation: str, kind: str, message: str) -> PowerError:
        return _failure(self._endpoint, operation, kind, message, sent=SENT in self._stages)


def _failure(endpoint: str, operation: str, kind: str, message: str, *, sent: bool) -> PowerError:
    text = f"{endpoint}: {operation!r}: {message}"
    if kind in KINDS:
        return PowerError(ErrorType(kind), text)
    if sent:
        return PowerError(ErrorType.AMBIGUOUS, f"{text}; it may have been carried out")
    return PowerError(ErrorType.TRANSIENT, text)


def _json_object(line: bytes) -> dict[str, Any]:
    """What a child has said; nothing where a library of it has printed something else."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
