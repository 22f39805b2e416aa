"""What is read about a node without touching it: whether its kernel dumps, and the evidence that is kept of a failure.

Of the evidence only names, sizes and hashes pass here, never the text itself: see `activities/evidence_directory.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from activities.contracts import ActivityContract
from policy.fence.kdump import KdumpReading
from policy.fence.plan import PowerDevice
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class KdumpRequest:
    """Which node, by its IP addresses (`Pinned.addresses`): a kernel that dumps has no other name."""

    addresses: tuple[str, ...]


class EvidenceActivities(ActivityContract):
    """Served on `power.<site>`. These only read. A kdump message may delay an act; what else it may mean is
    `policy/fence/kdump.py`."""

    @activity.defn(name="power-management.read-kdump")
    @abstractmethod
    async def read_kdump(self, request: KdumpRequest) -> KdumpReading:
        """The kdump messages from these addresses. NotSupported: this worker does not listen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleName:
    """Names the evidence of one incident. The names may be any text; the directory makes paths of them."""

    cluster: str
    node: str
    incident: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """One file of the evidence as it was written: its size in bytes and their SHA-256. of: the object or device that the text
    comes from (`Node/node-7`).

    cut_from: how many bytes there were before it was cut to what may be kept, 0 where it is whole.
    """

    name: str
    of: str
    size: int
    sha256: str
    at: datetime
    cut_from: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFetched:
    """One source (`of`) that is missing from the evidence, and why."""

    of: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """Keep what the API says of a machine now. node: "" for a Machine that never had one; the uids as pinned."""

    bundle: BundleName
    node: str = ""
    machine: ObjectRef | None = None
    node_uid: str = ""
    machine_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """devices: what else may be asked, at its site. room: bytes that the bundle may still take."""

    files: tuple[EvidenceFile, ...] = ()
    missing: tuple[NotFetched, ...] = ()
    devices: tuple[PowerDevice, ...] = ()
    room: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvidenceRequest:
    """Keep the console or event log of one device, in at most `room` bytes."""

    bundle: BundleName
    device: PowerDevice
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealRequest:
    """Write the manifest of the evidence: what was fetched and what is missing."""

    bundle: BundleName
    began: datetime
    files: tuple[EvidenceFile, ...]
    missing: tuple[NotFetched, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """path: of the manifest, as its worker sees it. size: of all files together, in bytes. missing: what the manifest lists as
    missing."""

    path: str
    sha256: str
    files: int
    size: int
    missing: tuple[NotFetched, ...] = ()


class EvidenceCollection(ActivityContract):
    """Served on `cluster.<name>`. Reads the cluster, writes to the directory alone.

    Errors: NotSupported (no `evidence.directory`, or the incident has its evidence already), InvalidConfig (it can't be written),
    Unreachable (it took too long).
    """

    @activity.defn(name="evidence.collect")
    @abstractmethod
    async def collect(self, request: CollectRequest) -> Collected:
        """Fetch and write what the API says. What can't be read is listed in the answer and is no error."""

    @activity.defn(name="evidence.seal")
    @abstractmethod
    async def seal(self, request: SealRequest) -> Sealed:
        """Write the manifest, once every file in it is seen to be there as it was written."""


class DeviceEvidenceActivities(ActivityContract):
    """Served on `power.<site>`."""

    @activity.defn(name="evidence.read-device")
    @abstractmethod
    async def read_device(self, request: DeviceEvidenceRequest) -> EvidenceFile:
        """Read a console or an event log, once, and write it. Errors: the device's, its credentials' and the directory's."""
