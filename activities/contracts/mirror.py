"""What people with kubectl are shown: each fencing as a NodeFence, its steps as Events, nodes that are fenced again and again.

Telling, never acting: every one of these may fail without anything following from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from activities.contracts.target import Target
from policy.episode.events import EpisodeEvent
from policy.episode.messages import EpisodeStatus
from policy.scan.repeats import Repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRequest:
    """One state of an episode. `sequence` grows within a run, so that a write that was overtaken changes nothing.

    at: when the state was entered. jobs: the methods that ran, the latest last. outcome, message: of an episode that has ended.
    events: what led to this state.
    """

    target: Target
    status: EpisodeStatus
    sequence: int
    at: datetime
    jobs: tuple[str, ...] = ()
    outcome: str = ""
    message: str = ""
    events: tuple[EpisodeEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionRequest:
    """A node that was fenced for the same reason as often as the alarm is set to."""

    cluster: str
    repetition: Repetition


class MirrorActivities(ABC):
    """Served on `cluster.<name>`."""

    @activity.defn(name="target.mirror")
    @abstractmethod
    async def mirror(self, request: MirrorRequest) -> None:
        """Write the NodeFence, where its kind is served, and the Events. Idempotent: an older state never overwrites a newer."""

    @activity.defn(name="scan.tell-repetition")
    @abstractmethod
    async def tell_repetition(self, request: RepetitionRequest) -> None:
        """An Event `RepeatedFencing` on the Node and its NodeFence."""
