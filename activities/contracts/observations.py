"""The activity that records what was seen and not repaired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from temporalio import activity

from policy.observation.spells import ObservationRecord, Spell


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


class ObservationActivities(ABC):
    """Served on `cluster.<name>`: it reads the Nodes."""

    @activity.defn(name="observations.record")
    @abstractmethod
    async def record(self, request: RecordRequest) -> RecordResult:
        """Read the Nodes once, then start an `Observation` for each record. At-least-once: one that exists is as good as made.
        Raises the first problem where nothing was done, such as Unreachable."""
