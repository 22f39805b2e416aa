"""One node: why it is, or is not, touched, its timeline, its checks and devices; as a page, as a picture, and for programs."""

from __future__ import annotations

import asyncio
import re
import textwrap
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from policy.checks.verdicts import Health
from policy.episode.gate import MAY_NOT_ACT
from policy.episode.messages import EpisodeStatus, Kind, Phase
from policy.fence.device_check import DeviceRow
from policy.scan.pauses import Pauses
from policy.scan.scan_report import TargetRow
from starter import wording
from starter.errors import MissingError, RequestError
from starter.output.cluster_moment import zoned
from starter.output.explanation import NodeExplanation, conclusion, scanner_lines
from starter.web import api
from starter.web.answers import UnreadableError
from starter.web.overview import overview_of
from starter.web.pages import EVERY, render, templates
from starter.web.timeline import NodeTimeline, TimelineKind, asked_moment, printable, timeline, why_at
from starter.web.views import Views, explained, views_of

EPISODES_SHOWN = 20
"""The last ones of a node."""
PROGRAMS_WORD = re.compile(r"^[^:]*\([A-Z][A-Za-z]+\): ")
"""How a sentence about a node begins that names what programs call the reason."""
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
        spells=answer.observed.spells,
        more=ended.more or bool(answer.observed.unknown),
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
        return f"No: {conclusion(answer) if answer.explanation.found else 'the Node is gone'}"
    if found.row is not None:
        halted = f"; nothing is begun: {answer.halted}" if answer.halted and found.row.health is not Health.HEALTHY else ""
        verdict = wording.verdict(found.row, answer.at)
        if answer.unread:
            return (
                f"Not known: no episode is open, and the cluster can't be read now; the scanner last saw it as {verdict}{halted}"
            )
        return f"No episode is open: {verdict}{halted}"
    return "Not known: no episode of it is open, and no health check's verdict is known here"


def covers(headline: str, sentence: str) -> bool:
    """Whether the headline has said all of the sentence, but for the word that programs have for it."""
    return all(part in headline for part in PROGRAMS_WORD.sub("", sentence).split(": ", 1))


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
