"""What people and programs send to running workflows, and what they answer. Plain JSON objects, so that `temporal workflow
update` and other languages' SDKs can send them too. Only ever grown by fields with defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from policy.episode.modes import REPAIRS, ClusterModes
from policy.episode.node_action import ActionName, CommandAuthor
from policy.episode.permits import HoldOff, Permit, PermitRequest
from policy.fence.device_check import CheckedNode, DeviceMemory, Hosts
from policy.history.spells import Spell
from policy.scan.admission import Refused
from policy.scan.pauses import Pause
from policy.scan.scan_report import ScanReport
from policy.values.times import written

if TYPE_CHECKING:
    from temporalio.exceptions import ApplicationError


def invalid_input(problem: str) -> ApplicationError:
    """How a workflow fails at once that can't be run with its input, or under its id."""
    # Commands that judge files read these messages, and load no SDK for that.
    from temporalio.exceptions import ApplicationError

    from activities.errors import ErrorType

    return ApplicationError(problem, type=ErrorType.INVALID_CONFIG.value, non_retryable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCommand(CommandAuthor):
    """A person's command to a workflow. Both `who` and `reason` are required. action: the object by which Kubernetes attests who
    the person is; None: only the person says so."""

    reason: str
    action: ActionName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRequest(OperatorCommand):
    """Stop the episode. Before off our marks are undone; after off consequences are finished and power is left off,
    unless `power_on`."""

    power_on: bool = False

    def __str__(self) -> str:
        return f"aborted by {self.by}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeRequest(OperatorCommand):
    """A person saw it off, and vouches for the power state (S8). question: see `PersonRequest`. override: see
    `NodeActionSpec`."""

    question: int = 0
    override: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRequest(OperatorCommand):
    """A person's resume, return-path, release or isolate. question: for the first two, the number of the question as the person
    has seen it (S48)."""

    question: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest(PersonRequest):
    """End a hold, or let a parked episode try again. of: the owner of the hold that ends, "" for one's own."""

    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEpisodeRequest(OperatorCommand):
    """Do nothing destructive until a moment, or until `resume`. Each person has one hold, and their last request counts. The
    episode goes on when no hold is left."""

    until: datetime | None = None

    def __str__(self) -> str:
        until = f", until {written(self.until)}" if self.until is not None else ""
        return f"held by {self.by}{until}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendRequest(OperatorCommand):
    """A new expiry of a preservation: a moment, or so much longer than now. Exactly one of the two. shorten: the moment may be
    earlier than the present one."""

    until: datetime | None = None
    hold: timedelta | None = None
    shorten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerStatus:
    """Answer of the scanner's `status` query: everything `nodewarden status` shows that is not an episode's own."""

    cluster: str
    holder: str
    started: datetime
    cap: int
    scans: int
    opened: int
    report: ScanReport | None = None
    permits: tuple[Permit, ...] = ()
    queue: tuple[PermitRequest, ...] = ()
    held_off: tuple[HoldOff, ...] = ()
    refused: tuple[Refused, ...] = ()
    problem: str = ""
    stopping: bool = False
    wait: timedelta = timedelta(seconds=60)
    """How long a scan without news takes."""
    pauses: tuple[Pause, ...] = ()
    """Those in force: nothing new is begun, and nothing destructive done, until none is left."""
    modes: ClusterModes = REPAIRS
    spells: tuple[Spell, ...] = ()
    """Of due nodes that are not repaired, the oldest first, at most `MOST_SHOWN`; the query `spells` has all."""
    open_spells: int = 0
    """How many are open, and how many more nodes are due that had no room."""
    why_queued: tuple[str, ...] = ()
    """In the queue's order: why it has no permit at this moment, "" where it is due. () of a scanner of an older build."""
    known: bool = True
    """Whether all open episodes are known; before that, permits may be held that are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest(OperatorCommand):
    """Stop scanning. Open episodes pause before their next destructive act, because the cluster Lease is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequest(OperatorCommand):
    """Begin nothing new and do nothing destructive, until a moment or until `unpause`. Each person has one pause, and their last
    request counts. The cluster goes on when no pause is left."""

    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequest(OperatorCommand):
    """End a pause. of: the pause's owner, "" for one's own."""

    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRequest(OperatorCommand):
    """How far programs may go with these nodes: by name, by a selector, or all where neither is given. mode: a `Mode`, or `unset`
    to take a rule back."""

    mode: str
    nodes: tuple[str, ...] = ()
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerResult:
    """How a scanner ended."""

    cluster: str
    stopped_by: str
    reason: str
    scans: int
    opened: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCheckInput:
    """Input of `DeviceCheck`; only `cluster` is needed: `{"cluster": "prod"}`.

    every: time between two checks of all devices; None: check only on request, and end when no request is open. due: the time of
    the next check, None for some minutes from now. memory: that of a former run.
    """

    cluster: str = ""
    every: timedelta | None = timedelta(hours=1)
    due: datetime | None = None
    memory: DeviceMemory = field(default_factory=DeviceMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Read the devices of one node, or of all where it is "". admit: of one node; see `DeviceMemory.hosts`."""

    node: str = ""
    admit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCheckResult:
    """How a run of `DeviceCheck` ended: what the next one need not learn again."""

    cluster: str
    memory: DeviceMemory = field(default_factory=DeviceMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageToCheck:
    """Some nodes of a check. check: when that of all nodes began, None for a person's question about one. also_held: the devices
    of nodes that open episodes hold are read, too."""

    cluster: str
    nodes: tuple[str, ...]
    check: datetime | None = None
    also_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPage:
    """What was found of these nodes, in their order. hosts: where credentials of their devices would be sent."""

    nodes: tuple[CheckedNode, ...]
    hosts: Hosts = field(default_factory=dict)
