"""What ended episodes took, reckoned up: waiting for people apart from working, by outcome and by step, and day by day."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from policy.episode.messages import Phase, RecordEntry
from policy.fence.config import FenceStep
from starter import wording
from starter.handles.history import EndedEpisode
from starter.web.progress import NAMES

MOST_DAYS = 31
PHASE = "phase"
"""The act of an entry that says that another phase begins."""
REPAIRED = frozenset(each.value for each in wording.REPAIRED)


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
    """A day, in UTC. half, most: of repairs that brought the node back; None of a day without one."""

    day: date
    repaired: int
    other: int
    half: timedelta | None
    most: timedelta | None


def times(episode: EndedEpisode) -> EpisodeTimes:
    """By its record; where there is none, it is not known that anybody was waited for."""
    waited, steps = timedelta(0), defaultdict[str, timedelta](timedelta)
    for entry, until, waits in _spans(episode.result.record if episode.result is not None else (), episode.ended):
        if waits:
            waited += until - entry.at
        elif entry.step in set(FenceStep):
            steps[NAMES[FenceStep(entry.step)]] += until - entry.at
    return EpisodeTimes(took=episode.ended - episode.started, waited=waited, steps=dict(steps))


def _spans(record: Sequence[RecordEntry], ended: datetime) -> Iterable[tuple[RecordEntry, datetime, bool]]:
    """Each entry, until when nothing else is on record, and whether a person is waited for meanwhile."""
    waits = False
    for number, entry in enumerate(record):
        if entry.act == PHASE:
            waits = entry.outcome == Phase.NEEDS_HUMAN.value
        until = record[number + 1].at if number + 1 < len(record) else ended
        yield entry, max(until, entry.at), waits


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
    return tuple(_of_day(first + timedelta(days=number), groups) for number in range((last - first).days + 1))


def _of_day(day: date, groups: dict[date, list[EndedEpisode]]) -> DayTimes:
    found = groups.get(day, [])
    took = [each.ended - each.started for each in found if each.outcome in REPAIRED]
    return DayTimes(
        day=day,
        repaired=len(took),
        other=len(found) - len(took),
        half=quantile(took, 0.5) if took else None,
        most=quantile(took, 0.99) if took else None,
    )


def quantile(values: Sequence[timedelta], share: float) -> timedelta:
    """The shortest of them within which that share of all lies: one that has been, and no mean of two."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
