"""The worker's side of an operation in a process of its own that tells how far it has come: what its end lets one conclude.

The child (`operation_child.py`) gets one JSON object on standard input and says a line of JSON for each stage that it reaches,
`{"stage": ...}`, and a last one with the `answer` or the `error`. The stage `sent` is said just before a command goes out. So a
child that ended or was killed without an answer had commanded nothing, unless it had said that. How it is run and killed is
`fork_server.py`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

from activities.errors import ErrorType
from activities.power.driver import Deadline, DeviceCredentials, DeviceIdentity
from activities.power.errors import PowerError
from activities.power.processes.fork_server import ForkServer
from policy.episode.messages import Reading
from policy.fence.power import PowerCapability, PowerState, system_of

SENT = "sent"
"""The stage after which a command may have been carried out, whatever the child says or does not say."""

UNEXPECTED = "Unexpected"
"""What a child calls a failure that it has no type for; how far it had come decides what that means."""

KINDS = frozenset(kind.value for kind in ErrorType)

CAPABILITIES = frozenset(
    {
        PowerCapability.READ,
        PowerCapability.OFF,
        PowerCapability.ON,
        PowerCapability.IDENTITY,
        PowerCapability.EVENT_LOG,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedChild:
    """The children of one driver.

    silences: for each stage before `sent`, the furthest first, what is missing where nothing was said after it; it
    may contain `{operation}`. silence: the same where no stage was reached.
    """

    server: ForkServer
    silences: Mapping[str, str]
    silence: str

    async def perform(
        self, endpoint: str, operation: str, address: Mapping[str, Any], credentials: DeviceCredentials, deadline: Deadline
    ) -> Any:
        """Have one operation done by a child that is gone by the deadline. Returns its answer or raises PowerError.

        address: what the child must be told beside the operation, its deadline and the credentials.
        """
        limit = deadline.remaining().total_seconds()
        if limit <= 0:
            raise PowerError(ErrorType.EXPIRED, f"{endpoint}: {operation!r}: its time was over before it began")
        request = _request(operation, address, credentials, deadline)
        ended = await self.server.run(request, deadline)
        stages: set[str] = set()
        for line in _lines(ended.stdout):
            if "answer" in line:
                return line["answer"]
            if "error" in line:
                raise _failure(endpoint, operation, str(line["error"]), str(line.get("message")), stages)
            stages.add(str(line.get("stage")))
        if ended.timed_out or ended.returncode == -signal.SIGALRM:
            raise self._silence(endpoint, operation, limit, stages)
        crash = f"its process ended with status {ended.returncode} and said nothing"
        raise _failure(endpoint, operation, UNEXPECTED, crash, stages)

    def _silence(self, endpoint: str, operation: str, limit: float, stages: set[str]) -> PowerError:
        if SENT in stages:
            lost = f"{operation!r} was sent and not answered within {limit:.1f} s; it may have been carried out"
            return PowerError(ErrorType.AMBIGUOUS, f"{endpoint}: {lost}")
        reached = (missing for stage, missing in self.silences.items() if stage in stages)
        missing = next(reached, self.silence).format(operation=repr(operation))
        return PowerError(ErrorType.UNREACHABLE, f"{endpoint}: {missing} within {limit:.1f} s; nothing was commanded")


def _request(operation: str, address: Mapping[str, Any], credentials: DeviceCredentials, deadline: Deadline) -> bytes:
    return json.dumps(
        {
            "operation": operation,
            **address,
            "username": credentials.username,
            "password": credentials.password,
            "ends": deadline.ends,
            "not_after": deadline.not_after.timestamp() if deadline.not_after else None,
        }
    ).encode()


def _failure(endpoint: str, operation: str, kind: str, message: str, stages: set[str]) -> PowerError:
    text = f"{endpoint}: {operation!r}: {message}"
    if kind in KINDS:
        return PowerError(ErrorType(kind), text)
    if SENT in stages:
        return PowerError(ErrorType.AMBIGUOUS, f"{text}; it may have been carried out")
    return PowerError(ErrorType.TRANSIENT, text)


def _lines(stdout: bytes) -> Iterable[dict[str, Any]]:
    """The child's lines; one that was cut off by its death is not a line, and neither is what a library of it has printed."""
    for line in stdout.split(b"\n")[:-1]:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict):
            yield said


class DeviceAddress(Protocol):
    """Where a device listens and what its child must be told to speak to it: a dataclass with those names."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def endpoint(self) -> str:
        """The device in its one spelling."""

    @property
    def check_system(self) -> bool:
        """Whether the system UUID that it tells is its machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDriver:
    """A device that is spoken to by such children. Holds no connection: each call asks and acts in a process that is dead by the
    deadline. What a command means on the wire is said by the protocol's own module."""

    operations: ClassVar[StagedChild]

    address: DeviceAddress
    credentials: DeviceCredentials = field(repr=False)

    @property
    def endpoint(self) -> str:
        """The device in its one spelling."""
        return self.address.endpoint

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """No reset: a node is fenced by its off half (S5)."""
        return CAPABILITIES

    async def read(self, deadline: Deadline) -> Reading:
        """Read the power state; `at` is the moment before the question."""
        asked_at = datetime.now(UTC)
        answer = await self._perform("read", deadline, **self._known())
        with self._understanding("read"):
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
        await self._perform("off", deadline)

    async def on(self, deadline: Deadline) -> None:
        """On."""
        await self._perform("on", deadline)

    async def identity(self, deadline: Deadline) -> DeviceIdentity:
        """Which machine the device says that it serves."""
        answer = await self._perform("identity", deadline)
        with self._understanding("identity"):
            return DeviceIdentity(**answer)

    async def event_log(self, deadline: Deadline) -> str:
        """What the device has noted of its machine."""
        answer = await self._perform("event-log", deadline)
        with self._understanding("event-log"):
            return str(answer["text"])

    def _known(self) -> Mapping[str, Any]:
        """What the child is told of earlier readings."""
        return {}

    def _learn(self, answer: Mapping[str, Any]) -> None:
        """Keep of a reading what the next one may be told."""

    @contextmanager
    def _understanding(self, operation: str) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = f"its process gave an answer that is none ({type(error).__name__})"
            raise _failure(self.endpoint, operation, UNEXPECTED, told, set()) from error

    async def _perform(self, operation: str, deadline: Deadline, **more: Any) -> Any:
        address = asdict(self.address) | more
        return await self.operations.perform(self.endpoint, operation, address, self.credentials, deadline)
