"""A pause of a whole cluster: a person's word that nothing new is begun and nothing destructive is done, until it ends.

What was begun and is proven off is still freed, and machines are switched on again: restoring needs no permit (S17). Where
nothing scans the cluster any more, because a person has stopped the scanner, the same is said in the same places (S44).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from policy.episode.operator_commands import bare_name
from policy.values.times import written

PAUSES_MEMO = "pauses"
"""Of a scanner's workflow: its `PastPause`s, for people, and for the scanner that comes after it."""
PAUSES_REMEMBERED = 50
"""Of one cluster. They are in every start of its scanner: some twenty kilobytes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who wants it, how their identity was verified, why, and until when; None: until a person ends it. owner: see
    `Said.owner`."""

    who: str
    owner: str
    reason: str
    since: datetime
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it is still in force."""
        return self.until is None or now < self.until

    def is_of(self, name: str) -> bool:
        """Whether it is called by that name: as it is shown, or without how it was verified."""
        return name in {self.who, self.owner, bare_name(self.owner)}

    def __str__(self) -> str:
        return f"paused by {self.who}, {_end(self.until)}: {self.reason}"


def _end(until: datetime | None) -> str:
    return f"until {written(until)}" if until is not None else "until it is ended by hand"


class PauseEnd(StrEnum):
    """How a pause stands: in force, ended by a person, over by its own moment, or replaced by its owner's next one."""

    IN_FORCE = "in-force"
    UNPAUSED = "unpaused"
    EXPIRED = "expired"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPause:
    """A pause of the past. ended: when a person ended or replaced it, who and why; None: no person has."""

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
        """By whom, until when and why, and by whom it was ended; a pause that is over by its moment was ended by no one."""
        did = {PauseEnd.UNPAUSED: "ended", PauseEnd.REPLACED: "replaced"}.get(self.end(now))
        ended = f"; {did} by {self.ended_by}: {self.ended_why}" if did else ""
        return f"by {self.pause.who}, {_end(self.pause.until)}: {self.pause.reason}{ended}"


Pauses = tuple[PastPause, ...]
"""Of one cluster, the oldest first. Any of them may be in force, one of each owner: the cluster goes on when none is left."""


def in_force(pauses: Pauses, now: datetime) -> tuple[Pause, ...]:
    """What people have said, as long as it holds; the oldest first."""
    return tuple(each.pause for each in pauses if each.end(now) is PauseEnd.IN_FORCE)


def told(pauses: tuple[Pause, ...]) -> str:
    """Each of them and how they end, in a sentence; "" for none."""
    if not pauses:
        return ""
    name = bare_name(pauses[0].owner) if len(pauses) == 1 else "NAME"
    command = f"nodewarden unpause --of {name if ' ' not in name else repr(name)}"
    return f"{'; '.join(map(str, pauses))} (`{command}` ends {'it' if len(pauses) == 1 else 'one of them'})"


def halted(pauses: Pauses, now: datetime) -> str:
    """The same, and who has ended one of another person's meanwhile, for the owner of that; "" where none is in force."""
    found = in_force(pauses, now)
    began = min((each.since for each in found), default=now)
    others = (each for each in pauses if each.ended is not None and each.ended > began and each.ended_by != each.pause.who)
    return "; ".join((told(found), *(f"no longer in force: {each.told(now)}" for each in others))) if found else ""


def since(pauses: Pauses, moment: datetime, now: datetime) -> Pauses:
    """Those that were in force at that moment or after it."""
    return tuple(each for each in pauses if (each.over_at(now) or now) >= moment)


def to_be_ended(found: tuple[Pause, ...], *, owner: str, of: str) -> tuple[Pause, ...]:
    """Which of those in force a person ends: their own, or by name that of another one. Raises ValueError where there is none."""
    ended = tuple(each for each in found if (each.is_of(of) if of else each.owner == owner))
    if not ended:
        raise ValueError(f"expected a pause of {of or owner}, and there is none; in force: {told(found)}")
    return ended


def unpaused(pauses: Pauses, ended: tuple[Pause, ...], *, who: str, reason: str, now: datetime, replaced: bool = False) -> Pauses:
    """A person ends those. replaced: by the next one of the same owner."""
    return tuple(
        replace(each, ended=now, ended_by=who, ended_why=reason, replaced=replaced)
        if each.pause in ended and each.end(now) is PauseEnd.IN_FORCE
        else each
        for each in pauses
    )


def paused(pauses: Pauses, pause: Pause) -> Pauses:
    """A person pauses, from its `since` on, beside what others have said; one of the same owner is replaced. Of those that are
    over, the last PAUSES_REMEMBERED are kept. Raises ValueError where so many are in force."""
    now = pause.since
    former = tuple(each for each in in_force(pauses, now) if each.owner == pause.owner)
    stand = (*unpaused(pauses, former, who=pause.who, reason=pause.reason, now=now, replaced=True), PastPause(pause=pause))
    over = [each for each in stand if each.end(now) is not PauseEnd.IN_FORCE]
    too_many = len(stand) - PAUSES_REMEMBERED
    if too_many > len(over):
        raise ValueError(f"expected at most {PAUSES_REMEMBERED} pauses in force: end one of them first")
    forgotten = over[: max(too_many, 0)]
    return tuple(each for each in stand if each not in forgotten)
