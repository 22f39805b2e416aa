"""What has ended: each episode with what it waited for, what they took together, day by day; and the cluster's pauses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from fastapi import APIRouter, Request
from fastapi.responses import Response

from policy.episode.messages import Outcome
from policy.scan import pauses
from policy.values.counting import counted
from policy.values.durations import parse_duration
from starter.handles.history import OUTCOMES
from starter.output.cluster_moment import cluster_moment, sections
from starter.web.answers import UnreadableError
from starter.web.pages import render
from starter.web.reckoning import by_day, by_outcome, times
from starter.web.timeline import asked_moment
from starter.web.views import views_of

USUAL = timedelta(days=7)

router = APIRouter(include_in_schema=False)


@router.get("/c/{cluster}/history")
async def history(
    request: Request, cluster: str, *, node: str = "", since: str = "168h", outcome: str = "", at: str = "", offset: str = ""
) -> Response:
    """As `nodewarden history`; at: also what was going on then, as browsers write it, in the zone with that offset."""
    views = views_of(request)
    known, now, problem = views.known(cluster).cluster, datetime.now(UTC), ""
    try:
        began = now - parse_duration(since)
    except (ValueError, OverflowError):
        problem, began = f"within: expected a duration such as 24h or 90m, got {since!r}", now - USUAL
    ended, heard, status = await asyncio.gather(
        views.warden.history.ended(known, node=node.strip(), since=began),
        views.warden.scanner(known).pauses(),
        views.known(known).status(),
    )
    then, bad_moment = None, ""
    try:
        moment = asked_moment(at + offset, now) if at else None
        then = await cluster_moment(views.warden.history, views.warden.scanner(known), moment) if moment is not None else None
    except UnreadableError as error:
        bad_moment = str(error)
    found = [each for each in ended.episodes if (each.outcome == outcome if outcome else each.outcome != Outcome.REFUSED)]
    outcomes = by_outcome(found)
    return render(
        request,
        "history.html",
        "History",
        cluster=cluster,
        headline=_headline(len(found), sum(each.waiting for each in outcomes)),
        found=[(each, times(each)) for each in found],
        by_outcome=outcomes,
        by_day=by_day(found, began, now),
        pauses=list(reversed(pauses.since(heard, began, now))) if not node and not outcome else [],
        permits_of=status.scanner.concurrency if status.scanner is not None else 0,
        more=ended.more,
        asked={"node": node, "since": since, "outcome": outcome, "at": at, "offset": offset},
        then=sections(then) if then is not None else (),
        bad_moment=bad_moment,
        outcomes=OUTCOMES,
        problem=problem,
    )


def _headline(episodes: int, waiting: int) -> str:
    if not episodes:
        return "No episode has ended in that time, as far as Temporal remembers"
    waited = f"; {waiting} of them waited for a person" if waiting else ", none of which waited for a person"
    return f"{counted(episodes, 'episode')} ended{waited}"
