"""A cluster, or one node of it, at one moment: which episodes were open and what each was at, what ended just before it and began
just after, which nodes were sick and not repaired, what held them, which pauses were in force. From records alone. `sections` is
what people read of it, `ClusterMoment` what programs do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from policy.episode.messages import Kind, Outcome, RecordEntry
from policy.history.spells import Spell, why_not_repaired
from policy.scan.pauses import Pauses
from policy.values.times import as_of, read_as_of, written
from starter import wording
from starter.handles.history import MOST_LISTED, EpisodeRecord
from starter.output.record_table import NOT_REPAIRED, moments_of

if TYPE_CHECKING:
    from starter.client import Nodewarden

AROUND = timedelta(minutes=10)
EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)
NOT_RECORDED = (
    "conditions of nodes that were not due for a repair; circuit breakers, holds and modes that kept no due node from one"
)


class Stood(StrEnum):
    """How an episode stood at the moment: it was open, had ended or was refused shortly before, or began shortly after."""

    OPEN = "open"
    ENDED = "ended"
    REFUSED = "refused"
    BEGAN = "began"


HEADINGS = {
    Stood.OPEN: "Open at that moment",
    Stood.ENDED: f"Ended in the {wording.span(AROUND)} before",
    Stood.REFUSED: f"Refused in the {wording.span(AROUND)} before",
    Stood.BEGAN: f"Began in the {wording.span(AROUND)} after",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeThen:
    """phase, step, holds: at the moment. holds: those that were asked for and that no person had ended. last, next: the
    entries of its record before the moment and after it. ended: null while it is open, or where its end is not known."""

    node: str
    stood: Stood
    kind: Kind
    incident: str
    why: str
    started: datetime
    ended: datetime | None
    outcome: str
    message: str
    phase: str
    step: str
    holds: tuple[str, ...]
    last: RecordEntry | None
    next: RecordEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMoment:
    """zone: the reader's. node: the one that was asked for, "" for all. scanned: a scanner was at work, as far as Temporal
    remembers. more: some episodes are left out. spells: of nodes that were sick then or lately and not repaired, the oldest
    first, each whole, also with what came later. unknown: what else is left out, as sentences."""

    cluster: str
    at: datetime
    zone: str
    episodes: tuple[EpisodeThen, ...]
    pauses: Pauses
    scanned: bool
    more: bool
    node: str = ""
    spells: tuple[Spell, ...] = ()
    unknown: tuple[str, ...] = ()


Sections = list[tuple[str, Sequence[tuple[EpisodeThen | None, str]]]]


def asked_moment(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """A moment as people write it: ISO 8601, or `03:12` or `03:12:07` for the last time that it was that late; without an
    offset in that zone, None: in this machine's. Raises ValueError."""

    def placed(moment: datetime) -> datetime:
        return moment if moment.tzinfo else moment.replace(tzinfo=zone) if zone else moment.astimezone()

    said = text.strip()
    of_a_day = 0 < len(said) <= len("03:12") or said[2:3] == said[5:6] == ":"
    try:
        today = now.astimezone(zone).date()
        days = (today, today - timedelta(days=1)) if of_a_day else ("",)
        found = next(each for each in (placed(datetime.fromisoformat(f"{day} {said}".strip())) for day in days) if each <= now)
    except (ValueError, OverflowError, StopIteration):
        found = datetime.min.replace(tzinfo=UTC)
    if found < EARLIEST:
        forms = "03:12, 2026-11-26 03:12 or 2026-11-26T03:12Z, in your zone where it names none"
        raise ValueError(f"at: expected a moment of the past such as {forms}, got {text!r}")
    return found


def zoned(moment: datetime) -> str:
    """In its own zone, which is named."""
    return f"{moment.isoformat(' ', 'seconds')} ({moment.tzname()})"


async def cluster_moment(warden: Nodewarden, cluster: str, moment: datetime, *, node: str = "") -> ClusterMoment:
    """node: only that one, "" for all. Raises SilentError."""
    now = datetime.now(UTC)
    (found, more), scanned, pauses, observed = await asyncio.gather(
        warden.history.between(cluster, moment - AROUND, moment + AROUND, node=node),
        warden.history.was_scanned(cluster, moment),
        warden.scanner(cluster).pauses(),
        warden.observations.spells_at(cluster, moment, node=node),
    )
    return ClusterMoment(
        cluster=cluster,
        at=moment,
        zone=moment.tzname() or "",
        episodes=episodes_then(found, moment),
        pauses=tuple(each for each in pauses if each.pause.since <= moment < (each.over_at(now) or now)),
        scanned=scanned,
        more=more,
        node=node,
        spells=observed.spells,
        unknown=observed.unknown,
    )


def episodes_then(records: Sequence[EpisodeRecord], moment: datetime) -> tuple[EpisodeThen, ...]:
    """The oldest first. A request that was refused later never began."""
    found = (each for each in records if each.outcome != Outcome.REFUSED or (each.ended is not None and each.ended <= moment))
    return tuple(_then(each, moment) for each in sorted(found, key=lambda each: (each.started, each.node)))


def _then(record: EpisodeRecord, moment: datetime) -> EpisodeThen:
    assert record.kind is not None
    over = record.ended is not None and record.ended <= moment
    before = [each for each in record.entries if each.at <= moment]
    holds: dict[str, str] = {}
    for each in before:
        if each.act == "abort":
            holds.clear()  # an abort ends every hold
        if each.act in {"hold", "resume"}:
            # Its owner, before the reason; where another person ended it also until when it was to last.
            owner = each.detail.removeprefix("held ").partition(": ")[0].partition(", until ")[0]
            holds.pop(owner, None)
            if (each.act, each.outcome) == ("hold", "asked"):
                holds[owner] = each.detail
    stood = Stood.BEGAN if record.started > moment else Stood.ENDED if over else Stood.OPEN
    if record.outcome == Outcome.REFUSED:
        stood = Stood.REFUSED
    return EpisodeThen(
        node=record.node,
        stood=stood,
        kind=record.kind,
        incident=record.incident,
        why=record.why,
        started=record.started,
        ended=record.ended,
        outcome=record.outcome,
        message=record.message,
        phase=next((each.outcome for each in reversed(before) if each.act == "phase"), ""),
        step=before[-1].step if before else "",
        holds=() if over else tuple(holds.values()),
        last=before[-1] if before else None,
        next=next((each for each in record.entries if each.at > moment), None),
    )


def sections(found: ClusterMoment) -> Sections:
    """Headings, with what stands below each: which episode, None for what is said of the cluster, and a sentence, with all
    moments in the zone of the one that was asked for."""
    now = datetime.now(UTC)
    pauses = [
        f"paused from {written(each.pause.since)} {f'to {written(over)}' if (over := each.over_at(now)) else 'until now'} "
        f"{each.described(now)}"
        for each in found.pauses
    ]
    if not found.scanned:
        pauses.append("no scanner is on record of that moment: none ran, or Temporal has forgotten it")
    parts: Sections = [
        (f"{f'{found.node} of ' if found.node else ''}{found.cluster} at {zoned(found.at)}, as are all moments below", ()),
        ("What kept everything from being begun", [(None, each) for each in pauses or ("no pause that is on record",)]),
    ]
    held = [
        (None, f"{node}: {'; '.join(why_not_repaired([each for each in found.spells if each.node == node], found.at))}")
        for node in dict.fromkeys(each.node for each in found.spells)
    ]
    none = f"{found.node} was not due for a repair" if found.node else "no node that was due for a repair"
    if found.node and any(each.stood is Stood.OPEN and each.kind is not Kind.PRESERVATION for each in found.episodes):
        none = f"an episode of {found.node} was open: see below. No time before it in which it was due and not repaired"
    parts.append((f"{NOT_REPAIRED}, then or in the hour before", held or [(None, f"{none}, as far as Temporal remembers")]))
    for stood, heading in HEADINGS.items():
        lines = [(each, _sentence(each, found.at)) for each in found.episodes if each.stood is stood]
        if lines or stood is not Stood.REFUSED:
            parts.append((heading, lines or [(None, "no episode, as far as Temporal remembers")]))
    more = f"; episodes beyond the {MOST_LISTED} latest" if found.more else ""
    left_out = f"{NOT_RECORDED}, which are not recorded{more}"
    parts.append(("Not shown", [(None, each) for each in (left_out, *found.unknown)]))
    return [(heading, [(each, read_as_of(found.at, said)) for each, said in lines]) for heading, lines in parts]


def as_text(found: ClusterMoment) -> RenderableType:
    parts: list[RenderableType] = []
    for heading, lines in sections(found):
        parts.append(Text(heading, style="bold"))
        parts += [Padding(Text(f"{each.node}: {said}" if each else said), (0, 0, 0, 2)) for each, said in lines]
    return Group(*parts)


def _sentence(each: EpisodeThen, at: datetime) -> str:
    clock = partial(as_of, at)

    def entry(when: str, found: RecordEntry | None) -> list[str]:
        return (
            [f"{when.format(wording.span(abs(found.at - at)))}: {each.what}: {each.detail}" for each in moments_of([found])]
            if found
            else []
        )

    open_then, phase = each.stood is Stood.OPEN, wording.phase(each.phase) if each.phase else ""
    parts = [
        ", ".join(filter(None, (f"{each.kind.value} since {clock(each.started)}", *((phase, each.step) if open_then else ())))),
        f"because {each.why or 'no reason was given'}",
        *(f"a hold was asked for {hold}" for hold in each.holds),
        *(entry("last, {} earlier", each.last) if open_then else []),
        *(entry("next, {} later", each.next) if open_then else []),
        *([f"ended {clock(each.ended)}, {each.outcome}: {each.message}"] if each.ended is not None else []),
    ]
    return "; ".join(parts)
