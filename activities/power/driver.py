"""What every power driver offers, whatever it talks to: one short act with a hard deadline, and nothing proven by it.

A driver reads or commands one device and says exactly what is known afterwards (`errors.py`). It never loops until a
state is reached, never repeats a command and never decides: that is the workflow's. Which driver serves which device is
in `registry.py`; `ipmi/driver.py` is the first of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from activities.power.hiding import hidden
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
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
        """The deadline `limit` from now."""
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
        """The text without any of the values: what a client library says may repeat what it was told."""
        return hidden(text, self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """Which machine the device says that it serves; None where it does not say. For comparing, never for acting on."""

    system_uuid: str | None = None
    serial: str | None = None
    product: str | None = None
    manufacturer: str | None = None
    firmware: str | None = None
    detail: str = ""


class PowerDriver(Protocol):
    """One device, reachable. Each call ends by its deadline, with a result or with an error of `errors.py`."""

    @property
    def endpoint(self) -> str:
        """Device and plug, in the spelling that is pinned for an episode (S9)."""

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """What may be asked of it; the rest raises NotSupported."""

    async def read(self, deadline: Deadline) -> Reading:
        """Ask for the power state. `at` is when the question was put, so the state is at least as young as that. `serves`: what
        the answer tells of whose state it is (S39)."""

    async def off(self, deadline: Deadline) -> None:
        """Command a hard off. Returning means that the device accepted it, which proves nothing (S2)."""

    async def on(self, deadline: Deadline) -> None:
        """Command on. Returning means that the device accepted it."""

    async def identity(self, deadline: Deadline) -> DeviceIdentity:
        """Ask which machine this is."""


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
        """Give every interface back what it had; None has the cloud's own memory tell. What somebody else has changed meanwhile
        stays. Answers what is in force afterwards; may be repeated as quarantine may."""

    async def terminate(self, deadline: Deadline) -> None:
        """Command that the machine be given up for good."""

    async def given_up(self, machine: str, deadline: Deadline) -> GivenUpReading:
        """Ask whether it is, which can't be taken back any more. machine: the serial of its `identity` before, where it has one:
        another one under the name is another machine."""


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
