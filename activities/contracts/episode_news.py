"""What people with kubectl are told: an episode's NodeFence, Events, whether a node is proven off; nodes fenced again and again.

Telling, never acting: every bit of it may fail without anything following from it. News travel with the act that they come
before or after (`target.py`), or by themselves where an episode waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from policy.episode.messages import EpisodeStatus
from policy.scan.repeat_alarm import Repetition
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSnapshot:
    """One state of an episode. `sequence` grows within a run, so that a write that was overtaken changes nothing.

    status: what a NodeFence shows of it (`policy/episode/nodefence.py`). at: when the state was entered. jobs: the methods that
    ran, the latest last. outcome, message: of an episode that has ended.
    """

    status: EpisodeStatus
    sequence: int
    at: datetime
    jobs: tuple[str, ...] = ()
    outcome: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldEvent:
    """A Kubernetes Event on the Node, so that `kubectl describe node` tells the story, and on its NodeFence; and on its Machine,
    where `about` and its uid name one. outcome: of the episode that it says has ended. words: how often people had spoken to the
    episode by then: the same problem after another word is news."""

    reason: str
    message: str
    warning: bool = False
    about: ObjectRef | None = None
    about_uid: str = ""
    outcome: str = ""
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffNote:
    """Since when the node is proven off, None once it no longer is: a note in our mark. For people and for DataAtRisk (S36).

    `not_after`: it is not written after that moment; a note that comes late would call a machine off that runs.
    """

    off_proven: datetime | None
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """All that is new since people were told last: the latest state where it is shown, Events in their order, the latest note."""

    shown: EpisodeSnapshot | None = None
    events: tuple[ToldEvent, ...] = ()
    off: OffNote | None = None


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
