"""A spell of sickness: one node from the moment at which a repair was due until it is well, replaced, repaired or given up.

The scanner keeps the spells of nodes that it does not repair (because of the mode, an open circuit breaker, a pause, a hold, a
cap, a back-off), and records each once it has ended, as a workflow of the type `Observation`. Wire types: they grow by fields
with defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import partial
from math import inf

from policy.episode.decisions import Decision, DecisionKind
from policy.episode.gate import MODE
from policy.episode.permits import HoldOff
from policy.values.display_text import counted
from policy.values.mode import Mode
from policy.values.times import as_of, written


class Ending(StrEnum):
    """What became of a node."""

    CAME_BACK = "came-back"
    """It was well again, and no trace of another hand was found."""
    OTHERS = "repaired-by-others"
    """A person or another system rebooted, cordoned, replaced or deleted it, or switched it off or on."""
    OURS = "episode-began"
    """An episode of ours began for it: `Spell.incident`. What became of the node is that episode's outcome."""
    STILL_SICK = "still-sick"
    """The record was closed (it had lasted for too long, or the scanner was stopped) while the node was sick."""
    NOT_OURS = "not-watched"
    """No check asks for it any more: the check, its selector or its time-out changed, or the check was deleted."""

    @classmethod
    def _missing_(cls, value: object) -> Ending | None:
        """Earlier builds wrote `repaired` where an episode began."""
        return cls.OURS if value == "repaired" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpan:
    """What kept the node from a repair, and when. code: of `policy.scan.permit_rules.AdmissionRefusal`, or the name of a row of
    `policy.episode.gate.RULES`. until: None while it lasts. mode: of the node meanwhile, as one that allows no repair would have
    held it as well; None where that is not known."""

    code: str
    message: str
    since: datetime
    until: datetime | None = None
    mode: Mode | None = None

    @property
    def in_words(self) -> str:
        """With the mode where that would have held the node, too."""
        also = self.mode if self.mode not in {None, Mode.REPAIR} and self.code != MODE else None
        return held_by(self.code, self.message) + (f"; its mode was {also}, which holds it as well" if also else "")


def held_by(code: str, message: str) -> str:
    """A message after its code, but for one that begins with it: "Paused: paused by …", "mode: its mode is …" say it twice."""
    return message if code.lower() in message.lower().partition(":")[0] else f"{code}: {message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """One spell. since: from when on the node was sick, as its condition says. due: when a repair would have begun
    but for `held`.

    check: the key of the health check that asks. cause: what is wrong, as one stable word (`ReadyUnknown`). steps: what would
    have been done, in its order, in words. place: how many candidates stood before it when it came due. mode: the one that
    held for it then. boot_id, uid: of the Node at `due`. held: what kept it, oldest span first, the same code never twice in a
    row but for the mode. ended: None while it lasts. ending, traces: what became of it and by which signs (`another boot id`,
    `cordoned by kubectl`). incident: of our episode, "" for none. storm: the id that all spells of one storm share, ""
    outside of one.
    """

    node: str
    check: str
    cause: str
    since: datetime
    due: datetime
    uid: str = ""
    boot_id: str = ""
    steps: tuple[str, ...] = ()
    place: int = 0
    mode: Mode = Mode.REPAIR
    held: tuple[HeldSpan, ...] = ()
    ended: datetime | None = None
    ending: Ending | None = None
    traces: tuple[str, ...] = ()
    incident: str = ""
    storm: str = ""

    @property
    def lasted(self) -> timedelta | None:
        """From the beginning of the sickness to its end, None while it lasts."""
        return self.ended - self.since if self.ended is not None else None

    def record_id(self, cluster: str) -> str:
        """The workflow id of its record, where it is recorded alone."""
        return f"observation/{cluster}/{self.node}/{self.due.isoformat()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDays:
    """How long nodes were looked at, one day (UTC), one check, one mode: the denominator of every rate. seconds: summed over the
    nodes that the check covers, only while the view of the cluster was live."""

    day: str
    check: str
    mode: Mode
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether a scanner may have counted it."""
        return _DAY.fullmatch(self.day) is not None and _is_date(self.day) and 0 <= self.seconds < inf


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
MOST_DAYS = 2000
MOST_RECORDS = 10
MOST_HELD_OFF = 2000
"""So many counts of days, and records of them, one scanner takes over from another."""


def _is_date(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


OBSERVATION = "Observation"
"""The workflow type of what is recorded."""
MOST_RECORDED = 200
"""So many spells one record has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRecord:
    """What one workflow of the type `Observation` is started with, and returns: one spell, spells of one storm, or node-days.

    part: of the records of a storm that is too large for one, from 0. until: of the node-days of a day on which the scanner was
    stopped.
    """

    cluster: str = ""
    spells: tuple[Spell, ...] = ()
    days: tuple[NodeDays, ...] = ()
    part: int = 0
    until: datetime | None = None

    @property
    def workflow_id(self) -> str:
        """The same for the same record, so that none is made twice. Raises ValueError for one that is none of these.

        No node's name begins with a hyphen, as the names of storms and days do.
        """
        root = f"observation/{self.cluster}"
        if self.cluster and self.days and not self.spells:
            return f"{root}/-days/{self.days[0].day}" + (f"/{self.until.isoformat()}" if self.until is not None else "")
        if not self.cluster or not self.spells or self.days or len({each.storm for each in self.spells}) > 1:
            raise ValueError("expected a cluster, and one spell, the spells of one storm, or node-days")
        first = self.spells[0]
        if first.storm:
            return f"{root}/-storm/{first.storm}" + (f"/{self.part}" if self.part else "")
        if len(self.spells) > 1:
            raise ValueError("expected one spell, or spells of one storm")
        return first.record_id(self.cluster)

    @property
    def over(self) -> datetime:
        if self.days and self.until is None:
            return datetime.fromisoformat(f"{self.days[0].day}T00:00:00Z") + timedelta(days=1)
        return self.until or max(each.ended or each.due for each in self.spells)

    @property
    def is_sound(self) -> bool:
        """Whether a scanner may have left it to the next one: node-days of one day."""
        if self.spells or len(self.days) > MOST_DAYS or not all(each.is_sound for each in self.days):
            return False
        return len({each.day for each in self.days}) == 1 and (self.until is None or self.until.tzinfo is not None)

    def decisions(self) -> tuple[Decision, ...]:
        return tuple(
            Decision(
                id=each.record_id(self.cluster),
                at=each.ended or each.due,
                cluster=self.cluster,
                kind=DecisionKind.OBSERVED,
                node=each.node,
                uid=each.uid,
                workflow_id=self.workflow_id,
                incident=each.incident,
                act=each.cause,
                outcome=each.ending or "",
                rule=each.held[-1].code if each.held else "",
                check=each.check,
                numbers={"seconds": each.lasted.total_seconds(), "place": each.place} if each.lasted is not None else {},
                message="; ".join((*each.traces, *(held.message for held in each.held[-1:]))),
            )
            for each in self.spells
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerSpells:
    """Answer of the scanner's `spells` query: the open spells, and those that have ended and are not recorded yet; left_out: how
    many more nodes are due. days: the node-days that are not recorded yet. records: those that a stop could not record.
    former_run: an earlier one that is still to be asked, before which nothing is known of these. held_off: nodes that are left
    alone until they are well or a person asks."""

    spells: tuple[Spell, ...] = ()
    left_out: int = 0
    days: tuple[NodeDays, ...] = ()
    records: tuple[ObservationRecord, ...] = ()
    former_run: str = ""
    held_off: tuple[HoldOff, ...] = ()


def unsound(spell: Spell) -> str:
    """What no scanner records, as a field and what was expected of it; "" for nothing."""
    spans = [moment for each in spell.held for moment in (each.since, each.until)]
    for name, moment in (("since", spell.since), ("due", spell.due), ("ended", spell.ended), *(("held", each) for each in spans)):
        if moment is not None and moment.tzinfo is None:
            return f"{name}: expected a moment with its zone, such as 2026-11-28T03:12:05Z, got {moment.isoformat()}"
    if not spell.since <= spell.due:
        return f"due: expected a moment from {written(spell.since)} on, got {written(spell.due)}"
    if spell.ended is not None and spell.ended < spell.since:
        return f"ended: expected a moment from {written(spell.since)} on, got {written(spell.ended)}"
    if (spell.ended is None) is not (spell.ending is None):
        return "ending: expected one of a spell that has ended, and none of one that lasts"
    return ""


# In words: what was seen, what held the node and since when, and what became of it ---------------------------------------

LATELY = timedelta(hours=1)
"""How long after its end a spell is still an answer."""

_ENDINGS = {
    Ending.CAME_BACK: "it came back by itself",
    Ending.OTHERS: "others repaired it",
    Ending.OURS: "an episode of ours began",
    Ending.STILL_SICK: "it was still sick when the record was closed",
    Ending.NOT_OURS: "no health check asked for it any more",
}


def ending(spell: Spell) -> str:
    """What became of the node, in words; "" while the spell lasts."""
    if spell.ending is None:
        return ""
    more = ", ".join((*spell.traces, *((f"incident {spell.incident}",) if spell.incident else ())))
    return _ENDINGS[spell.ending] + (f" ({more})" if more else "")


def would_have(spell: Spell) -> str:
    """The whole spell in one sentence, without its moments."""
    steps = f" ({', '.join(spell.steps)})" if spell.steps else ""
    last = {each.code: each.message for each in spell.held}  # as it was said last
    held = f"; what held it: {', '.join(held_by(*each) for each in last.items())}" if last else ""
    return f"would have been repaired{steps}: {spell.cause}, under {spell.check}{held}; {ending(spell) or _lasts(spell)}"


def _lasts(spell: Spell) -> str:
    """Nothing holds it any more once its episode is under way; the scanner ends the spell with its next report."""
    under_way = spell.held and spell.held[-1].until is not None
    return "its episode is under way" if under_way else "it is still sick"


def dated(spell: Spell) -> str:
    """The same after its moments, in UTC."""
    until = f"to {written(spell.ended)}" if spell.ended is not None else "until now"
    return f"{written(spell.due)} {until}: {would_have(spell)}"


def is_about(spell: Spell, moment: datetime) -> bool:
    """Whether it says how the node was at that moment: it was sick then, or had been lately."""
    return spell.since <= moment and (spell.ended is None or moment < spell.ended + LATELY)


def why_not_repaired(spells: Iterable[Spell], moment: datetime) -> Iterator[str]:
    """Of one node, the oldest spell first, in the zone of the moment. What came later than the moment is left out, but for the
    end of a spell that it lies in."""
    clock = partial(as_of, moment)
    for spell in sorted(spells, key=lambda each: each.due):
        if not is_about(spell, moment):
            continue
        if spell.ended is not None and spell.ended <= moment:
            if spell.ending is Ending.OURS:
                yield f"not repaired until {clock(spell.ended)} ({spell.cause}, under {spell.check}), when {ending(spell)}"
                continue
            yield f"it had been sick until {clock(spell.ended)} ({spell.cause}, under {spell.check}): {ending(spell)}"
            continue
        yield f"it was sick since {clock(spell.since)}: {spell.cause}, under {spell.check}"
        if moment < spell.due:
            yield f"a repair was due at {clock(spell.due)} only"
            continue
        steps = f" ({', '.join(spell.steps)})" if spell.steps else ""
        turn = f"after {counted(spell.place, 'other node')}" if spell.place else "before every other node"
        yield f"it would have been repaired{steps} from {clock(spell.due)} on, {turn}"
        held = next(
            (each for each in reversed(spell.held) if each.since <= moment and (each.until is None or moment < each.until)), None
        )
        if held is not None:
            yield f"what held it since {clock(held.since)}: {held.in_words}"
        if spell.ended is not None:
            yield f"what became of it, at {clock(spell.ended)}: {ending(spell)}"
