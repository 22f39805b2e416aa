"""The scanner's window on a cluster: one long poll, which also tells people what was concluded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from policy.episode.messages import Kind
from policy.scan.repeat_alarm import Repetition
from policy.scan.scan_report import ScanReport, SeenVersion
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEpisode:
    """An open episode as a policy's status shows it. needs_person: it waits for one, and nothing goes on by itself."""

    node: str
    since: str
    incident: str
    kind: str = Kind.FENCING.value
    needs_person: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A node that was not acted on, and why; becomes a `RemediationSkipped` Event on the node's check."""

    node: str
    check: ObjectRef
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A long poll: answered as soon as the report's digest differs from `known_digest`, or after `wait`.

    resource_version, check_versions, inventory: the newest marks, of nodes and of health checks, and the size the scanner has
    seen; a cache that is behind catches up first or reports a stale view. holder: identity for the cluster Lease (Temporal
    address and namespace). work_in_hand: episodes are open or asked for, so the Lease is needed even without a policy.
    watching: nodes of open episodes and held-off ones, observed even without our mark. told: what those episodes were told of
    their nodes (`policy.scan.report_urgency.stamp_of`); where a report has no room for all of them, what has changed goes
    first. begun: whose preservation was begun, or told to look again: a pool's place that was given is not given twice.
    in_flight, refusals: what people are told of meanwhile, beside what the scan itself sees; None: it is not known yet, and no
    check's status is written. halted: why nothing is begun, as people are told on every check and in a metric (S44), "" where
    all goes on. need_person, permits, queued: for metrics: open episodes that wait for a person, permits in use, requests that
    wait for one. remind, halted_is_new: of which episodes that wait for a person, and since when, people are to be told again;
    whether `halted` is another one than the last request has told. halt_over: how that ended, "" but where people are to be told.
    number: of the poll; a worker that has not served the one before does not know what people were told last.
    """

    cluster: str
    holder: str
    known_digest: str = ""
    resource_version: str = ""
    inventory: int = 0
    work_in_hand: bool = False
    watching: tuple[str, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    wait: timedelta = timedelta(seconds=60)
    check_versions: tuple[SeenVersion, ...] = ()
    begun: tuple[str, ...] = ()
    in_flight: tuple[OpenEpisode, ...] | None = None
    refusals: tuple[Refusal, ...] = ()
    number: int = 0
    halted: str = ""
    need_person: int = 0
    permits: int = 0
    queued: int = 0
    remind: tuple[OpenEpisode, ...] = ()
    halted_is_new: bool = False
    halt_over: str = ""


class ScanActivities(ABC):
    """Served on `cluster.<name>`."""

    @activity.defn(name="scan.observe-cluster")
    @abstractmethod
    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        """Sit on the watch cache until the report changes; renew the cluster Lease and write the checks' status meanwhile."""

    @activity.defn(name="scan.release-lease")
    @abstractmethod
    async def release_lease(self, request: ScanRequest) -> None:
        """Give the cluster Lease back on `scan stop`, if it is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionRequest:
    """A node that was fenced for the same reason as often as the alarm is set to."""

    cluster: str
    repetition: Repetition


class RepetitionActivities(ABC):
    """Served on `cluster.<name>`."""

    @activity.defn(name="scan.tell-repetition")
    @abstractmethod
    async def tell_repetition(self, request: RepetitionRequest) -> None:
        """An Event `RepeatedFencing` on the Node and its NodeFence."""
