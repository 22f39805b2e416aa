"""What has ended: each episode with what it waited for, what they took together, day by day; the cluster's pauses, and which
person changed its modes. What was not repaired, and what a repair would have come to."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import accumulate, pairwise

from fastapi import APIRouter, Request
from fastapi.responses import Response

from policy.episode.messages import REPAIRED, Kind, Outcome, Phase
from policy.fence.config import FenceStep
from policy.history.spells import Ending, would_have
from policy.history.step_outcomes import PHASE, spans
from policy.scan import pauses
from policy.values.display_text import counted
from policy.values.times import LONGEST_SINCE, USUAL_SINCE, parse_span, quantile
from starter.errors import UnreadableError
from starter.handles.history import OUTCOMES, EndedEpisode, outcomes_of
from starter.output.cluster_moment import cluster_moment, sections
from starter.output.comparison import parts
from starter.web.api import asked_moment
from starter.web.now import NAMES
from starter.web.pages import render
from starter.web.views import views_of

# What ended episodes took, reckoned up: waiting for people apart from working, by outcome and by step, and day by day.

MOST_DAYS = 31
WITHOUT_A_PERMIT = frozenset({Phase.NEW.value, Phase.QUEUED.value, Phase.NEEDS_HUMAN.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTimes:
    """How long it took, how long of that it waited for a person, and how long it worked at each step; a step that its record
    does not name is not among them."""

    took: timedelta
    waited: timedelta
    steps: dict[str, timedelta]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTimes:
    """Of all episodes that ended so. half, most: within that time half, and 99 of a hundred, of them ended. waited: for people,
    of all together; waiting: how many of them did. steps: the median time of work at each."""

    outcome: str
    episodes: int
    half: timedelta
    most: timedelta
    waiting: int
    waited: timedelta
    steps: dict[str, timedelta]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayTimes:
    """A day, in UTC. half, most: of repairs that brought the node back; None of a day without one. at_once: how many of the
    episodes that have ended held a permit at one moment of it, at most."""

    day: date
    repaired: int
    other: int
    at_once: int
    half: timedelta | None
    most: timedelta | None


def times(episode: EndedEpisode) -> EpisodeTimes:
    """By its record; where there is none, it is not known that anybody was waited for."""
    waited, steps = timedelta(0), defaultdict[str, timedelta](timedelta)
    for entry, until, waits in spans(episode.result.record if episode.result is not None else (), episode.ended):
        if waits:
            waited += until - entry.at
        elif entry.step in set(FenceStep):
            steps[NAMES[FenceStep(entry.step)]] += until - entry.at
    return EpisodeTimes(took=episode.ended - episode.started, waited=waited, steps=dict(steps))


def by_outcome(episodes: Sequence[EndedEpisode]) -> tuple[OutcomeTimes, ...]:
    """The most frequent outcome first."""
    groups: defaultdict[str, list[EpisodeTimes]] = defaultdict(list)
    for each in episodes:
        groups[each.outcome].append(times(each))
    ordered = Counter({outcome: len(found) for outcome, found in groups.items()}).most_common()
    return tuple(_of_outcome(outcome, groups[outcome]) for outcome, _ in ordered)


def _of_outcome(outcome: str, found: Sequence[EpisodeTimes]) -> OutcomeTimes:
    took = [each.took for each in found]
    return OutcomeTimes(
        outcome=outcome,
        episodes=len(found),
        half=quantile(took, 0.5),
        most=quantile(took, 0.99),
        waiting=sum(each.waited > timedelta(0) for each in found),
        waited=sum((each.waited for each in found), timedelta(0)),
        steps={
            name: quantile([each.steps[name] for each in found if name in each.steps], 0.5)
            for name in NAMES.values()
            if any(name in each.steps for each in found)
        },
    )


def by_day(episodes: Sequence[EndedEpisode], since: datetime, now: datetime) -> tuple[DayTimes, ...]:
    """Every day of that time, the oldest first; the last MOST_DAYS of them."""
    last = now.astimezone(UTC).date()
    first = max(since.astimezone(UTC).date(), last - timedelta(days=MOST_DAYS - 1))
    groups: defaultdict[date, list[EndedEpisode]] = defaultdict(list)
    for each in episodes:
        groups[each.ended.astimezone(UTC).date()].append(each)
    held = [span for each in episodes for span in _with_a_permit(each)]
    return tuple(_of_day(first + timedelta(days=number), groups, held) for number in range((last - first).days + 1))


def _with_a_permit(episode: EndedEpisode) -> Iterator[tuple[datetime, datetime]]:
    """From when until when it held one: not while it was queued or a person was waited for. A preservation needs none."""
    if episode.kind is Kind.PRESERVATION:
        return
    record = episode.result.record if episode.result is not None else ()
    phases = [(each.at, each.outcome) for each in record if each.act == PHASE]
    first = Phase.NEW if phases and phases[0][1] == Phase.QUEUED else Phase.RUNNING
    for (since, phase), (until, _) in pairwise([(episode.started, first.value), *phases, (episode.ended, "")]):
        if phase not in WITHOUT_A_PERMIT:
            yield since, until


def _of_day(day: date, groups: dict[date, list[EndedEpisode]], held: Sequence[tuple[datetime, datetime]]) -> DayTimes:
    found = groups.get(day, [])
    midnight = datetime.combine(day, time.min, tzinfo=UTC)
    today = [each for each in held if each[0] < midnight + timedelta(days=1) and each[1] > midnight]
    # What is given back goes first: what gets it at the same moment is not one more.
    changes = sorted(change for since, until in today for change in ((max(since, midnight), 1), (until, -1)))
    took = [each.ended - each.started for each in found if each.outcome in REPAIRED]
    return DayTimes(
        day=day,
        repaired=len(took),
        other=len(found) - len(took),
        at_once=max(accumulate(change for _, change in changes), default=0),
        half=quantile(took, 0.5) if took else None,
        most=quantile(took, 0.99) if took else None,
    )


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
        began = now - parse_span(since, LONGEST_SINCE)
    except ValueError as error:
        problem, began = f"within: {error}", now - USUAL
    ended, observed, remembered, changes, status, offenders = await asyncio.gather(
        views.warden.history.ended(known, node=node.strip(), since=began),
        views.warden.observations.ended_spells(known, node=node.strip(), since=began),
        views.warden.scanner(known).pauses(),
        views.warden.scanner(known).mode_changes(),
        views.known(known).status(),
        views.warden.history.offenders(known, began, views.offenders),
    )
    then, bad_moment = None, ""
    try:
        moment = asked_moment(at + offset, now) if at else None
        then = await cluster_moment(views.warden, known, moment) if moment is not None else None
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
        pauses=list(reversed(pauses.since(remembered, began, now))) if not node and not outcome else [],
        mode_changes=changes[::-1] if not node and not outcome else (),
        permits_of=status.scanner.cap if status.scanner is not None else 0,
        more=ended.more,
        asked={"node": node, "since": since, "outcome": outcome, "at": at, "offset": offset},
        then=sections(then) if then is not None else (),
        bad_moment=bad_moment,
        outcomes=(*OUTCOMES, *Ending),
        observed=[(each, would_have(each)) for each in reversed(observed.spells) if outcome in {"", each.ending}],
        unread=observed.unknown,
        report=outcomes_of(ended, began),
        offenders=[each for each in offenders[0] if each.offends],
        problem=problem,
    )


@router.get("/c/{cluster}/compare")
async def compared(request: Request, cluster: str, *, since: str = USUAL_SINCE, check: str = "") -> Response:
    """As `nodewarden compare`."""
    views, problem = views_of(request), ""
    try:
        ago = parse_span(since, LONGEST_SINCE)
    except ValueError as error:
        problem, ago = f"within: {error}", parse_span(USUAL_SINCE, LONGEST_SINCE)
    known = views.known(cluster).cluster
    found, _ = await views.warden.observations.compared(known, since=datetime.now(UTC) - ago, check=check.strip())
    asked = {"since": since, "check": check}
    return render(request, "compare.html", "Would have", cluster=cluster, parts_of=parts(found), asked=asked, problem=problem)


def _headline(episodes: int, waiting: int) -> str:
    if not episodes:
        return "No episode has ended in that time, as far as Temporal remembers"
    waited = f"; {waiting} of them waited for a person" if waiting else ", none of which waited for a person"
    return f"{counted(episodes, 'episode')} ended{waited}"
