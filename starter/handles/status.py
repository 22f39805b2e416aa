"""What is known of a cluster at one moment, for people: the scanner's view, the open episodes, and how the last ones ended.

For display only: permits and consequences are never decided from any of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy.episode.messages import EpisodeResult, EpisodeStatus
from policy.fence.device_check import DeviceRow
from workflows.kit.messages import ScannerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentEpisode:
    """An open episode that did not answer its query, and why."""

    node: str
    workflow_id: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """`scanner` None: none runs, or it does not answer (`unanswered`); `problem` is the sentence.

    left_out: open episodes beyond those in `episodes` and `silent`. ended: newest first. last: what the last scanner knew when it
    ended, where none runs; None where that is forgotten. devices: fence devices with a problem, as the last check of all has
    found them, such as one that is silent or has no Secret; the first of them.
    """

    cluster: str
    at: datetime
    scanner: ScannerStatus | None = None
    problem: str = ""
    unanswered: bool = False
    episodes: tuple[EpisodeStatus, ...] = ()
    silent: tuple[SilentEpisode, ...] = ()
    left_out: int = 0
    ended: tuple[EpisodeResult, ...] = ()
    last: ScannerStatus | None = None
    devices: tuple[DeviceRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEpisodes:
    """One node's episodes: the open one (`silent` where it does not answer), and how the last ones ended, newest first."""

    episode: EpisodeStatus | None = None
    silent: SilentEpisode | None = None
    ended: tuple[EpisodeResult, ...] = ()
