"""What the read API answers where the command line has no model of its own: parts of one status, each a question of a program."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy.episode.messages import EpisodeStatus
from policy.episode.permits import Permit, PermitRequest
from policy.scan.pauses import Pause
from policy.scan.scan_report import CheckReport, TargetRow
from starter.handles.episodes import SilentEpisode
from starter.handles.status import ClusterStatus
from starter.web.overview import WaitingNode, overview_of
from workflows.kit.messages import Backoff


class UnreadableError(Exception):
    """What was asked can't be read; the text is one line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClusters:
    """Those that the settings name."""

    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProblem:
    """Why there is no other answer, in the words of the command line."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAnswer:
    """The sickest first. of: how many nodes the scanner watches."""

    cluster: str
    at: datetime
    nodes: tuple[TargetRow, ...]
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksAnswer:
    """What each health check counts, and whether it may act."""

    cluster: str
    at: datetime
    checks: tuple[CheckReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesAnswer:
    """The open ones. left_out: those beyond the ones shown."""

    cluster: str
    at: datetime
    episodes: tuple[EpisodeStatus, ...]
    silent: tuple[SilentEpisode, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingAnswer:
    """Everybody who waits, in the order in which they are served, with what holds each."""

    cluster: str
    at: datetime
    waiting: tuple[WaitingNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitsAnswer:
    """concurrency: how many nodes may be disrupted at once. null where no scanner answers."""

    cluster: str
    at: datetime
    concurrency: int | None
    permits: tuple[Permit, ...]
    queue: tuple[PermitRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEpisode:
    """An episode that a person holds. held: which person, until when and why."""

    node: str
    incident: str
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopsAnswer:
    """Whatever keeps nodewarden from acting: stops, each in a sentence with its way out; the pauses that are in force; episodes
    that are held; nodes that get no episode for now."""

    cluster: str
    at: datetime
    headline: str
    stops: tuple[str, ...]
    pauses: tuple[Pause, ...]
    held: tuple[HeldEpisode, ...]
    held_off: tuple[Backoff, ...]


def nodes_of(status: ClusterStatus) -> NodesAnswer:
    """As the page shows them."""
    found = overview_of(status)
    return NodesAnswer(cluster=found.cluster, at=found.at, nodes=found.rows, of=found.nodes)


def checks_of(status: ClusterStatus) -> ChecksAnswer:
    """As the page shows them."""
    found = overview_of(status)
    return ChecksAnswer(cluster=found.cluster, at=found.at, checks=found.checks)


def episodes_of(status: ClusterStatus) -> EpisodesAnswer:
    """Those that a status has."""
    return EpisodesAnswer(
        cluster=status.cluster, at=status.at, episodes=status.episodes, silent=status.silent, left_out=status.left_out
    )


def waiting_of(status: ClusterStatus) -> WaitingAnswer:
    """As the page shows them."""
    return WaitingAnswer(cluster=status.cluster, at=status.at, waiting=overview_of(status).waiting)


def permits_of(status: ClusterStatus) -> PermitsAnswer:
    """As the scanner has them."""
    scanner = status.scanner
    return PermitsAnswer(
        cluster=status.cluster,
        at=status.at,
        concurrency=scanner.concurrency if scanner is not None else None,
        permits=scanner.permits if scanner is not None else (),
        queue=scanner.queue if scanner is not None else (),
    )


def stops_of(status: ClusterStatus) -> StopsAnswer:
    """S44: with who, why and until when."""
    found, scanner = overview_of(status), status.scanner
    return StopsAnswer(
        cluster=status.cluster,
        at=status.at,
        headline=found.headline,
        stops=found.stops,
        pauses=scanner.pauses if scanner is not None else (),
        held=tuple(HeldEpisode(node=each.node, incident=each.incident, held=each.held) for each in status.episodes if each.held),
        held_off=scanner.held_off if scanner is not None else (),
    )
