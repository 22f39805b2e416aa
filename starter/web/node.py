"""One node: why it is, or is not, touched, its checks and devices, and its timeline; as a page, as a picture, and for programs.

The timeline is all that is known to have happened to it, in one order: its conditions, verdicts, episodes with their acts and
proofs, commands of people, and pauses of the cluster; and from that, why it was or was not touched at some moment.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby, zip_longest
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from policy.checks.verdict import Health
from policy.episode.gate import MAY_NOT_ACT
from policy.episode.messages import GOOD_ENDS, EpisodeStatus, Kind, Outcome, Phase, RecordEntry
from policy.fence.device_check import DeviceRow
from policy.history.spells import Spell, why_not_repaired, would_have
from policy.objects.nodes import READY
from policy.scan.pauses import Pauses, since
from policy.scan.scan_report import TargetRow
from policy.values.times import read_as_of, written
from starter import wording
from starter.errors import MissingError, RequestError, UnreadableError
from starter.handles.history import EndedEpisode, EpisodeRecord
from starter.handles.observations import NONE_OBSERVED
from starter.output.cluster_moment import zoned
from starter.output.evaluation import in_one_line
from starter.output.explanation import NodeExplanation, conclusion, covers, scanner_lines
from starter.output.record_table import END, moments_of
from starter.web import api
from starter.web.api import asked_moment
from starter.web.now import overview_of
from starter.web.pages import EVERY, render, templates
from starter.web.views import Views, explained, views_of

# The timeline: the acts are those of `nodewarden record`, the episodes those of `nodewarden history`, the verdicts those of
# `nodewarden explain`. Nothing is remembered here: what Temporal and the cluster have forgotten is not shown.

COMMANDS = frozenset({"abort", "acknowledge-off", "extend", "hold", "isolate", "release", "request", "resume", "return-path"})
GIVEN = frozenset({"asked", "given", "taken back"})
"""An entry of a record is a person's word where its act is among those, and its outcome among these."""
NONE_BEGINS = ", and no episode could begin during a pause"
LATELY = timedelta(hours=1)
NOT_RECORDED = "the queue for permits, open circuit breakers and a view that was not live"
"""What may have been why, and is in no record."""


class TimelineKind(StrEnum):
    """What kind of thing an entry is."""

    CONDITION = "condition"
    VERDICT = "verdict"
    EPISODE = "episode"
    ACT = "act"
    PROOF = "proof"
    COMMAND = "command"
    PAUSE = "pause"
    OBSERVATION = "observation"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """until: when it was over: of an act when the next one of the same episode came, null where that is not known. goes_on: it
    is still so. trouble: it was not as it should be."""

    at: datetime
    kind: TimelineKind
    what: str
    detail: str = ""
    incident: str = ""
    until: datetime | None = None
    goes_on: bool = False
    trouble: bool = False

    def holds(self, moment: datetime) -> bool:
        """Whether it was so then."""
        return self.at <= moment and (self.goes_on or (self.until is not None and moment < self.until))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimeline:
    """The newest last. more: Temporal remembers older episodes that are not among these. unread: why its conditions and the
    checks' verdicts are not among them, but for what the scanner tells; "" where the cluster was read."""

    cluster: str
    node: str
    at: datetime
    entries: tuple[TimelineEntry, ...]
    more: bool = False
    unread: str = ""


def timeline(
    cluster: str,
    answer: NodeExplanation,
    *,
    row: TargetRow | None = None,
    current: EpisodeRecord | None = None,
    ended: Sequence[EndedEpisode] = (),
    pauses: Pauses = (),
    spells: Sequence[Spell] = (),
    more: bool = False,
) -> NodeTimeline:
    """row: how the scanner has seen it, for where the cluster was not read. current: the open episode's record. Pauses that were
    over before anything else are left out."""
    found = [*_conditions(answer, row), *_verdicts(answer, row)]
    if current is not None:
        found += _episode(current, current.entries)
    for each in ended:
        found += _episode(each, each.result.record if each.result is not None else ())
    found += [
        TimelineEntry(
            at=each.due,
            kind=TimelineKind.OBSERVATION,
            what=would_have(each),
            until=each.ended,
            goes_on=each.ended is None,
            incident=each.incident,
        )
        for each in spells
    ]
    began = min((each.at for each in found), default=answer.at)
    found += [each for each in _pauses(pauses, answer.at) if each.goes_on or (each.until or each.at) >= began]
    found.sort(key=lambda each: each.at)
    return NodeTimeline(
        cluster=cluster,
        node=answer.node,
        at=answer.at,
        entries=tuple(found),
        more=more,
        unread=answer.problems[0] if answer.unread else "",
    )


def _conditions(answer: NodeExplanation, row: TargetRow | None) -> Iterator[TimelineEntry]:
    """As they are now, and since when: what they were before is not recorded."""
    for each in answer.explanation.conditions if answer.explanation is not None else ():
        if each.since is not None and (each.type == READY or each.status != "False"):
            well = each.type == READY and each.status == "True"
            yield TimelineEntry(
                at=each.since,
                kind=TimelineKind.CONDITION,
                what=f"{each.type} is {each.status}",
                detail=": ".join(filter(None, (each.reason, in_one_line(each.message)))),
                goes_on=True,
                trouble=not well,
            )
    if answer.explanation is None and row is not None and row.since is not None and row.ready != "True":
        yield TimelineEntry(at=row.since, kind=TimelineKind.CONDITION, what=f"Ready is {row.ready}", goes_on=True, trouble=True)


def _verdicts(answer: NodeExplanation, row: TargetRow | None) -> Iterator[TimelineEntry]:
    for each in answer.explanation.opinions if answer.explanation is not None else ():
        verdict = each.target.verdict
        if verdict.health is Health.UNHEALTHY and verdict.since is not None:
            said = in_one_line(each.target.message) or verdict.reason
            yield _verdict(verdict.expired or verdict.since, each.check.check.ref.key, said)
    if answer.explanation is None and row is not None and row.health is Health.UNHEALTHY and row.since is not None:
        yield _verdict(row.since, row.check, row.reason)


def _verdict(at: datetime, check: str, said: str) -> TimelineEntry:
    what = f"unhealthy under {check}" if check else "unhealthy"
    return TimelineEntry(at=at, kind=TimelineKind.VERDICT, what=what, detail=said, goes_on=True, trouble=True)


def _episode(episode: EpisodeRecord | EndedEpisode, entries: Sequence[RecordEntry]) -> Iterator[TimelineEntry]:
    """Its beginning, all of its record, and its end where the record does not have one."""
    assert episode.kind is not None
    open_now = episode.ended is None
    yield TimelineEntry(
        at=episode.started,
        kind=TimelineKind.EPISODE,
        what=f"{episode.kind.value} begins" if open_now else f"{episode.kind.value}: {episode.outcome}",
        detail=episode.why or "no reason given",
        incident=episode.incident,
        until=episode.ended,
        goes_on=open_now,
    )
    firsts = [first for first, *_ in (list(same) for _, same in groupby(entries, key=_what))]  # what is tried again is one entry
    for entry, following in zip_longest(firsts, firsts[1:]):
        last = episode.ended if following is None else following.at
        (moment,) = moments_of((entry,))
        what, detail = (moment.detail, "") if entry.act == "phase" else (moment.what, moment.detail)
        yield TimelineEntry(
            at=entry.at,
            kind=_kind(entry, proof=moment.proof),
            what=what,
            detail=detail,
            incident=episode.incident,
            until=None if entry.act == END else last,
            goes_on=open_now and following is None,
            trouble=entry.outcome in {"failed", Phase.NEEDS_HUMAN.value, "parked"},
        )
    if episode.ended is not None and not any(entry.act == END for entry in entries):
        well = episode.outcome in GOOD_ENDS
        yield TimelineEntry(
            at=episode.ended,
            kind=TimelineKind.ACT,
            what=episode.outcome,
            detail=episode.message,
            incident=episode.incident,
            trouble=not well,
        )


def _what(entry: RecordEntry) -> tuple[str, ...]:
    return entry.step, entry.act, entry.outcome, entry.detail


def _kind(entry: RecordEntry, *, proof: bool) -> TimelineKind:
    if entry.act in COMMANDS and entry.outcome in GIVEN:
        return TimelineKind.COMMAND
    return TimelineKind.PROOF if proof else TimelineKind.ACT


def _pauses(pauses: Pauses, now: datetime) -> Iterator[TimelineEntry]:
    for each in pauses:
        over = each.over_at(now)
        until = f" until {written(each.pause.until)}" if over is None and each.pause.until is not None else ""
        ended = f"; {each.end(now).value} by {each.ended_by}: {each.ended_why}" if each.ended_by else ""
        yield TimelineEntry(
            at=each.pause.since,
            kind=TimelineKind.PAUSE,
            what=f"the cluster {'is' if over is None else 'was'} paused by {each.pause.who}{until}",
            detail=f"{each.pause.reason}{ended}",
            until=over,
            goes_on=over is None,
        )


# At some moment ---------------------------------------------------------------------------------------------------------


def why_at(known: NodeTimeline, moment: datetime, pauses: Pauses, spells: Sequence[Spell] = ()) -> list[str]:
    """What is on record of that moment, in sentences, with all moments in its zone: which pauses held in its minute, what was so,
    and what had been done last; nothing that came of it later, and what no record has. pauses: all that are remembered, also
    those that the timeline leaves out. spells: of the node, while it was not repaired."""
    return [read_as_of(moment, each) for each in _why_at(known, moment, pauses, spells)]


def _why_at(known: NodeTimeline, moment: datetime, pauses: Pauses, spells: Sequence[Spell]) -> list[str]:
    if moment > known.at:
        return ["that is still to come"]
    paused = [each for each in since(pauses, moment, known.at) if each.pause.since < moment + timedelta(minutes=1)]
    holding = [each for each in known.entries if each.holds(moment)]
    episodes = [each for each in holding if each.kind is TimelineKind.EPISODE]
    said = [f"since {written(each.pause.since)} the cluster was {each.pause}" for each in paused]
    said += [_so(_line(each), each, moment) for each in holding if each.kind in {TimelineKind.CONDITION, TimelineKind.VERDICT}]
    for episode in episodes:
        kind = episode.what.partition(":")[0].removesuffix(" begins")  # how it ended is of a later moment
        said.append(_so(f"{kind} was open: {episode.detail}", episode, moment))
        own = [each for each in known.entries if each.incident == episode.incident and each.at <= moment]
        phase = next((each for each in reversed(own) if each.what in wording.PHASES.values()), None)
        said += [_so(f"it was in phase {each.what!r}", each, moment) for each in (phase,) if each is not None]
        last = next((each for each in reversed(own) if each not in {episode, phase}), None)
        said += [f"last before it, {wording.span(moment - last.at)} earlier: {_line(last)}"] if last is not None else []
    observed = list(why_not_repaired(spells, moment))
    if not episodes:
        said += [*observed, *_refusal(known, moment)]
        said.append(
            "no episode of the node was open, as far as Temporal remembers: nothing was done to it"
            + (NONE_BEGINS if paused else "")
        )
    if observed:
        return said
    recorded = episodes or any(each.kind is TimelineKind.CONDITION for each in holding)
    return [*said, f"not recorded, and so not shown here: {NOT_RECORDED}{'' if recorded else '; conditions of that time'}"]


def _refusal(known: NodeTimeline, moment: datetime) -> list[str]:
    """The last request for the node that was refused within an hour before, and why."""
    refused = [
        each for each in known.entries if each.kind is TimelineKind.EPISODE and each.what.endswith(f": {Outcome.REFUSED.value}")
    ]
    asked = next((each for each in reversed(refused) if (each.until or each.at) <= moment < each.at + LATELY), None)
    if asked is None:
        return []
    why = next((each.detail for each in reversed(known.entries) if each.incident == asked.incident and each is not asked), "")
    what = asked.what.partition(":")[0]
    return [f"{what} was asked for {wording.span(moment - asked.at)} earlier, and refused: {why or asked.detail}"]


def _so(said: str, entry: TimelineEntry, moment: datetime) -> str:
    return f"{said} (for {wording.span(moment - entry.at)} by then)"


def _line(entry: TimelineEntry) -> str:
    return ": ".join(filter(None, (entry.what, entry.detail)))


def printable(known: NodeTimeline) -> NodeTimeline:
    """Without the characters that XML has no way to write, as a name or a reason may hold them."""

    def clean(text: str) -> str:
        return "".join(each if each.isprintable() else " " for each in text)

    entries = tuple(replace(each, what=clean(each.what), detail=clean(each.detail)) for each in known.entries)
    return replace(known, node=clean(known.node), entries=entries)


# The page of a node, and what of it programs are answered.

EPISODES_SHOWN = 20
"""The last ones of a node."""
SVG_LINE = 100
"""Characters of a line in the picture, in a typeface in which all are about as wide."""

router = APIRouter()
api.KINDS[f"{api.OF_CLUSTER}/timeline/{{node}}"] = NodeTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """Everything that a node's page shows. row: as the scanner sees it, None where its report has no room for it. devices: those
    by which it would be fenced, None where they were never checked, or that can't be asked."""

    explained: NodeExplanation
    timeline: NodeTimeline
    row: TargetRow | None
    devices: tuple[DeviceRow, ...] | None
    pauses: Pauses


async def seen(views: Views, cluster: str, node: str) -> NodeSeen:
    """Raises SilentError, MissingError also where the cluster was read and there is no trace of the node."""
    view, warden = views.known(cluster), views.warden
    answer, status = await asyncio.gather(explained(views, cluster, node), view.status())
    ended, pauses, devices = await asyncio.gather(
        warden.history.ended(cluster, node=node, limit=EPISODES_SHOWN),
        warden.scanner(cluster).pauses(),
        _devices(views, cluster, node),
    )
    observed = answer.observed or NONE_OBSERVED
    current = await warden.history.record(cluster, node) if answer.episode is not None else None
    row = next((each for each in overview_of(status).rows if each.node == node), None)
    if not (answer.known or answer.unread or row or ended.episodes):
        raise MissingError(f"there is no Node or Machine {node} in {cluster}, and nothing is on record of one")
    known = timeline(
        cluster,
        answer,
        row=row,
        current=current if current is not None and current.ended is None else None,
        ended=ended.episodes,
        pauses=pauses,
        spells=observed.spells,
        more=ended.more or bool(observed.unknown),
    )
    return NodeSeen(explained=answer, timeline=known, row=row, devices=devices, pauses=pauses)


async def _devices(views: Views, cluster: str, node: str) -> tuple[DeviceRow, ...] | None:
    try:
        report = await views.known(cluster).fence_devices()
    except RequestError:
        return None  # no check of devices runs, which the page of all devices says
    return tuple(each for each in report.rows if each.node == node) if report is not None else None


@router.get(f"{api.OF_CLUSTER}/timeline/{{node:path}}", response_class=Response, response_model=None)
async def node_timeline(request: Request, cluster: str, node: str) -> object:
    """All that is known to have happened to one node, in one order: conditions, verdicts, episodes with their acts and proofs,
    people's words, pauses."""
    return api.answer((await seen(views_of(request), cluster, node)).timeline)


@router.get("/c/{cluster}/nodes/{name:path}/timeline.svg", include_in_schema=False)
async def picture(request: Request, cluster: str, name: str) -> Response:
    """The timeline as a file, to attach to what is written about it afterwards."""
    known = printable((await seen(views_of(request), cluster, name)).timeline)
    lines = [textwrap.wrap(": ".join(filter(None, (each.what, each.detail))), SVG_LINE) for each in known.entries]
    body = templates.get_template("timeline.svg.xml").render(
        known=known, rows=list(zip(known.entries, lines, strict=True)), height=sum(map(len, lines))
    )
    file = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{name}-timeline.svg")
    return Response(body, media_type="image/svg+xml", headers={"Content-Disposition": f'attachment; filename="{file}"'})


@router.get("/c/{cluster}/nodes/{name:path}", include_in_schema=False)
async def node(request: Request, cluster: str, name: str, at: str = "", offset: str = "") -> Response:
    """Why it is, or is not, touched; at: also at that moment, as browsers write it, in the zone with that offset."""
    found = await seen(views_of(request), cluster, name)
    answer, headline = found.explained, headline_of(found)
    then = await _then(views_of(request), found, at + offset) if at else {}
    said = [*answer.problems, *(scanner_lines(answer, answer.scanner) if answer.scanner is not None else ())]
    return render(
        request,
        "node.html",
        name,
        cluster=cluster,
        name=name,
        headline=headline,
        said=[each for each in said if not covers(headline, each)],
        answer=answer,
        opinions=answer.explanation.opinions if answer.explanation is not None else (),
        episode=answer.episode,
        known=found.timeline,
        devices=found.devices,
        then=then,
        asked={"at": f"{then['moment'].astimezone(UTC):%Y-%m-%dT%H:%M:%S}"} if "moment" in then else {},
        kinds=TimelineKind,
        every=EVERY,
    )


def headline_of(found: NodeSeen) -> str:
    """Whether something is done to it, and why, by the source that knows most; without the time left, which is shown beside
    it."""
    answer = found.explained
    if answer.episode is not None:
        return _of_episode(answer.episode)
    if answer.explanation is not None:
        return f"No: {conclusion(answer) if answer.explanation.found else 'it has neither a Node nor a Machine'}"
    if found.row is not None:
        halted = f"; nothing is begun: {answer.halted}" if answer.halted and found.row.health is not Health.HEALTHY else ""
        verdict = wording.verdict(found.row, answer.at)
        if answer.unread:
            return (
                f"Not known: no episode is open, and the cluster can't be read now; the scanner last saw it as {verdict}{halted}"
            )
        return f"No episode is open: {verdict}{halted}"
    return "Not known: no episode of it is open, and no health check's verdict is known here"


def _of_episode(episode: EpisodeStatus) -> str:
    if episode.phase is Phase.NEEDS_HUMAN:
        held = f"; it is {episode.held}" if episode.held else ""
        return f"Not now: its episode waits for a person: {episode.problem or episode.doing}{held}"
    if episode.phase is Phase.QUEUED:
        return f"Not yet: its {episode.kind.value.lower()} waits for a permit: {episode.queued or 'other nodes hold all permits'}"
    if episode.kind is Kind.PRESERVATION:
        return f"No: it is kept as it is {wording.kept_by(episode)}"
    if episode.held:
        return f"Not now: its {episode.kind.value.lower()} is held back: {episode.held}"
    if episode.doing.startswith(MAY_NOT_ACT):
        return f"Not now: its {episode.kind.value.lower()} {episode.doing}"
    return f"Yes, by {episode.kind.value.lower()}: {episode.doing or episode.step or episode.reason}"


async def _then(views: Views, found: NodeSeen, at: str) -> dict[str, Any]:
    try:
        moment = asked_moment(at, found.timeline.at)
    except UnreadableError as error:
        return {"problem": str(error)}
    then = await views.warden.observations.spells_at(found.timeline.cluster, moment, node=found.timeline.node)
    said = why_at(found.timeline, moment, found.pauses, then.spells)
    return {"moment": moment, "zoned": zoned(moment), "said": [*said, *(f"not shown: {each}" for each in then.unknown)]}
