"""The check of fence devices: lists them, reads each, and publishes Events. It switches nothing.

It reads in bounded pages, so that no message grows with the cluster; devices travel with references to their credentials (S12).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import activity

from activities.contracts import ActivityContract
from policy.fence.device_check import DeviceAnswer, DeviceNotice, DeviceToCheck, NodeToCheck

READ_AT_ONCE = 4
"""How many devices of one site a check reads at the same time; few, because fencing comes first."""

MOST_NAMES = 10_000
"""Of nodes, in one message."""

READ_MARGIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNamesRequest:
    """Asks for the names of all nodes behind this one in their order."""

    cluster: str
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNames:
    """Names of nodes, sorted. more: there are others behind them: one message has room for so many."""

    names: tuple[str, ...]
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceDevicesRequest:
    """Asks for the devices of these nodes.

    check: when the check of all nodes began that they are asked for; of its nodes and their configuration a worker's watch tells,
    and what it does not follow is read once a minute. None: all is read live.
    """

    cluster: str
    nodes: tuple[str, ...]
    check: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceDevices:
    """One entry for each node, in the order of the request. A node that is gone has a problem."""

    nodes: tuple[NodeToCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDevicesRequest:
    """Read these devices, all of one site, at most `READ_AT_ONCE` side by side, each once and within its own deadline."""

    cluster: str
    devices: tuple[DeviceToCheck, ...]

    @property
    def longest(self) -> timedelta:
        """How long it may take, if none of them answers."""
        deadline = max((each.deadline for each in self.devices), default=timedelta(0))
        return math.ceil(len(self.devices) / READ_AT_ONCE) * deadline + READ_MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesRead:
    """One answer for each device, in the order of the request."""

    answers: tuple[DeviceAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDeviceNoticesRequest:
    """Notices about devices that stopped answering, answer again, or are configured for two nodes."""

    cluster: str
    notices: tuple[DeviceNotice, ...]


class FenceDeviceActivities(ActivityContract):
    """Served on `cluster.<name>`."""

    @activity.defn(name="device-check.list-nodes")
    @abstractmethod
    async def list_nodes(self, request: NodeNamesRequest) -> NodeNames:
        """The names of the cluster's nodes, as many as one message takes."""

    @activity.defn(name="device-check.find-devices")
    @abstractmethod
    async def find_devices(self, request: FenceDevicesRequest) -> FenceDevices:
        """The devices as an episode begun now would pin them. A node without a usable configuration fails nothing."""

    @activity.defn(name="device-check.notify")
    @abstractmethod
    async def publish_device_notices(self, request: PublishDeviceNoticesRequest) -> None:
        """Write the Events on the Nodes. A repetition writes none twice."""


class DeviceReadingActivities(ActivityContract):
    """Served on `power.<site>`."""

    @activity.defn(name="device-check.read-devices")
    @abstractmethod
    async def read_devices(self, request: ReadDevicesRequest) -> DevicesRead:
        """Read each device. A device that does not answer is no error of the request."""
