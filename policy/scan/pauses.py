"""A pause of a whole cluster: a person's word that nothing new is begun and nothing destructive is done, until it ends.

What was begun and is proven off is still freed, and machines are switched on again: restoring needs no permit (S17). Where
nothing scans the cluster any more, because a person has stopped the scanner, the same is said in the same places (S44).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from policy.values.moments import no_later, written

PAUSES_MEMO = "pauses"
"""Of a scanner's workflow: its `PastPause`s, for people, and for the scanner that comes after it."""
PAUSES_REMEMBERED = 50
"""Of one cluster. They are in every start of its scanner: some twenty kilobytes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who wants it, why, and until when; None: until somebody ends it."""

    who: str
    reason: str
    since: datetime
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it is still in force."""
        return self.until is None or now < self.until

    def __str__(self) -> str:
        until = f"until {written(self.until)}" if self.until is not None else "until somebody ends it"
        return f"paused by {self.who}, {until}: {self.reason} (`nodewarden unpause` ends it)"


class PauseEnd(StrEnum):
    """How a pause stands: in force, ended by a person, over by its own moment, or followed by another one that says more."""

    IN_FORCE = "in-force"
    UNPAUSED = "unpaused"
    EXPIRED = "expired"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPause:
    """A pause that was heard. ended: when a person ended or replaced it, who and why; None: nobody has."""

    pause: Pause
    ended: datetime | None = None
    ended_by: str = ""
    ended_why: str = ""
    replaced: bool = False

    def end(self, now: datetime) -> PauseEnd:
        """How it stands at a moment."""
        if self.ended is not None:
            return PauseEnd.REPLACED if self.replaced else PauseEnd.UNPAUSED
        return PauseEnd.IN_FORCE if self.pause.holds(now) else PauseEnd.EXPIRED

    def over_at(self, now: datetime) -> datetime | None:
        """When it ended, None while it is in force."""
        return (self.ended or self.pause.until) if self.end(now) is not PauseEnd.IN_FORCE else None

    def told(self, now: datetime) -> str:
        """By whom, until when and why, and how it ended. One that is over by its moment nobody has ended."""
        until = f"until {written(self.pause.until)}" if self.pause.until is not None else "until somebody ends it"
        did = {PauseEnd.UNPAUSED: "ended", PauseEnd.REPLACED: "replaced"}.get(self.end(now))
        ended = f"; {did} by {self.ended_by}: {self.ended_why}" if did else ""
        return f"by {self.pause.who}, {until}: {self.pause.reason}{ended}"


Pauses = tuple[PastPause, ...]
"""Of one cluster, the oldest first; at most the last one is in force."""


def in_force(pauses: Pauses, now: datetime) -> Pause | None:
    """What a person has said last, as long as it holds."""
    return pauses[-1].pause if pauses and pauses[-1].end(now) is PauseEnd.IN_FORCE else None


def since(pauses: Pauses, moment: datetime, now: datetime) -> Pauses:
    """Those that were in force at that moment or after it."""
    return tuple(each for each in pauses if (each.over_at(now) or now) >= moment)


def unpaused(pauses: Pauses, *, who: str, reason: str, now: datetime, replaced: bool = False) -> Pauses:
    """A person ends the one in force; where none is, nothing changes. replaced: by another pause."""
    if in_force(pauses, now) is None:
        return pauses
    return (*pauses[:-1], replace(pauses[-1], ended=now, ended_by=who, ended_why=reason, replaced=replaced))


def cut_short(pauses: Pauses, pause: Pause) -> Pause | None:
    """The pause of somebody else that lasts no less than this one, which would take its place; None where there is none."""
    former = in_force(pauses, pause.since)
    cuts = former is not None and former.who != pause.who and no_later(pause.until, former.until)
    return former if cuts else None


def paused(pauses: Pauses, pause: Pause) -> Pauses:
    """A person pauses, from its `since` on; one that is in force then is replaced. The last PAUSES_REMEMBERED are kept."""
    former = unpaused(pauses, who=pause.who, reason=pause.reason, now=pause.since, replaced=True)
    return (*former, PastPause(pause=pause))[-PAUSES_REMEMBERED:]
