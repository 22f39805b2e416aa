"""Which spells of sickness are open after a decision of the scanner, which are over, and how they ended.

A spell begins when a node is due and no episode of ours begins for it in that decision. It ends only on a positive sign: an
episode of ours has begun, or a live report says that the node is well, gone, another one, or asked about no more. A node that a
report leaves out keeps its spell as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice, takewhile

from policy.episode.gate import MODE
from policy.episode.messages import NeedKind
from policy.episode.permits import Permit
from policy.history.spells import Ending, HeldSpan, NodeDays, Spell
from policy.scan.admission import Refused
from policy.scan.scan_report import MAXIMUM_WATCHED, NodeStanding, ScanReport, WatchedNode
from policy.values.display_text import in_a_line
from policy.values.mode import Mode

MOST_OPEN = 1500
"""So many spells are kept at once, ended ones that are not recorded yet among them. Further ones are counted only."""
MOST_BYTES = 1_700_000
"""Of all of them: 2 MB is the most that Temporal takes for a scanner's state, and the rest is for the report and the permits."""
MOST_SPANS, MOST_SPANS_OF_MANY, MANY = 12, 2, 300
"""So many spans of what held it a spell keeps, its first and its latest ones, and how many where more than `MANY` are open."""
LONGEST = timedelta(days=7)
"""A spell that has lasted so long is recorded as still sick, and another one begins."""
STORM, STORM_WITHIN = 10, timedelta(minutes=1)
"""Where more spells than that begin within that time, they are one storm."""
LONGEST_TEXT = 160
"""Bytes: a reason in another script than ours takes three for a character."""
MOST_NAMED = 250_000
"""Bytes of the names in all spells: what is called at length leaves room for fewer."""

ANOTHER_NODE = "another Node object has its name"
ANOTHER_BOOT = "another boot id"
DELETED = "its Node was deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellChanges:
    """After one decision: the open spells by node, those that have just ended, and how many due nodes had no room."""

    spells: dict[str, Spell]
    ended: tuple[Spell, ...] = ()
    left_out: int = 0


def next_spells(
    spells: Mapping[str, Spell],
    report: ScanReport,
    refused: Iterable[Refused],
    *,
    begun: Mapping[str, Permit],
    busy: Collection[str] = (),
    waiting: Collection[Spell] = (),
    now: datetime,
) -> SpellChanges:
    """refused: by the decision about this report; the later counts. begun: the permits of open episodes, by node. busy: nodes
    of which the report says nothing now: an episode is being opened, or has just ended. waiting: spells that have ended and are
    not recorded yet."""
    live = report.view.synced and not report.view.stale
    due = {each.node: each for each in _due(report, refused)} if live else {}
    watched = {each.node: each for each in report.watched if each.standing is not NodeStanding.DUE} if live else {}
    kept: dict[str, Spell] = {}
    ended: list[Spell] = []
    for node, spell in spells.items():
        found, seen = due.get(node), watched.get(node)
        if node in begun:
            permit = begun[node]
            ended.append(replace(_closed(spell, Ending.OURS, max(permit.granted_at, spell.due)), incident=permit.incident))
        elif node in busy:
            kept[node] = replace(spell, held=_until(spell.held, now))  # its episode is under way: nothing holds it (S44)
        elif found is not None and _is_another(spell.uid, found.uid):
            ended.append(_closed(spell, Ending.OTHERS, now, ANOTHER_NODE))
        elif found is not None and now - spell.due >= LONGEST:
            ended.append(_closed(spell, Ending.STILL_SICK, now))
        elif found is not None:
            kept[node] = _held_now(spell, found, now, most=MOST_SPANS if len(spells) <= MANY else MOST_SPANS_OF_MANY)
        elif seen is None or seen.standing is NodeStanding.UNCLEAR:
            kept[node] = spell
        else:
            ended.append(_ended(spell, seen, now))
    new = [each for each in due.values() if each.node not in kept and each.node not in begun and each.node not in busy]
    room = _room(new, (*kept.values(), *ended, *waiting))
    kept |= {each.node: _begun(each, place, now) for place, each in enumerate(new[:room])}
    left_out = len(new[room:]) + (report.candidates_left_out if len(report.watched) >= MAXIMUM_WATCHED else 0)
    return SpellChanges(spells=_with_storm(kept, now), ended=tuple(ended), left_out=left_out)


def to_be_watched(spells: Iterable[str], report: ScanReport | None, *, room: int, now: datetime) -> tuple[str, ...]:
    """The nodes about which the next report is asked: those of open spells that are no candidates, then those that may be none
    by then. Where there is no room for all, other ones each minute, so that each has its turn."""
    offered = {each.node for each in report.candidates} if report is not None else set()
    names = sorted(set(spells) - offered)
    if len(names) <= room:
        return (*names, *sorted(offered.intersection(spells)))[:room]
    first = int(now.timestamp() // 60) * room % len(names)
    return tuple((*names[first:], *names[:first])[:room])


def closed_unended(spells: Iterable[Spell], now: datetime) -> list[Spell]:
    """The spells of a scanner that is stopped: their nodes are still sick."""
    return [_closed(each, Ending.STILL_SICK, now) for each in spells]


def with_traces(spell: Spell, traces: Collection[str]) -> Spell:
    """With what a live look has found of other hands since the node fell sick. They count where it seemed to come back by
    itself; the other endings stand."""
    if spell.ending is not Ending.CAME_BACK or not traces:
        return spell
    return replace(spell, ending=Ending.OTHERS, traces=(*spell.traces, *traces))


# One spell ------------------------------------------------------------------------------------------------------------


def _due(report: ScanReport, refused: Iterable[Refused]) -> Iterator[WatchedNode]:
    """The nodes for which a repair is due and was not begun in this decision, in the order in which they would be repaired."""
    why = {(each.node, each.check.key): each for each in refused}
    for each in sorted(report.candidates, key=lambda each: (each.since, each.node)):
        no = why.get((each.node, each.check.key))
        if each.need is not NeedKind.CHECK or no is None:
            continue
        vetoed = each.vetoed_by and no.message == each.refused
        code, message = (each.vetoed_by if vetoed else no.reason), no.message
        yield WatchedNode(
            node=each.node,
            standing=NodeStanding.DUE,
            uid=each.uid,
            boot_id=each.boot_id,
            check=each.check.key,
            cause=each.reason,
            since=each.since,
            steps=each.steps,
            code=code,
            message=message,
            mode=each.mode,
        )
    yield from (each for each in report.watched if each.standing is NodeStanding.DUE)


def _begun(found: WatchedNode, place: int, now: datetime) -> Spell:
    return Spell(
        node=found.node,
        check=found.check,
        cause=_cut(found.cause),
        since=min(found.since or now, now),
        due=now,
        uid=found.uid,
        boot_id=found.boot_id,
        steps=found.steps,
        place=place,
        mode=found.mode,
        held=(HeldSpan(code=found.code, message=_cut(found.message), since=now, mode=found.mode),),
    )


def _cut(text: str) -> str:
    return in_a_line(text, LONGEST_TEXT - 2).encode()[:LONGEST_TEXT].decode(errors="ignore")


def _room(new: Iterable[WatchedNode], known: Collection[Spell]) -> int:
    """How many of the new ones are kept beside those that are known."""
    left, named = max(MOST_OPEN - len(known), 0), MOST_NAMED - sum(map(_named, known))
    lengths = accumulate(map(_named, islice(new, left)))
    return sum(1 for _ in takewhile(lambda length: length <= named, lengths))


def _named(spell: Spell | WatchedNode) -> int:
    return len("".join((spell.node, spell.check, spell.uid, spell.boot_id, *spell.steps)).encode())


def _held_now(spell: Spell, found: WatchedNode, now: datetime, *, most: int) -> Spell:
    """The same code under the same mode goes on, with what its sentence says by now; a mode that was set in another way is a
    span of its own."""
    last = spell.held[-1] if spell.held else None
    spell = spell if spell.uid or not found.uid else replace(spell, uid=found.uid, boot_id=found.boot_id)
    span = HeldSpan(code=found.code, message=_cut(found.message), since=now, mode=found.mode)
    goes_on = last is not None and (last.code, last.mode or span.mode) == (span.code, span.mode)
    if last is not None and goes_on and (found.code != MODE or last.message == span.message):
        return replace(spell, held=(*spell.held[:-1], replace(last, message=span.message, until=None)))
    before = _until(spell.held, now)
    return replace(spell, held=(*before[:1], *before[1:][-(most - 2) or len(before) :], span))


def _ended(spell: Spell, seen: WatchedNode, now: datetime) -> Spell:
    if seen.standing is NodeStanding.GONE:
        return _closed(spell, Ending.OTHERS, now, DELETED)
    if _is_another(spell.uid, seen.uid):
        return _closed(spell, Ending.OTHERS, now, ANOTHER_NODE)
    if seen.standing is NodeStanding.UNCOVERED and not seen.ready:
        return _closed(spell, Ending.NOT_OURS, now)
    well_since = seen.ready_since if seen.ready else None
    at = well_since if well_since is not None and spell.due <= well_since <= now else now
    if _is_another(spell.boot_id, seen.boot_id):
        return _closed(spell, Ending.OTHERS, at, ANOTHER_BOOT)
    return _closed(spell, Ending.CAME_BACK, at)


def _closed(spell: Spell, ending: Ending, at: datetime, *traces: str) -> Spell:
    """at: no span ends before it began, although the node may have been well before the decision."""
    return replace(spell, ended=max(at, spell.since), ending=ending, traces=traces, held=_until(spell.held, at))


def _until(held: tuple[HeldSpan, ...], at: datetime) -> tuple[HeldSpan, ...]:
    return tuple(each if each.until is not None else replace(each, until=max(at, each.since)) for each in held)


def _is_another(before: str, now: str) -> bool:
    """An identity that is not known is no other one."""
    return bool(before and now and before != now)


def _with_storm(spells: dict[str, Spell], now: datetime) -> dict[str, Spell]:
    lately = [each for each in spells.values() if now - each.due < STORM_WITHIN]
    if len(lately) <= STORM:
        return spells
    storm = next((each.storm for each in lately if each.storm), now.astimezone(UTC).isoformat())
    return spells | {each.node: replace(each, storm=storm) for each in lately if not each.storm}


# Node-days ------------------------------------------------------------------------------------------------------------


def counted_days(
    days: Iterable[NodeDays], report: ScanReport, since: datetime | None, now: datetime, *, longest: timedelta
) -> tuple[NodeDays, ...]:
    """With the time since a report for the nodes that it had, under the day on which that time ends. since: when the report came,
    None if it or the next one was not live. longest: so much later it says nothing of the time between."""
    if since is None or not timedelta(0) < now - since <= longest or report.view.stale or not report.view.synced:
        return tuple(days)
    found = {(each.day, each.check, each.mode): each for each in days}
    day = now.astimezone(UTC).date().isoformat()
    for check in report.checks:
        for mode, nodes in check.modes or ((Mode.REPAIR, check.total),):
            key = day, check.ref.key, mode
            last = found.get(key) or NodeDays(day=day, check=check.ref.key, mode=mode, seconds=0.0)
            if nodes:
                found[key] = replace(last, seconds=last.seconds + nodes * (now - since).total_seconds())
    return tuple(found.values())
