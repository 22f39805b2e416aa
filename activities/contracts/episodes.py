"""The activities that need a Temporal client: they open and describe episodes, notify them, ask the scanner for permits and
portions, and name the deployment."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from temporalio import activity

from activities.contracts import ActivityContract
from policy.episode.messages import FencingInput, Kind, Phase, RemediationInput, SeenNode
from policy.episode.modes import ClusterModes, ModeChanges
from policy.episode.permits import HoldOff, PermitAnswer, PermitRequest, PortionAnswer, PortionRequest
from policy.history.spells import ScannerSpells
from policy.scan.pauses import Pauses

OPENED_WITHIN = timedelta(seconds=60)
"""After it was decided. A reset of the scanner's workflow has Temporal schedule anew, days later as well, what the history had
decided there and not seen the end of."""


TOOK_OVER_MEMO = "took-over"
STOPPED_MEMO = "stopped"
"""Of a scanner: the run that knows all that those before it had seen and were told; of a new history the one that it goes on
from. A reset gives a run the memo of another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Start these admitted episodes; conflict policy FAIL, so the workflow id is the mutex (S13)."""

    cluster: str
    episodes: tuple[FencingInput, ...] = ()
    remediations: tuple[RemediationInput, ...] = ()
    decided: datetime | None = None
    """By Temporal's clock; None: an older version asks."""
    unasked: bool = False
    """Whether the last scanner has yet to be asked, or to answer, which nodes are to be left alone."""


class Opened(StrEnum):
    """started/joined (the same incident already runs) hold the permit; refused and held-off do not."""

    STARTED = "started"
    JOINED = "joined"
    REFUSED = "refused"
    HELD_OFF = "held-off"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOutcome:
    """One node's outcome. `holder`: incident and kind of the episode that is in the way. until: when what holds it off ends by
    itself."""

    node: str
    incident: str
    opened: Opened
    workflow_id: str
    run_id: str = ""
    holder: str = ""
    reason: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenResult:
    """In the order of the request."""

    outcomes: tuple[OpenOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeRequest:
    """Which nodes' episodes to look up, by workflow id."""

    cluster: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDescription:
    """What the server says of `episode/<cluster>/<node>`. `open` False with `known` True: it has closed.

    incident: "" where neither the episode nor its memo says, `foreign <type>` for a workflow under that id that is none of ours.
    phase, control_plane, node_uid, provider_id, override, by_person: what the episode itself says; None and nothing where it has
    not said yet.
    """

    node: str
    known: bool
    open: bool
    workflow_id: str
    run_id: str = ""
    incident: str = ""
    kind: Kind = Kind.FENCING
    parked: bool = False
    phase: Phase | None = None
    permit: bool = False
    started: datetime | None = None
    ended: datetime | None = None
    control_plane: bool | None = None
    node_uid: str = ""
    provider_id: str = ""
    override: str = ""
    by_person: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeResult:
    """One description per node asked for."""

    episodes: tuple[EpisodeDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRequest:
    """The cluster in which to find open episodes."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOpen:
    """The nodes that have an open episode; preservations are left out, because they need no permit. The list comes from
    Temporal's visibility, which lags: an episode that began a moment ago may be missing, and one that just ended may still be
    listed.

    earlier: whether another scanner of the cluster ran before the one that asks; former: the run of the last of those that had
    taken over what was known before it (`TOOK_OVER_MEMO`), "" where none is known; untaken: others have ended since that had
    not, and knew less, unless each was only begun in the place of one that had failed. repaired: whether `former` repaired by
    itself: its memo says so, or it was of a version without modes and an episode of the cluster ever was. An episode alone is no
    sign of it, since a person may ask for one (S52). None where an older version answers. modes, mode_changes, pauses: what
    people had set when it ended, or have set since for those that it was replaced by; ended: when the last one has. stopped: by
    which person it was stopped and why (`STOPPED_MEMO`), () where it was not; stop_ended: when that run ended, None where an
    older version answers. left_alone: nodes of which an episode has ended since `former` did, so that no scanner was told that a
    person has aborted it, or that its machine stays off.
    """

    nodes: tuple[str, ...]
    earlier: bool = False
    repaired: bool | None = None
    former: str = ""
    ended: datetime | None = None
    modes: ClusterModes | None = None
    pauses: Pauses = ()
    untaken: bool = False
    mode_changes: ModeChanges = ()
    stopped: tuple[str, ...] = ()
    stop_ended: datetime | None = None
    left_alone: tuple[HoldOff, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRequest:
    """What was seen of nodes, to send to their open episodes. build_changed: instead every open episode of the cluster is woken,
    and its check of fence devices, because another build is current."""

    cluster: str
    seen_nodes: tuple[SeenNode, ...] = ()
    build_changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyResult:
    """gone: the nodes that have no open episode."""

    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPermit:
    """A permit request, and the cluster of the scanner that decides."""

    cluster: str
    permit: PermitRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPortion:
    """A question how many pods may be freed now, and the cluster of the scanner that answers."""

    cluster: str
    portion: PortionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRequest:
    """cluster: of the scanner that asks; the name is the same for all clusters."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentName:
    """How the cluster Lease names this deployment: unique to its Temporal namespace, and the same for as long as that lives."""

    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRun:
    """The run that a workflow says it continues."""

    workflow_id: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRunDescription:
    """What the server says of it; nothing where it knows of none."""

    workflow_type: str = ""
    task_queue: str = ""


class EpisodeActivities(ActivityContract):
    """Served on `nodewarden`; holds the Temporal client."""

    @activity.defn(name="episodes.describe-former")
    @abstractmethod
    async def describe_former(self, request: FormerRun) -> FormerRunDescription:
        """The workflow type and task queue of the run that left a state. Raises Unreachable."""

    @activity.defn(name="episodes.former-spells")
    @abstractmethod
    async def former_spells(self, request: FormerRun) -> ScannerSpells:
        """What a scanner that has ended saw and did not record. A worker replays it for that. Raises Unreachable."""

    @activity.defn(name="episodes.open")
    @abstractmethod
    async def open(self, request: OpenRequest) -> OpenResult:
        """Start the episodes. At-least-once: an AlreadyStarted of the same incident is `joined`."""

    @activity.defn(name="episodes.describe")
    @abstractmethod
    async def describe(self, request: DescribeRequest) -> DescribeResult:
        """Describe the holders, for release of what has closed and for rebuilding the permit table."""

    @activity.defn(name="episodes.notify")
    @abstractmethod
    async def notify(self, request: NotifyRequest) -> NotifyResult:
        """Signal the open episodes of these nodes, or wake all. A signal carries all that was seen, so a repetition is harmless.
        Raises Unreachable."""

    @activity.defn(name="episodes.find-open")
    @abstractmethod
    async def find_open(self, request: FindRequest) -> FoundOpen:
        """All open episodes of a cluster, for a scanner that knows none. Raises Unreachable if not all could be listed."""

    @activity.defn(name="episodes.request-permit")
    @abstractmethod
    async def request_permit(self, request: AskPermit) -> PermitAnswer:
        """Ask the cluster's scanner. No running scanner: refused, saying how to start it."""

    @activity.defn(name="episodes.ask-portion")
    @abstractmethod
    async def ask_portion(self, request: AskPortion) -> PortionAnswer:
        """Ask the cluster's scanner how many pods may be freed now. No running scanner: none, with the reason."""

    @activity.defn(name="episodes.name-deployment")
    @abstractmethod
    async def name_deployment(self, request: NameRequest) -> DeploymentName:
        """Our name on the cluster Lease, for a scanner that was started without it."""
