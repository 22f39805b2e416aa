"""A pause of a whole cluster: a person's command that nothing new is begun and nothing destructive is done, until it ends.

What was begun and is proven off is still freed, and machines are switched on again: restoring needs no permit (S17). Where a
person has stopped the scanner, the same places show that nothing scans the cluster (S44).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from policy.episode.node_action import bare_name
from policy.values.times import written

PAUSES_MEMO = "pauses"
"""A memo of a scanner's workflow: its `PastPause`s, for people, and for the next scanner of the cluster."""
PAUSES_REMEMBERED = 50
"""Past pauses of one cluster. They are in every start of its scanner: some twenty kilobytes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who set it, how their identity was verified, why, and until when; None: until a person ends it. owner: see
    `CommandAuthor.owner`."""

    who: str
    owner: str
    reason: str
    since: datetime
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        return self.until is None or now < self.until

    def is_of(self, name: str) -> bool:
        """Whether that name means this pause: with or without how the identity was verified."""
        return name in {self.who, self.owner, bare_name(self.owner)}

    def __str__(self) -> str:
        return f"paused by {self.who}, {_end(self.until)}: {self.reason}"


def _end(until: datetime | None) -> str:
    return f"until {written(until)}" if until is not None else "until it is ended by hand"


class PauseEnd(StrEnum):
    """How a pause stands: in force, ended by a person, expired, or replaced by its owner's next one."""

    IN_FORCE = "in-force"
    UNPAUSED = "unpaused"
    EXPIRED = "expired"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPause:
    """A pause of the past. ended: when a person ended or replaced it, with who and why; None: no person has."""

    pause: Pause
    ended: datetime | None = None
    ended_by: str = ""
    ended_why: str = ""
    replaced: bool = False

    def end(self, now: datetime) -> PauseEnd:
        """How it stands at that moment."""
        if self.ended is not None:
            return PauseEnd.REPLACED if self.replaced else PauseEnd.UNPAUSED
        return PauseEnd.IN_FORCE if self.pause.holds(now) else PauseEnd.EXPIRED

    def over_at(self, now: datetime) -> datetime | None:
        """When it ended, None while it is in force."""
        return (self.ended or self.pause.until) if self.end(now) is not PauseEnd.IN_FORCE else None

    def described(self, now: datetime) -> str:
        """The sentence for people: who set it, until when and why, and who ended it; an expired pause was ended by no person."""
        did = {PauseEnd.UNPAUSED: "ended", PauseEnd.REPLACED: "replaced"}.get(self.end(now))
        ended = f"; {did} by {self.ended_by}: {self.ended_why}" if did else ""
        return f"by {self.pause.who}, {_end(self.pause.until)}: {self.pause.reason}{ended}"


Pauses = tuple[PastPause, ...]
"""All pauses of one cluster, the oldest first. Each owner has at most one in force; the cluster goes on when none is left."""


def in_force(pauses: Pauses, now: datetime) -> tuple[Pause, ...]:
    """The pauses in force, the oldest first."""
    return tuple(each.pause for each in pauses if each.end(now) is PauseEnd.IN_FORCE)


def of_all(pauses: tuple[Pause, ...]) -> str:
    """One sentence about all of them, "" for none: without the command that ends them, for what is kept when they are over."""
    return "; ".join(map(str, pauses))


def described(pauses: tuple[Pause, ...]) -> str:
    """The same with how they end."""
    if not pauses:
        return ""
    name = bare_name(pauses[0].owner) if len(pauses) == 1 else "NAME"
    command = f"nodewarden unpause --of {shlex.quote(name)}"  # a person's own word, to be copied by another (S41)
    return f"{of_all(pauses)} (`{command}` ends {'it' if len(pauses) == 1 else 'one of them'})"


def halted(pauses: Pauses, now: datetime) -> str:
    """The same sentence for those in force, with the pauses that another person than their owner has ended meanwhile, so that
    their owner learns of it; "" where none is in force."""
    found = in_force(pauses, now)
    began = min((each.since for each in found), default=now)
    others = (each for each in pauses if each.ended is not None and each.ended > began and each.ended_by != each.pause.who)
    return "; ".join((described(found), *(f"no longer in force: {each.described(now)}" for each in others))) if found else ""


def with_lost(pauses: Pauses, lost: Pauses, now: datetime) -> Pauses:
    """With those in force that a reset of the scanner took back (S44). Of two of one owner the one that ends later stays."""
    for pause in in_force(lost, now):
        standing = in_force(pauses, now)
        own = next((each for each in standing if each.owner == pause.owner), None)
        longer = own is None or (own.until is not None and (pause.until is None or pause.until > own.until))
        if longer and len(standing) < PAUSES_REMEMBERED:
            pauses = paused(pauses, pause)
    return pauses


def with_said(pauses: Pauses, said: Pauses, since: datetime, now: datetime) -> Pauses:
    """With those in force that people have set since then, for a scanner that did not know of the others yet (S44)."""
    for pause in in_force(said, now):
        if pause.since >= since and len(in_force(pauses, now)) < PAUSES_REMEMBERED:
            pauses = paused(pauses, pause)
    return pauses


def since(pauses: Pauses, moment: datetime, now: datetime) -> Pauses:
    """The pauses that were in force at that moment or after it."""
    return tuple(each for each in pauses if (each.over_at(now) or now) >= moment)


def to_be_ended(found: tuple[Pause, ...], *, owner: str, of: str) -> tuple[Pause, ...]:
    """Which of those in force a person ends: their own, or the one that they name. Raises ValueError where there is none."""
    ended = tuple(each for each in found if (each.is_of(of) if of else each.owner == owner))
    if not ended:
        raise ValueError(f"expected a pause of {of or owner}, and there is none; in force: {described(found)}")
    return ended


def unpaused(pauses: Pauses, ended: tuple[Pause, ...], *, who: str, reason: str, now: datetime, replaced: bool = False) -> Pauses:
    """The pauses after a person ended those. replaced: by the next one of the same owner."""
    return tuple(
        replace(each, ended=now, ended_by=who, ended_why=reason, replaced=replaced)
        if each.pause in ended and each.end(now) is PauseEnd.IN_FORCE
        else each
        for each in pauses
    )


def paused(pauses: Pauses, pause: Pause) -> Pauses:
    """The pauses after a person set one, which replaces the same owner's. The last PAUSES_REMEMBERED that are over are kept.
    Raises ValueError where so many are in force."""
    now = pause.since
    former = tuple(each for each in in_force(pauses, now) if each.owner == pause.owner)
    stand = (*unpaused(pauses, former, who=pause.who, reason=pause.reason, now=now, replaced=True), PastPause(pause=pause))
    over = [each for each in stand if each.end(now) is not PauseEnd.IN_FORCE]
    too_many = len(stand) - PAUSES_REMEMBERED
    if too_many > len(over):
        raise ValueError(f"expected at most {PAUSES_REMEMBERED} pauses in force: end one of them first")
    forgotten = over[: max(too_many, 0)]
    return tuple(each for each in stand if each not in forgotten)
