"""The scanner's view of a cluster: one long poll, which also publishes what the scanner concluded; and what it has recorded of
spells that were not repaired."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from activities.contracts import ActivityContract
from policy.episode.decisions import Decision
from policy.episode.messages import Kind
from policy.episode.modes import REPAIRS, ClusterModes
from policy.history.spells import ObservationRecord, Spell
from policy.scan.admission import Refused
from policy.scan.repeat_alarm import Repetition
from policy.scan.scan_report import ScanReport, SeenVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEpisode:
    """An open episode as a policy's status shows it. needs_person: it waits for a person and does not go on by itself. queued: it
    waits for a permit."""

    node: str
    since: str
    incident: str
    kind: str = Kind.FENCING.value
    needs_person: bool = False
    queued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A long poll: answered as soon as the report's digest differs from `known_digest`, or after `wait`.

    resource_version, check_versions, inventory: the newest versions of nodes and of health checks, and the number of nodes,
    that the scanner has seen; a cache that is behind catches up first or reports a stale view. holder: identity for the cluster
    Lease (Temporal address and namespace). work_in_hand: episodes are open or asked for, so the Lease is needed even without a
    policy. watching: nodes of open episodes and of held-off ones, observed even without our mark. notified: a stamp of the latest
    node as each of those episodes got it (`policy.scan.report_builder.stamp_of`); if a report has no room for all nodes,
    changed ones go first. begun: machines for which a preservation was begun or notified; none gets a place in its pool twice.
    in_flight, refusals: published beside what the scan itself sees; None: not known yet, and no check's status is written.
    halted: why nothing is begun, published on every check and in a metric (S44), "" while episodes may begin. need_person,
    permits, queued: for metrics: open episodes that wait for a person, permits in use, requests that wait for one. remind:
    episodes that wait for a person, and since when, about which people are reminded. halted_is_new: `halted` differs from the
    last request's. halt_over: how a halt ended, "" if that need not be published. number: of the poll; a worker that has not
    served the poll before does not know what was published last. spells: nodes with an open spell that were no candidates in the
    last report: `ScanReport.watched` says how they stand, and nothing else depends on it. modes: how far programs may go
    with which nodes. rests: it shows a sign of life to Temporal so rarely that it hears late that it was given up. So it acts
    only while the cluster Lease is as its worker has written it last, and other workers see by the Lease that it is lost.
    """

    cluster: str
    holder: str
    known_digest: str = ""
    resource_version: str = ""
    inventory: int = 0
    work_in_hand: bool = False
    watching: tuple[str, ...] = ()
    notified: tuple[tuple[str, str], ...] = ()
    wait: timedelta = timedelta(seconds=60)
    check_versions: tuple[SeenVersion, ...] = ()
    begun: tuple[str, ...] = ()
    in_flight: tuple[OpenEpisode, ...] | None = None
    refusals: tuple[Refused, ...] = ()
    number: int = 0
    halted: str = ""
    need_person: int = 0
    permits: int = 0
    queued: int = 0
    remind: tuple[OpenEpisode, ...] = ()
    halted_is_new: bool = False
    halt_over: str = ""
    modes: ClusterModes = REPAIRS
    spells: tuple[str, ...] = ()
    rests: bool = False
    decisions: tuple[Decision, ...] = ()
    """Of the scanner, for the decision stream; sent again until a scan with them was answered."""


class ScanActivities(ActivityContract):
    """Served on `cluster.<name>`."""

    @activity.defn(name="scan.observe-cluster")
    @abstractmethod
    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        """Wait at the watch cache until the report changes; renew the cluster Lease and write the checks' status meanwhile."""

    @activity.defn(name="scan.release-lease")
    @abstractmethod
    async def release_lease(self, request: ScanRequest) -> None:
        """Give the cluster Lease back on `scan stop`, if it is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionRequest:
    """A node that was fenced for the same reason as often as the alarm is set to."""

    cluster: str
    repetition: Repetition


class RepetitionActivities(ActivityContract):
    """Served on `cluster.<name>`."""

    @activity.defn(name="scan.publish-repetition")
    @abstractmethod
    async def publish_repetition(self, request: RepetitionRequest) -> None:
        """Write an Event `RepeatedFencing` on the Node and its NodeFence."""


# The activity that records what was seen and not repaired.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """ended: spells that have just ended, to be looked at once and then recorded, those of a storm with the others of it.
    records: storms of which all spells have ended, and node-days, to be recorded as they are."""

    cluster: str
    ended: tuple[Spell, ...] = ()
    records: tuple[ObservationRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordResult:
    """of_storms: the request's spells that belong to a storm, as they were found. left: the ids of what could not be recorded
    now, spells by `Spell.record_id`; problem: of the first of them. All else is recorded."""

    of_storms: tuple[Spell, ...] = ()
    left: tuple[str, ...] = ()
    problem: str = ""


class ObservationActivities(ActivityContract):
    """Served on `cluster.<name>`: it reads the Nodes."""

    @activity.defn(name="observations.record")
    @abstractmethod
    async def record(self, request: RecordRequest) -> RecordResult:
        """Read the Nodes once, then start an `Observation` for each record. At-least-once: one that exists is as good as made.
        Raises the first problem where nothing was done, such as Unreachable."""
