"""What helps: how often each step has repaired what was wrong, and how long that took, by the records of ended episodes.

A try is one step that was begun: of a ladder, or a whole fencing once the node was isolated. It has succeeded where the episode
ended with it, and the node was back at work or replaced. Times count from the beginning of the try, and without the time in which
a person was waited for, which stands apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from policy.episode.messages import REPAIRED, Kind, Phase, RecordEntry
from policy.values.times import quantile

PHASE, STEP, OFF_PROVEN = "phase", "step", "off-proven"
"""Acts of the decision record: another phase begins, a step of a ladder begins or fails, off is proven."""
BY_A_PERSON = "asked for by a person"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRepair:
    """An episode that has ended, of a kind that repairs. cause: what was wrong, as one stable word; "" where a person asked."""

    kind: Kind
    cause: str
    outcome: str
    started: datetime
    ended: datetime
    record: tuple[RecordEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try of a step. to_safe: until off was proven, None where it was not; to_service: until the node was back, or another
    one was there, None where it did not help. waited: for people."""

    reason: str
    step: str
    to_safe: timedelta | None
    to_service: timedelta | None
    waited: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcomes:
    """All tries of one step for one reason. Times: within that half of them, and 90 of a hundred, were done; None where there is
    none. waiting: in how many tries a person was waited for, waited: how long in all."""

    reason: str
    step: str
    tries: int
    succeeded: int
    to_safe: timedelta | None
    to_safe_most: timedelta | None
    to_service: timedelta | None
    to_service_most: timedelta | None
    waiting: int
    waited: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesReport:
    """What helped in that time, the most frequent reason first. episodes: ended repairs that were read. more: there are older
    ones within that time, which were not read."""

    cluster: str
    since: datetime
    episodes: int
    steps: tuple[StepOutcomes, ...]
    more: bool = False


def spans(record: Sequence[RecordEntry], ended: datetime) -> Iterator[tuple[RecordEntry, datetime, bool]]:
    """Each entry, until when nothing else is on record, and whether a person is waited for meanwhile."""
    waits = False
    for number, entry in enumerate(record):
        if entry.act == PHASE:
            waits = entry.outcome == Phase.NEEDS_HUMAN.value
        until = record[number + 1].at if number + 1 < len(record) else ended
        yield entry, max(until, entry.at), waits


def tries(repair: EndedRepair) -> Iterator[Try]:
    if repair.kind is Kind.FENCING:
        begun = any(entry.act == PHASE and entry.outcome == Phase.RUNNING.value for entry in repair.record)
        begins = [(repair.started, Kind.FENCING.value.lower())] if begun else []
    else:
        steps = [each for each in repair.record if each.act == STEP and each.outcome == "begins"]
        begins = [(each.at, each.detail.partition(": ")[2]) for each in steps]
    for number, (began, step) in enumerate(begins):
        last = number + 1 == len(begins)
        end = repair.ended if last else begins[number + 1][0]
        entries = [each for each in spans(repair.record, repair.ended) if began <= each[0].at and (last or each[0].at < end)]
        failed = any((each.act, each.outcome) == (STEP, "failed") for each, _, _ in entries)
        helped = last and not failed and repair.outcome in REPAIRED
        safe = next((each.at for each, _, _ in entries if each.act == OFF_PROVEN), None)
        waited = _waited(entries, end)
        yield Try(
            reason=repair.cause or BY_A_PERSON,
            step=step,
            to_safe=safe - began - _waited(entries, safe) if safe is not None else None,
            to_service=end - began - waited if helped else None,
            waited=waited,
        )


def _waited(entries: Iterable[tuple[RecordEntry, datetime, bool]], end: datetime) -> timedelta:
    """How long before that moment a person was waited for."""
    waits = [min(until, end) - entry.at for entry, until, waiting in entries if waiting and entry.at < end]
    return sum(waits, timedelta(0))


def outcomes(cluster: str, since: datetime, repairs: Sequence[EndedRepair], *, more: bool = False) -> OutcomesReport:
    groups: defaultdict[tuple[str, str], list[Try]] = defaultdict(list)
    for each in repairs:
        for one in tries(each):
            groups[one.reason, one.step].append(one)
    often = Counter[str]()
    for (reason, _), found in groups.items():
        often[reason] += len(found)
    ordered = sorted(groups, key=lambda key: (-often[key[0]], key[0], -len(groups[key]), key[1]))
    steps = tuple(_of_step(key, groups[key]) for key in ordered)
    return OutcomesReport(cluster=cluster, since=since, episodes=len(repairs), steps=steps, more=more)


def _of_step(key: tuple[str, str], found: Sequence[Try]) -> StepOutcomes:
    safe = [each.to_safe for each in found if each.to_safe is not None]
    service = [each.to_service for each in found if each.to_service is not None]
    return StepOutcomes(
        reason=key[0],
        step=key[1],
        tries=len(found),
        succeeded=len(service),
        to_safe=quantile(safe, 0.5) if safe else None,
        to_safe_most=quantile(safe, 0.9) if safe else None,
        to_service=quantile(service, 0.5) if service else None,
        to_service_most=quantile(service, 0.9) if service else None,
        waiting=sum(each.waited > timedelta(0) for each in found),
        waited=sum((each.waited for each in found), timedelta(0)),
    )
