"""The report that decides whether a check may be armed: what would have been repaired, and how often that would have been wrong.

Everything is counted from what was recorded: spells, node-days, and the results of ended episodes; there is no model. A repair is
*false* if the node came back by itself within the time that a repair takes (`RepairTime`). What is rare is shown with the exact
interval for it, Poisson's for a rate and that of Clopper and Pearson for a share, and where there are too few cases the answer
says so.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from policy.checks.health_check import HealthCheck
from policy.checks.verdict import cause_of
from policy.episode.gate import MODE
from policy.episode.messages import REPAIRED, EpisodeResult, Outcome, Phase
from policy.history.spells import Ending, NodeDays, Spell
from policy.values.errors import PolicyError, shown
from policy.values.mode import Mode
from policy.values.times import format_duration, quantile

USUAL_REPAIR = timedelta(minutes=10)
"""How long a repair takes where too few of our own have ended: a power cycle with its proofs, and the boot of a server."""
TURN = timedelta(minutes=1)
"""A repair that begins so soon after it was due was not held: it waited for its permit behind others."""
FEWEST_REPAIRS = 5
"""So many have to have ended before their median counts."""
FEWEST_CASES = 10
"""With fewer decided cases a share says too little."""
FEWEST_DAYS = 100
"""With fewer node-days a rate says too little."""
SICK_AGAIN = timedelta(hours=24)
"""A repair did not help if the node is sick again within this time after it."""
LONGER = tuple(timedelta(minutes=each) for each in (0, 1, 2, 5, 10, 15, 30, 60))
"""By how much a time-out might be longer: the rows of the table."""

_NONE = timedelta(0)
_DAY = timedelta(days=1)
_CONFIDENCE = 0.95


class Judgement(StrEnum):
    """What would have come of the repair of one spell."""

    FALSE = "false-repair"
    """The node came back by itself within the time that the repair takes."""
    LATER = "came-back-later"
    """By itself, but a repair would have been sooner."""
    OTHERS = "repaired-by-others"
    OURS = "repaired"
    """By an episode of ours, because the check was armed or a person asked."""
    BEGUN = "episode-began"
    """An episode of ours began, and the node is not back by it: released, aborted, or its end is not known (it may be open)."""
    STILL_SICK = "still-sick"
    """For longer than a repair takes."""
    UNDECIDED = "undecided"
    """It has not lasted as long as a repair takes."""
    NOT_WATCHED = "not-watched"
    """No check asked for the node any more."""
    HELD = "held"
    """No repair would have begun, or none was to be observed: something other than the mode held the node to the end."""


DECIDED = frozenset({Judgement.FALSE, Judgement.LATER, Judgement.OTHERS, Judgement.OURS, Judgement.STILL_SICK})
"""The judgements of which a share is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpell:
    """A spell, and the workflow that records it: its own, that of its storm, or the scanner's while the spell lasts. page: the
    address of our page about that moment, "" where the settings name none. outcome: of the episode of ours that ended the spell,
    None where none did, and where its end is not known."""

    spell: Spell
    workflow_id: str = ""
    page: str = ""
    outcome: Outcome | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the next spell may be of the same sickness: a record was closed, or an episode ended and did not repair."""
        ended_unrepaired = self.outcome is not None and self.outcome not in REPAIRED
        return self.spell.ending is Ending.STILL_SICK or (self.spell.ending is Ending.OURS and ended_unrepaired)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTime:
    """How long a repair takes: the median of so many ended episodes that waited for no person; repairs 0: `USUAL_REPAIR`."""

    span: timedelta = USUAL_REPAIR
    repairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A share, or a rate for 1,000 node-days, with its exact interval at 95 %. cases: the numerator; of: the denominator, cases
    or node-days. enough: False where there are too few of them to say."""

    cases: int
    of: float
    value: float
    low: float
    high: float
    enough: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSpell(RecordedSpell):
    """begins: when a repair would have begun, None where it would not have."""

    judgement: Judgement
    begins: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairsByOthers:
    """after: how long after the moment at which ours would have begun the node was well. sooner: by how much ours would have
    had it back before. Each the median, and what nine of ten did not exceed."""

    after: timedelta
    after_p90: timedelta
    sooner: timedelta
    sooner_p90: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeTally:
    """What one rule held to the end of a spell, and in how many storms. rightly: the node came back by itself. wrongly: it had to
    be repaired, or stayed sick. held: the time, summed over the spells."""

    code: str
    spells: int
    storms: int
    rightly: int
    wrongly: int
    undecided: int
    held: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class LongerTimeout:
    """Had the time-out been longer by `longer`: so many repairs, so many of them false. later: how much later the others would
    have begun, all together. undecided: spells that last and are in none of these, as it is not known yet whether a repair would
    have begun, or whether it would have been false."""

    longer: timedelta
    repairs: int
    false_repairs: int
    later: timedelta
    undecided: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmedTally:
    """What the check's own episodes came to. not_helped: of the repairs, those after which the node was sick again within
    `SICK_AGAIN`; share: of those for which that time is over. reboots: repairs with a proven restart; same_cause: of those, the
    ones after which the same reason came back in that time. incidents: of the repairs that did not help."""

    repairs: int
    not_helped: int
    undecided: int
    share: Estimate | None
    reboots: int
    same_cause: int
    otherwise: int
    """Episodes that ended in another way: fenced off, aborted, released."""
    incidents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckComparison:
    """One check. observed_days, armed_days: node-days in a mode below repair, and in repair. would_repair: how many of the
    cases have a judgement other than held. None: nothing to take it of."""

    check: str
    observed_days: float
    armed_days: float
    would_repair: int
    judgements: Mapping[Judgement, int]
    share: Estimate | None
    rate: Estimate | None
    others: RepairsByOthers | None
    brakes: tuple[BrakeTally, ...]
    timeouts: tuple[LongerTimeout, ...]
    armed: ArmedTally | None
    cases: tuple[JudgedSpell, ...]

    @property
    def false_repairs(self) -> int:
        """How many of the repairs would have been false."""
        return self.judgements.get(Judgement.FALSE, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of all checks, sorted by key. missing_days: whole days within that time of which no node-days are recorded."""

    since: datetime
    until: datetime
    repair_time: RepairTime
    checks: tuple[CheckComparison, ...]
    missing_days: tuple[str, ...] = field(default=())


def compare(
    spells: Iterable[RecordedSpell],
    node_days: Iterable[NodeDays],
    episodes: Iterable[EpisodeResult],
    *,
    since: datetime,
    now: datetime,
    check: str = "",
) -> Comparison:
    """The report on the time from midnight (UTC) of `since` to `now`. episodes: ended ones of the whole cluster. check: the key
    of one, or its name alone; "" for all."""
    since = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    episodes = tuple(episodes)
    recorded = [each for each in joined(with_outcomes(spells, episodes)) if since <= each.spell.due <= now]
    days = [each for each in node_days if f"{since:%Y-%m-%d}" <= each.day <= f"{now.astimezone(UTC):%Y-%m-%d}"]
    ended = [each for each in episodes if since <= each.ended <= now]
    found = {each.spell.check for each in recorded} | {each.check for each in days} | {each.check for each in ended}
    usual = repair_time(ended)
    checks = tuple(
        _compare(key, recorded, days, ended, usual=usual.span, now=now)
        for key in sorted(filter(None, found))
        if not check or check in {key, key.rpartition("/")[2]}
    )
    seen = {each.day for each in days}
    whole = (since + _DAY * number for number in range((now - since) // _DAY))
    missing = tuple(each for each in (f"{day:%Y-%m-%d}" for day in whole) if each not in seen)
    return Comparison(since=since, until=now, repair_time=usual, checks=checks, missing_days=missing)


def with_outcomes(spells: Iterable[RecordedSpell], episodes: Iterable[EpisodeResult]) -> Iterator[RecordedSpell]:
    """Each with that of the episode which ended it."""
    outcomes = {each.incident: each.outcome for each in episodes}
    return (replace(each, outcome=outcomes.get(each.spell.incident)) for each in spells)


def joined(spells: Iterable[RecordedSpell]) -> list[RecordedSpell]:
    """One for each sickness: what `goes_on` does so in the next spell."""
    found = list[RecordedSpell]()
    for each in sorted(spells, key=lambda each: (each.spell.node, each.spell.check, each.spell.due)):
        last, spell = found[-1].spell if found else None, each.spell
        if last is not None and found[-1].goes_on and _sickness(last) == _sickness(spell):
            both = replace(last, held=last.held + spell.held, ended=spell.ended, ending=spell.ending)
            both = replace(both, traces=spell.traces, incident=spell.incident)
            found[-1] = replace(each, spell=both)
        else:
            found.append(each)
    return found


def _sickness(spell: Spell) -> tuple[str, str, str, datetime]:
    return spell.node, spell.check, spell.uid, spell.since


def repair_time(episodes: Iterable[EpisodeResult]) -> RepairTime:
    """Measured from those that a check began and that brought the node back without a person."""
    took = [each.ended - each.started for each in episodes if each.check and each.outcome in REPAIRED and not _waited(each)]
    return RepairTime(span=quantile(took, 0.5), repairs=len(took)) if len(took) >= FEWEST_REPAIRS else RepairTime()


def _waited(episode: EpisodeResult) -> bool:
    return any(entry.act == "phase" and entry.outcome == Phase.NEEDS_HUMAN for entry in episode.record)


def cases_of(
    spells: Iterable[RecordedSpell],
    usual: timedelta,
    now: datetime,
    due: Callable[[Spell], datetime | None] = lambda spell: spell.due,
) -> tuple[JudgedSpell, ...]:
    """Each spell, and what would have come of its repair, the oldest first. due: the moment at which it would have been due, None
    for never; another one than was recorded tries another time-out. That is exact, as a condition's verdict depends on nothing
    but its moment; what held the node is taken as it was."""
    found = []
    for each in sorted(spells, key=lambda each: (each.spell.due, each.spell.node)):
        begun = begins(each.spell, due(each.spell), now)
        known = {of.name: getattr(each, of.name) for of in fields(RecordedSpell)}
        found.append(JudgedSpell(**known, judgement=_judge(each, begun, usual, now), begins=begun))
    return tuple(found)


def begins(spell: Spell, due: datetime | None, now: datetime) -> datetime | None:
    """When a repair would have begun if it had been due then; None: never, or not while the node was sick. In mode repair there
    is nothing that would have been."""
    if due is None or spell.mode is Mode.REPAIR:
        return None
    at, end = due, spell.ended or now
    for number, span in enumerate(spell.held):
        until = span.until or end
        if span.code != MODE and (number == 0 or span.since <= at) and at < until:
            at = until
    if at < end:
        return at
    # What we repaired was sick until then, and by no sign well without that.
    longer = spell.ending is Ending.OURS and due > spell.due
    return at if longer and begins(spell, spell.due, now) is not None else None


def _judge(recorded: RecordedSpell, begun: datetime | None, usual: timedelta, now: datetime) -> Judgement:
    spell = recorded.spell
    if begun is None:
        return Judgement.HELD
    if spell.ended is None or spell.ending is None:
        return Judgement.STILL_SICK if now - begun > usual else Judgement.UNDECIDED
    if spell.ending is Ending.CAME_BACK:
        return Judgement.FALSE if spell.ended - begun <= usual else Judgement.LATER
    return Judgement.OURS if recorded.outcome in REPAIRED else _JUDGED[spell.ending]


_JUDGED = {
    Ending.OTHERS: Judgement.OTHERS,
    Ending.OURS: Judgement.BEGUN,
    Ending.STILL_SICK: Judgement.STILL_SICK,
    Ending.NOT_OURS: Judgement.NOT_WATCHED,
}


def _compare(
    key: str,
    recorded: Sequence[RecordedSpell],
    node_days: Iterable[NodeDays],
    episodes: Sequence[EpisodeResult],
    *,
    usual: timedelta,
    now: datetime,
) -> CheckComparison:
    mine = [each for each in recorded if each.spell.check == key]
    cases = cases_of(mine, usual, now)
    counts = Counter(each.judgement for each in cases)
    days = [each for each in node_days if each.check == key]
    armed = sum(each.seconds for each in days if each.mode is Mode.REPAIR) / _DAY.total_seconds()
    observed = sum(each.seconds for each in days) / _DAY.total_seconds() - armed
    false = counts[Judgement.FALSE]
    return CheckComparison(
        check=key,
        observed_days=observed,
        armed_days=armed,
        would_repair=len(cases) - counts[Judgement.HELD],
        judgements={each: counts[each] for each in Judgement if counts[each]},
        share=share_of(false, sum(counts[each] for each in DECIDED)),
        rate=rate_of(false, observed),
        others=_by_others(cases, usual),
        brakes=_brakes(mine, now),
        timeouts=tuple(_with_longer(mine, longer, usual, now) for longer in LONGER),
        armed=_armed([each for each in episodes if each.check == key], [each.spell for each in recorded], episodes, now),
        cases=cases,
    )


def _by_others(cases: Iterable[JudgedSpell], usual: timedelta) -> RepairsByOthers | None:
    after = [
        each.spell.ended - each.begins
        for each in cases
        if each.judgement is Judgement.OTHERS and each.begins is not None and each.spell.ended is not None
    ]
    if not after:
        return None
    sooner = [max(each - usual, _NONE) for each in after]
    half, most = (quantile(after, each) for each in (0.5, 0.9))
    return RepairsByOthers(after=half, after_p90=most, sooner=quantile(sooner, 0.5), sooner_p90=quantile(sooner, 0.9))


def _brakes(recorded: Iterable[RecordedSpell], now: datetime) -> tuple[BrakeTally, ...]:
    """The rule that held most spells first. One that let go earlier decided nothing, nor did one under which a repair would have
    been begun by then, or was begun within a moment: that node had its turn."""
    held = defaultdict[str, list[RecordedSpell]](list)
    for each in recorded:
        spell = each.spell
        had_its_turn = spell.ending is Ending.OURS and spell.ended is not None and spell.ended - spell.due < TURN
        if spell.held and spell.held[-1].code != MODE and not had_its_turn and begins(spell, spell.due, now) is None:
            held[spell.held[-1].code].append(each)
    tallies = list[BrakeTally]()
    for code, found in held.items():
        ends = Counter(each.spell.ending for each in found)
        wrongly = ends[Ending.OTHERS] + ends[Ending.STILL_SICK] + sum(each.outcome in REPAIRED for each in found)
        spans = ((span, each.spell.ended or now) for each in found for span in each.spell.held if span.code == code)
        tally = BrakeTally(
            code=code,
            spells=len(found),
            storms=len({each.spell.storm for each in found} - {""}),
            rightly=ends[Ending.CAME_BACK],
            wrongly=wrongly,
            undecided=len(found) - ends[Ending.CAME_BACK] - wrongly,
            held=sum(((span.until or end) - span.since for span, end in spans), _NONE),
        )
        tallies.append(tally)
    return tuple(sorted(tallies, key=lambda each: (-each.spells, each.code)))


def _with_longer(mine: Sequence[RecordedSpell], longer: timedelta, usual: timedelta, now: datetime) -> LongerTimeout:
    found = cases_of(mine, usual, now, lambda spell: spell.due + longer)
    today = [(each, begins(each.spell, each.spell.due, now)) for each in found]
    open_now = [each for each, at in today if at is not None and each.spell.ended is None]
    undecided = sum(each.judgement in {Judgement.HELD, Judgement.UNDECIDED} for each in open_now)
    begun = [(each, at) for each, at in today if each.begins is not None and each.judgement is not Judgement.UNDECIDED]
    needed = [each.begins - at for each, at in begun if each.begins and at and each.judgement is not Judgement.FALSE]
    false, later = len(begun) - len(needed), sum(needed, _NONE)
    return LongerTimeout(longer=longer, repairs=len(begun), false_repairs=false, later=later, undecided=undecided)


def _armed(
    mine: Sequence[EpisodeResult], spells: Sequence[Spell], episodes: Sequence[EpisodeResult], now: datetime
) -> ArmedTally | None:
    """mine: the check's own episodes; what shows that a node was sick again may be another check's."""
    mine = [each for each in mine if each.outcome is not Outcome.REFUSED]
    if not mine:
        return None
    sick = defaultdict[str, list[tuple[datetime, str]]](list)
    for spell in spells:
        sick[spell.node].append((spell.since, spell.cause))
    for episode in episodes:
        if episode.check and episode.outcome is not Outcome.REFUSED:
            sick[episode.node].append((episode.started, episode.cause))
    repairs = [each for each in mine if each.outcome in REPAIRED]
    again = {
        each.incident: [cause for at, cause in sick[each.node] if each.ended < at <= each.ended + SICK_AGAIN] for each in repairs
    }
    decided = sum(bool(again[each.incident]) or each.ended + SICK_AGAIN <= now for each in repairs)
    not_helped = tuple(each.incident for each in repairs if again[each.incident])
    reboots = [each for each in repairs if each.restart_proof is not None]
    return ArmedTally(
        repairs=len(repairs),
        not_helped=len(not_helped),
        undecided=len(repairs) - decided,
        share=share_of(len(not_helped), decided),
        reboots=len(reboots),
        same_cause=sum(bool(each.cause) and each.cause in again[each.incident] for each in reboots),
        otherwise=len(mine) - len(repairs),
        incidents=not_helped,
    )


# How sure that is ------------------------------------------------------------------------------------------------------
#
# Exact intervals by their definition: at each of their ends the tail that lies beyond what was counted has half of what is left
# of the confidence. tests/policy/history/test_comparison.py holds them against exact fractions and against scipy's figures; a
# library for two bisections (scipy and numpy: 50 MB in each worker's image) does not pay.


def rate_of(cases: int, node_days: float) -> Estimate | None:
    """For 1,000 node-days, with Poisson's exact interval (Garwood's); None without any node-days."""
    if node_days <= 0:
        return None
    low, high = poisson_interval(cases)
    per = 1000 / node_days
    return Estimate(cases=cases, of=node_days, value=cases * per, low=low * per, high=high * per, enough=node_days >= FEWEST_DAYS)


def share_of(cases: int, of: int) -> Estimate | None:
    """With the interval of Clopper and Pearson; None of nothing."""
    if not of:
        return None
    low, high = binomial_interval(cases, of)
    return Estimate(cases=cases, of=of, value=cases / of, low=low, high=high, enough=of >= FEWEST_CASES)


def poisson_interval(cases: int) -> tuple[float, float]:
    """Of the mean of a Poisson distribution, from one count."""
    tail = (1 - _CONFIDENCE) / 2

    def at_most(number: int) -> Callable[[float], float]:
        logs = [math.lgamma(each + 1) for each in range(number + 1)]
        return lambda mean: math.fsum(math.exp(each * math.log(mean) - mean - log) for each, log in enumerate(logs))

    highest = cases + 10 + 6 * math.sqrt(cases)
    return (_where(at_most(cases - 1), 1 - tail, highest) if cases else 0.0), _where(at_most(cases), tail, highest)


def binomial_interval(cases: int, of: int) -> tuple[float, float]:
    """Of a share, from `cases` of `of`."""
    tail = (1 - _CONFIDENCE) / 2

    def at_most(number: int) -> Callable[[float], float]:
        logs = [math.lgamma(of + 1) - math.lgamma(each + 1) - math.lgamma(of - each + 1) for each in range(number + 1)]
        return lambda share: math.fsum(
            math.exp(log + each * math.log(share) + (of - each) * math.log1p(-share)) for each, log in enumerate(logs)
        )

    low = _where(at_most(cases - 1), 1 - tail, 1.0) if cases else 0.0
    return low, _where(at_most(cases), tail, 1.0) if cases < of else 1.0


def _where(at_most: Callable[[float], float], probability: float, highest: float) -> float:
    """Where the falling function has that value, between 0 and `highest`."""
    low, high = 0.0, highest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(middle) > probability else (low, middle)
    return (low + high) / 2


# A changed health check, tried on recorded spells --------------------------------------------------------------------
#
# Which would have been due, when, and what their repairs would have come to.
# Only what spells can judge may differ from the check under which they were recorded: a longer time-out of a condition, or a
# condition that is no longer listed. A shorter one would have found sicknesses that no spell records.

_NO_BEARING = frozenset(
    {"ref", "uid", "generation", "conditions", "machine_conditions", "storm", "paused", "warnings"}
    | {"rungs", "escalation", "external_strategy", "healthy_delay", "autoscaler_patience"}
)
"""Fields that are judged here, and those that decide neither what is due nor what is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckThen:
    """A check as it was when its spells were exported. seconds: of the time-out for each cause. fields: all else that decides
    what is due or held, by the names of `HealthCheck` in camelCase, such as `selector` and `minHealthy`; null where the check
    does not set it. They are only compared."""

    check: str
    seconds: Mapping[str, float]
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedSpell:
    """One spell under the check as it was, and under the changed one; due: then, None where it would not have been."""

    before: JudgedSpell
    after: JudgedSpell
    due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCheck:
    """A changed check on its recorded spells: how many repairs would have begun, and how many of them false; the same under the
    check as it was."""

    check: str
    repairs: int
    false_repairs: int
    repairs_before: int
    false_before: int
    spells: tuple[ReplayedSpell, ...]


def check_then(check: HealthCheck) -> CheckThen:
    """What an export says of it."""
    others = {_camel(each.name): _plain(getattr(check, each.name)) for each in fields(check) if each.name not in _NO_BEARING}
    return CheckThen(check=check.ref.key, seconds=_seconds(check), fields=others)


def _plain(value: Any) -> Any:
    """As JSON has it, so that what is read back is equal."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {_camel(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def replay(
    check: HealthCheck, then: CheckThen, spells: Iterable[RecordedSpell], usual: timedelta, now: datetime
) -> ReplayedCheck:
    """The oldest spell first. usual: how long a repair takes. now: when they were exported.

    Raises PolicyError for a field that spells can't judge.
    """
    seconds, known = _seconds(check), check_then(check)
    for name, value in known.fields.items():
        if (was := then.fields.get(name)) != value:
            problem = f"expected it unchanged, {shown(was)}, as spells can't judge it; got {shown(value)}"
            raise PolicyError(then.check, name, problem)
    for cause, after in seconds.items():
        if (before := then.seconds.get(cause)) is None:
            raise PolicyError(then.check, cause, "expected a condition that was listed when the spells were recorded")
        if after < before:
            least, got = (format_duration(timedelta(seconds=each)) for each in (before, after))
            problem = f"expected a time-out of at least {least}, under which the spells were recorded, got {got}"
            raise PolicyError(then.check, cause, problem)

    def due(spell: Spell) -> datetime | None:
        if spell.cause not in then.seconds:
            return spell.due  # no condition's
        later = seconds.get(spell.cause)
        moment = spell.due + timedelta(seconds=later - then.seconds[spell.cause]) if later is not None else None
        # What we repaired was sick until then, and by no sign well without that: as in the table of longer time-outs.
        sick = moment is not None and (spell.ending is Ending.OURS or moment < (spell.ended or now))
        return moment if sick else None

    mine = joined(each for each in spells if each.spell.check == then.check)
    before, after = cases_of(mine, usual, now), cases_of(mine, usual, now, due)
    return ReplayedCheck(
        check=then.check,
        repairs=sum(each.begins is not None for each in after),
        false_repairs=sum(each.judgement is Judgement.FALSE for each in after),
        repairs_before=sum(each.begins is not None for each in before),
        false_before=sum(each.judgement is Judgement.FALSE for each in before),
        spells=tuple(
            ReplayedSpell(before=was, after=would, due=due(was.spell)) for was, would in zip(before, after, strict=True)
        ),
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _seconds(check: HealthCheck) -> dict[str, float]:
    found = dict[str, float]()
    for each in (*check.conditions, *check.machine_conditions):
        cause, seconds = cause_of(each.type, each.status), each.duration.total_seconds()
        found[cause] = min(seconds, found.get(cause, seconds))
    return found
