"""Acts on one device: power, or a path to storage and network. Each call is one short act with a hard deadline of its own; the
loops are in the workflow."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import activity

from activities.contracts import ActivityContract
from activities.contracts.target import Target
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
from policy.fence.plan import PowerDevice
from policy.fence.power import InterfaceGroups, PowerState, Quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCommand:
    """One act on one device. It is not begun after `not_after` and is killed after `deadline`, whatever hangs. licence: of the
    last look before a command, good until `not_after` (S42); to read needs none."""

    target: Target
    device: PowerDevice
    deadline: timedelta
    not_after: datetime | None = None
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRequest(DeviceCommand):
    """read_back: how long, once a command has ended, the device is asked whether it has worked; zero: not at all."""

    read_back: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """A command that ended. `before`: the state read just before it; `sent` False: the state made it needless.

    It proves nothing: a proof is a reading that was asked for after the command had ended (S2). machine: the cloud's own number
    of the machine that was commanded; "" if that is not known. after: the latest such reading within `read_back`; None if the
    device was not asked or has not answered, which says nothing about the command.
    """

    sent: bool
    before: PowerState
    detail: str = ""
    machine: str = ""
    after: Reading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpRequest:
    """Read whether a cloud machine is given up. machine: as in the `CommandResult` of the command that gave it up."""

    target: Target
    device: PowerDevice
    deadline: timedelta
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRequest(DeviceCommand):
    """Read or detach one volume of a cloud machine."""

    volume: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftRequest(DeviceCommand):
    """quarantine: what to undo; None: the quarantine that the cloud itself remembers (of an earlier episode, or of an answer
    that was lost)."""

    quarantine: Quarantine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineLifted:
    """The security groups in force now, by interface."""

    groups: tuple[InterfaceGroups, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumesResult:
    """The volumes attached to a machine."""

    volumes: tuple[VolumeReading, ...]


class PowerActivities(ActivityContract):
    """Served on `power.<site>`. State-changing ones: one attempt, never repeated blindly (S33, S34).

    Errors: Unauthorized, InvalidConfig, NotSupported, NotLicensed, OwnNode (final); Unreachable, RateLimited (nothing was sent);
    Ambiguous (it may have been carried out: wait out the deadline, read, decide).
    """

    @activity.defn(name="power-management.read-power")
    @abstractmethod
    async def read_power(self, request: PowerRequest) -> Reading:
        """Read the power state."""

    @activity.defn(name="power-management.power-off")
    @abstractmethod
    async def power_off(self, request: PowerRequest) -> CommandResult:
        """Command off (hard, not a soft shutdown)."""

    @activity.defn(name="power-management.power-on")
    @abstractmethod
    async def power_on(self, request: PowerRequest) -> CommandResult:
        """Read, then command on unless it is on already."""

    @activity.defn(name="power-management.terminate")
    @abstractmethod
    async def terminate(self, request: PowerRequest) -> CommandResult:
        """Give a cloud machine up for good. The caller has proven it off."""

    @activity.defn(name="power-management.read-given-up")
    @abstractmethod
    async def read_given_up(self, request: GivenUpRequest) -> GivenUpReading:
        """Whether the cloud says that the machine is given up, or on its way there with no way back."""

    @activity.defn(name="isolation.read-path")
    @abstractmethod
    async def read_path(self, request: PowerRequest) -> Reading:
        """Read the state of a path (a switch port): off is cut."""

    @activity.defn(name="isolation.cut-path")
    @abstractmethod
    async def cut_path(self, request: PowerRequest) -> CommandResult:
        """Command a path off."""

    @activity.defn(name="recovery.restore-path")
    @abstractmethod
    async def restore_path(self, request: PowerRequest) -> CommandResult:
        """Read, then command a path on unless it is on already."""

    @activity.defn(name="isolation.quarantine")
    @abstractmethod
    async def quarantine(self, request: PowerRequest) -> Quarantine:
        """Put a cloud machine behind its quarantine group alone. May be repeated; licenses nothing."""

    @activity.defn(name="recovery.lift-quarantine")
    @abstractmethod
    async def lift_quarantine(self, request: LiftRequest) -> QuarantineLifted:
        """Give a cloud machine its security groups back. May be repeated."""

    @activity.defn(name="isolation.list-volumes")
    @abstractmethod
    async def list_volumes(self, request: PowerRequest) -> VolumesResult:
        """Which volumes are attached to the machine. NotSupported where the driver knows of none."""

    @activity.defn(name="isolation.detach-volume")
    @abstractmethod
    async def detach_volume(self, request: VolumeRequest) -> CommandResult:
        """Command that a volume be detached by force."""

    @activity.defn(name="isolation.read-volume")
    @abstractmethod
    async def read_volume(self, request: VolumeRequest) -> VolumeReading:
        """Where one volume is."""
