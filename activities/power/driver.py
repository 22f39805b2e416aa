"""What every power driver offers, whatever it talks to: short acts with a hard deadline, and nothing proven by them.

A driver reads or commands one device and says exactly what is known afterwards, also when it fails (`PowerError`). It never loops
until a state is reached, never repeats a command and never decides: that is the workflow's. Which driver serves which device is
in `registry.py`; those of IPMI and Redfish are `bmc/drivers.py`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from activities.errors import ErrorType
from activities.power.redaction import hidden
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
from policy.fence.drivers.contract import ParameterError
from policy.fence.power import InterfaceGroups, PowerCapability, Quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """The moment after which an act is over, whatever hangs; on the clock that all processes of a machine share.

    not_after: by the wall clock, when a command must have been sent. That other clock stands still while a machine is suspended,
    and what was to happen before a night must not happen in the morning (S20).
    """

    ends: float
    not_after: datetime | None = None

    @classmethod
    def within(cls, limit: timedelta, *, not_after: datetime | None = None) -> Deadline:
        return cls(ends=time.monotonic() + limit.total_seconds(), not_after=not_after)

    def remaining(self) -> timedelta:
        """What is left; negative once it is over."""
        return timedelta(seconds=self.ends - time.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCredentials:
    """Secret parameters of a device by their names, as read at the moment of use. None of them shows in `repr` (S12)."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def username(self) -> str:
        """The user to log in as, "" where none was given."""
        return self.values.get("username", "")

    @property
    def password(self) -> str:
        """The password, "" where none was given."""
        return self.values.get("password", "")

    def hidden_in(self, text: str) -> str:
        """The text without any of the values: a client library may repeat them in what it says."""
        return hidden(text, self.values.values())


# How a power driver says that it failed: a stable type, and one line that names the device and what was expected.
#
# Not an ApplicationError: a driver knows nothing of Temporal. `service.py` beside it turns type and text into what the
# workflow sees. The text never holds a credential (S12). What the types let the caller conclude:
#
# - InvalidConfig, TargetChanged, Expired: nothing was sent.
# - Unreachable: the device did not answer, and no command was sent.
# - Unauthorized, NotSupported, RateLimited, Transient: the device said no, and carried nothing out.
# - Ambiguous: the command may have been carried out. Wait out the deadline, read the state, then decide (S34).


class PowerError(Exception):
    """A power operation that did not end well."""

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.type = error_type


def invalid(message: str) -> PowerError:
    """The device's configuration cannot be used as written."""
    return PowerError(ErrorType.INVALID_CONFIG, message)


@contextmanager
def parameters_of(owner: str) -> Iterator[None]:
    """What is done within refuses a parameter that it can't use by its name, and says to which driver or device it belongs."""
    try:
        yield
    except ParameterError as error:
        raise invalid(f"{owner}: parameter {error.parameter!r}: {error.problem}") from None


def require_own_cloud(device: str, api: str, secret: str, *, own: bool, trusted: Collection[str]) -> None:
    """The worker's own cloud identity goes to that cloud and to what its operator trusts, and nowhere else: the author of a fence
    configuration may name any address (S40). own: whether the API is the cloud's. secret: what would serve instead."""
    if not own and api not in trusted:
        problem = f"{api} is not an API of that cloud, and not among the worker's setting worker.cloud_endpoints"
        expected = f"expected credentials ({secret}), since the worker's own identity does not go there"
        raise invalid(f"{device}: {problem}: {expected}")


class PowerDriver(Protocol):
    """One device, reachable. Each call ends by its deadline, with a result or a `PowerError`."""

    @property
    def endpoint(self) -> str:
        """Device and plug, in the spelling that is pinned for an episode (S9)."""

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """What may be asked of it; the rest raises NotSupported."""

    def session(self) -> AbstractAsyncContextManager[PowerDriver]:
        """The same device for the calls of one act: over one login, where its protocol has one. Raises
        PowerError, Transient, where none can be begun."""

    async def read(self, deadline: Deadline) -> Reading:
        """Ask for the power state. `at` is when the question was put, so the state is at least as young as that. `serves`: what
        the answer says of the machine that it is about (S39)."""

    async def off(self, deadline: Deadline) -> None:
        """Command a hard off. Returning means that the device accepted it, which proves nothing (S2)."""

    async def on(self, deadline: Deadline) -> None:
        """Command on. Returning means that the device accepted it."""


class CloudDriver(PowerDriver, Protocol):
    """A machine of a cloud account: what else its API can do. Each call is one short act, as those of PowerDriver."""

    async def console(self, deadline: Deadline) -> str:
        """The newest console (serial port) output that the cloud has kept, for the record of an episode."""

    async def volumes(self, deadline: Deadline) -> tuple[VolumeReading, ...]:
        """The volumes attached to the machine now."""

    async def read_volume(self, volume: str, deadline: Deadline) -> VolumeReading:
        """Where one volume is, wherever it is. One that the cloud does not know is `unknown`, never `available`."""

    async def detach(self, volume: str, deadline: Deadline) -> None:
        """Command its detachment from this machine, forcibly. Returning means accepted, which proves nothing: read it."""

    async def quarantine(self, deadline: Deadline) -> Quarantine:
        """Put the machine behind the configured security group alone; the answer says what to give back.

        The cloud remembers it, too, from before the first change, so that asked again after an answer that was lost or work half
        done it goes on and says the same. That a change was only carried out in part is Ambiguous.
        """

    async def lift_quarantine(self, quarantine: Quarantine | None, deadline: Deadline) -> tuple[InterfaceGroups, ...]:
        """Give every interface back what it had; None: what the cloud's own memory says. What others have changed meanwhile
        stays. Answers what is in force afterwards; may be repeated as quarantine may."""

    async def terminate(self, deadline: Deadline) -> None:
        """Command that the machine be given up for good."""

    async def given_up(self, machine: str, deadline: Deadline) -> GivenUpReading:
        """Ask whether it is, which can't be taken back any more. machine: as its cloud numbered it before, where that is known:
        another number under the name is another machine."""


class EventLogDriver(PowerDriver, Protocol):
    """A management controller that keeps a log of what its sensors saw."""

    async def event_log(self, deadline: Deadline) -> str:
        """The entries, oldest first, one a line; where not all can be read in time, a line says so."""


class DriverFactory(Protocol):
    """A driver as `registry.py` knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        """The endpoint that these parameters lead to; InvalidConfig where they are not usable."""

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> PowerDriver:
        """The driver for one device; InvalidConfig where parameters or credentials are not usable."""
