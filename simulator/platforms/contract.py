"""What a simulated cluster asks of the platform its machines stand on, and how the devices of a platform may mislead.

A platform puts something that real clients talk to before the machines of a chassis (`bmc/chassis.py`), which hold the truth
about power. It knows nothing of what runs on them: that is `node.py`.
"""

from __future__ import annotations

import importlib.util
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal

from simulator.bmc.chassis import Chassis
from simulator.disks import Disks
from simulator.kubelet import NodeIdentity

BmcKind = Literal["auto", "ipmi_sim", "python"]

CLOUD_SECONDS = 0.5
"""What a simulated cloud takes to stop or to start an instance: long enough to be seen on its way."""


class PlatformError(ValueError):
    """There is no such platform, or it cannot be had here; the text says what there is or what is missing."""


class DeviceFault(StrEnum):
    """How the device that switches a node may mislead its clients; `bmc-` on every platform. Not each has them all."""

    LIES = "bmc-lies"
    """It switches off and goes on answering "on"."""
    IGNORES_OFF = "bmc-ignores-off"
    """It accepts the off and does nothing."""
    HANGS = "bmc-hangs"
    """It answers, but never to what concerns the power."""
    DEAD = "bmc-dead"
    """It answers nothing at all, as without network."""
    REFUSES = "bmc-refuses"
    """It answers every command with an error."""
    SLOW = "bmc-slow"
    """It takes three seconds over everything."""
    FOLLOWS_LATE = "bmc-follows-late"
    """It answers at once and acts three seconds later."""
    LOSES_ANSWERS = "bmc-loses-answers"
    """It carries commands out and answers none of them; questions it answers."""


MACHINE_FAULTS: Mapping[DeviceFault, Mapping[str, Any]] = {
    DeviceFault.LIES: {"answers_on_after_off": True},
    DeviceFault.IGNORES_OFF: {"ignore_off": True},
    DeviceFault.HANGS: {"hang": True},
    DeviceFault.REFUSES: {"refuse": True},
    DeviceFault.SLOW: {"delay": 3.0},
    DeviceFault.FOLLOWS_LATE: {"settle": 3.0},
    DeviceFault.LOSES_ANSWERS: {"lose_answers": True},
}
"""Those that are the machine's own (`bmc/machine.py`), in its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a platform is put into. bmc_kind: which program plays BMCs, where there are any. secret_mark: with what each password,
    key and token that it makes up begins, so that a test can look for all of them at once."""

    chassis: Chassis
    machines: Mapping[str, NodeIdentity]
    state_dir: Path
    bmc_kind: BmcKind = "auto"
    secret_mark: str = ""


class Platform(ABC):
    """`start` it once; what it started ends with the stack."""

    name: ClassVar[str]
    secret_name: ClassVar[str]
    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that must be importable here, and the packages that they come with."""
    faults: ClassVar[frozenset[DeviceFault]] = frozenset(MACHINE_FAULTS)
    """What its devices can do wrong, one node's without the others'."""
    grows: ClassVar[bool] = False
    """It can `add` machines while it runs."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    @classmethod
    def missing(cls) -> str:
        """What is not installed here and would have to be, "" where nothing is."""
        return ", ".join(package for module, package in cls.needs.items() if importlib.util.find_spec(module) is None)

    @classmethod
    def zone(cls, letter: str) -> str:
        """What the platform calls a zone."""
        return f"zone-{letter}"

    @abstractmethod
    async def start(self, stack: AsyncExitStack) -> None:
        """Put it before all machines; returns when it answers."""

    async def add(self, name: str) -> None:
        """Put it before one more machine of `Surroundings.machines`. Raises PlatformError where it cannot."""
        raise PlatformError(f"the platform {self.name} takes no machine like {name} any more once it runs")

    async def remove(self, name: str) -> None:  # noqa: B027 - a device without a machine is nothing unusual
        """The machine is gone for good: what shows instances shows this one no more, or as terminated."""

    @abstractmethod
    def secret(self) -> Mapping[str, str]:
        """What a user of it would have in a Secret, by the names that nodewarden's documentation gives the keys."""

    @abstractmethod
    def wrong_secret(self) -> Mapping[str, str]:
        """The same for a client with credentials that are no longer valid."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """How it is reached, for people and programs outside."""

    @abstractmethod
    def facts_of(self, name: str) -> dict[str, Any]:
        """What tells one node's device from the others'."""

    def disks(self) -> Disks:
        """Disks of its own for the volumes of the cluster. Raises PlatformError where it has none."""
        raise PlatformError(f"the platform {self.name} has no disks of its own")

    def provider_id(self, name: str) -> str:
        """What the kubelet of this machine is told to call it."""
        return self._around.machines[name].provider_id

    def make_up(self, length: int) -> str:
        """A new secret of so many characters. Made up for each cluster, so that none can end up in a fixture."""
        return (self._around.secret_mark + secrets.token_hex(length))[:length]

    def break_(self, name: str, fault: DeviceFault) -> None:
        """Put one fault in force; it replaces the one before."""
        self._around.chassis.machine(name).set_faults(**MACHINE_FAULTS[fault])

    def heal(self, name: str) -> None:
        """No fault any more."""
        self._around.chassis.machine(name).set_faults()
