"""What is counted from recorded spells: what a repair would have come to, what held it, what a longer time-out changes."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.episode.gate import MODE
from policy.episode.messages import EpisodeResult, Outcome, Phase, RecordEntry
from policy.history.comparison import (
    FEWEST_CASES,
    FEWEST_DAYS,
    FEWEST_REPAIRS,
    LONGER,
    SICK_AGAIN,
    USUAL_REPAIR,
    CheckComparison,
    Judgement,
    begins,
    binomial_interval,
    cases_of,
    compare,
    poisson_interval,
    rate_of,
    repair_time,
    share_of,
)
from policy.history.spells import Ending, NodeDays, Spell
from policy.values.mode import Mode
from tests.policy.builders import CHECK, NOON, held, minutes, node_days, recorded, repaired, spell

NOW = NOON + timedelta(days=2)
SINCE = NOON - timedelta(days=3)


def compared(
    *spells: Spell, days: tuple[NodeDays, ...] = (), episodes: tuple[EpisodeResult, ...] = (), now: datetime = NOW
) -> CheckComparison:
    """The report on the one check."""
    found = compare(recorded(*spells), days, episodes, since=SINCE, now=now)
    assert [each.check for each in found.checks] == [CHECK]
    return found.checks[0]


JUDGED = {
    "back within a repair": (spell(lasted=USUAL_REPAIR), Judgement.FALSE),
    "back a second later": (spell(lasted=USUAL_REPAIR + timedelta(seconds=1)), Judgement.LATER),
    "rebooted by a person": (spell(ending=Ending.OTHERS), Judgement.OTHERS),
    "an episode began": (spell(ending=Ending.OURS), Judgement.BEGUN),
    "given up": (spell(ending=Ending.STILL_SICK), Judgement.STILL_SICK),
    "still sick": (spell(lasted=None), Judgement.STILL_SICK),
    "sick since a minute": (spell(lasted=None, due=NOW - minutes(1)), Judgement.UNDECIDED),
    "the check was deleted": (spell(ending=Ending.NOT_OURS), Judgement.NOT_WATCHED),
    "held to the end": (spell(held=(held("HeldOff", NOON),)), Judgement.HELD),
    "armed, and held by the breaker": (spell(mode=Mode.REPAIR, held=(held("CircuitBreakerOpen", NOON),)), Judgement.HELD),
}


@pytest.mark.parametrize("story", JUDGED)
def test_a_spell_says_what_its_repair_would_have_come_to(story: str) -> None:
    found, judgement = JUDGED[story]
    check = compared(found)
    assert check.judgements == {judgement: 1}
    assert check.would_repair == (0 if judgement is Judgement.HELD else 1)


def test_a_repair_begins_once_nothing_but_the_mode_holds_the_node() -> None:
    """A breaker that held for two minutes delays it; what comes back meanwhile is never repaired."""
    spans = (held("CircuitBreakerOpen", NOON + timedelta(seconds=2), NOON + minutes(2)), held(MODE, NOON + minutes(2)))
    assert begins(spell(held=spans), NOON, NOW) == NOON + minutes(2)
    assert begins(spell(held=spans, lasted=minutes(2)), NOON, NOW) is None
    later = (held(MODE, NOON, NOON + minutes(4)), held("Paused", NOON + minutes(4)))
    assert begins(spell(held=later, lasted=minutes(9)), NOON, NOW) == NOON
    assert begins(spell(held=later, lasted=minutes(9)), NOON + minutes(5), NOW) is None


def test_in_mode_repair_there_is_nothing_that_would_have_been() -> None:
    """The breaker closed after two minutes, and before our episode began the node was well."""
    spans = (held("CircuitBreakerOpen", NOON, NOON + minutes(2)),)
    check = compared(spell(mode=Mode.REPAIR, held=spans, lasted=minutes(9)))
    assert (check.judgements, check.would_repair) == ({Judgement.HELD: 1}, 0)
    assert check.brakes[0].rightly == 1
    assert all(each.repairs == 0 for each in check.timeouts)


def test_rates_are_for_a_thousand_node_days_of_the_modes_below_repair() -> None:
    days = (
        node_days(300),
        node_days(100, mode=Mode.DRAIN),
        node_days(50, mode=Mode.REPAIR),
        node_days(9000, day="2026-11-01"),
        replace(node_days(9000), check="NodeHealthCheck/other"),
    )
    found = compare(recorded(spell(), spell("node-8")), days, (), since=SINCE, now=NOW)
    check = next(each for each in found.checks if each.check == CHECK)
    assert (check.observed_days, check.armed_days) == (400, 50)
    assert check.rate is not None
    assert (check.rate.cases, check.rate.value, check.rate.enough) == (2, 5.0, True)
    assert check.rate.low == pytest.approx(0.2422 / 0.4, rel=1e-3)
    assert check.rate.high == pytest.approx(7.2247 / 0.4, rel=1e-3)


def test_undecided_and_held_spells_are_in_no_share() -> None:
    check = compared(
        spell(),
        *(spell(f"o-{number}", ending=Ending.OTHERS) for number in range(8)),
        spell("late", lasted=minutes(50)),
        spell("young", lasted=None, due=NOW - minutes(1)),
        spell("gone", ending=Ending.NOT_OURS),
        spell("kept", held=(held("HeldOff", NOON),)),
    )
    assert check.share is not None
    assert (check.share.cases, check.share.of, check.share.enough) == (1, 10, True)
    assert check.would_repair == 12


def test_repairs_by_others_say_how_much_sooner_ours_would_have_been() -> None:
    took = [minutes(each) for each in (5, 30, 60, 120, 600)]
    check = compared(*(spell(f"n-{each}", ending=Ending.OTHERS, lasted=each) for each in took))
    assert check.others is not None
    assert (check.others.after, check.others.after_p90) == (minutes(60), minutes(600))
    assert (check.others.sooner, check.others.sooner_p90) == (minutes(50), minutes(590))
    assert compared(spell()).others is None


def begun_for(incident: str, **fields: Any) -> Spell:
    return spell(ending=Ending.OURS, incident=incident, **fields)


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.REFUSED])
def test_an_episode_that_began_counts_as_a_repair_only_if_it_brought_the_node_back(outcome: Outcome) -> None:
    """Mode drain was set and unset: the episode drained the node, was released, and switched nothing off."""
    paused = (held("Paused", NOON),)
    episode = repaired("node-7", NOON + minutes(9), outcome=outcome)
    check = compared(begun_for(episode.incident), episodes=(episode,))
    brought_back = outcome in {Outcome.RECOVERED, Outcome.REPLACED}
    assert check.judgements == {Judgement.OURS if brought_back else Judgement.BEGUN: 1}
    assert (check.share is not None) is brought_back
    kept = compared(begun_for(episode.incident, held=paused, mode=Mode.REPAIR), episodes=(episode,))
    assert (kept.brakes[0].wrongly, kept.brakes[0].undecided) == ((1, 0) if brought_back else (0, 1))


def test_a_sickness_that_goes_on_after_an_episode_is_no_second_case() -> None:
    episode = repaired("node-7", NOON + minutes(4), outcome=Outcome.RELEASED)
    first = begun_for(episode.incident)
    after = replace(spell(due=NOON + minutes(5), lasted=minutes(30), ending=Ending.OTHERS), since=first.since)
    check = compared(first, after, episodes=(episode,))
    assert (check.would_repair, check.judgements) == (1, {Judgement.OTHERS: 1})
    recovered = replace(episode, outcome=Outcome.RECOVERED)
    assert compared(first, after, episodes=(recovered,)).would_repair == 2


def test_a_breaker_was_right_where_the_nodes_came_back_by_themselves() -> None:
    breaker = (held("CircuitBreakerOpen", NOON, NOON + minutes(20)),)
    storm = [spell(f"z-{number}", lasted=minutes(20), held=breaker, storm="s-1") for number in range(3)]
    check = compared(
        *storm,
        spell("dead", lasted=minutes(20), ending=Ending.OTHERS, held=breaker),
        spell(
            "later", lasted=minutes(90), ending=Ending.OTHERS, held=(*breaker, held(MODE, NOON + minutes(20), NOON + minutes(90)))
        ),
        spell("sick", lasted=None, held=(held("CircuitBreakerOpen", NOW - minutes(5)),), due=NOW - minutes(5)),
        spell("fine"),
        spell("had its turn", lasted=timedelta(seconds=6), ending=Ending.OURS, held=(held("CapReached", NOON, NOON),)),
    )
    (tally,) = check.brakes
    assert (tally.code, tally.spells, tally.storms) == ("CircuitBreakerOpen", 5, 1), "of the later one the mode held the rest"
    assert (tally.rightly, tally.wrongly, tally.undecided) == (3, 1, 1)
    assert tally.held == minutes(4 * 20 + 5)


def test_a_longer_time_out_is_counted_from_the_spells() -> None:
    """By hand: back after 3 and 12 minutes, and one that a person repaired after an hour; a repair takes ten minutes."""
    check = compared(
        spell("a", lasted=minutes(3)), spell("b", lasted=minutes(12)), spell("c", lasted=minutes(60), ending=Ending.OTHERS)
    )
    table = {each.longer: (each.repairs, each.false_repairs, each.later) for each in check.timeouts}
    assert table[minutes(0)] == (3, 1, minutes(0))
    assert table[minutes(1)] == (3, 1, minutes(2)), "b is no false repair yet"
    assert table[minutes(2)] == (3, 2, minutes(2)), "b comes back ten minutes after it would have begun"
    assert table[minutes(5)] == (2, 1, minutes(5)), "a is back before"
    assert table[minutes(15)] == (1, 0, minutes(15))
    assert table[minutes(60)] == (0, 0, minutes(0))


def test_a_spell_that_lasts_is_not_decided_where_a_longer_time_out_is_not_over() -> None:
    """Sick for 25 minutes since it was due, and another for two: neither has ended now."""
    check = compared(*(spell(f"n-{each}", lasted=None, due=NOW - minutes(each)) for each in (25, 2)))
    table = {each.longer: (each.repairs, each.false_repairs, each.undecided, each.later) for each in check.timeouts}
    assert table[minutes(0)] == (1, 0, 1, minutes(0))
    assert table[minutes(10)] == (1, 0, 1, minutes(10))
    assert table[minutes(30)] == (0, 0, 2, minutes(0))


def test_what_we_repaired_did_not_come_back_by_itself_under_a_longer_time_out() -> None:
    check = compared(spell("a", lasted=minutes(3), ending=Ending.OURS))
    assert [(each.repairs, each.false_repairs) for each in check.timeouts] == [(1, 0)] * len(LONGER)


def test_a_repair_takes_as_long_as_ours_took() -> None:
    """The median of those that a check began and no person delayed; with too few of them the default."""
    asked = (RecordEntry(at=NOON, step="off", act="phase", outcome=Phase.NEEDS_HUMAN),)
    ours = [repaired(f"n-{number}", NOON, took=minutes(2 + number)) for number in range(FEWEST_REPAIRS)]
    others = [
        repaired("slow", NOON, took=minutes(600), record=asked),
        repaired("asked", NOON, took=minutes(600), check=""),
        repaired("off", NOON, took=minutes(600), outcome=Outcome.FENCED_OFF),
    ]
    assert repair_time([*ours, *others]).span == minutes(4)
    assert repair_time([*ours, *others]).repairs == FEWEST_REPAIRS
    assert repair_time(ours[1:]) == repair_time([])
    assert compared(spell(lasted=minutes(5)), episodes=tuple(ours)).judgements == {Judgement.LATER: 1}


def test_a_repair_did_not_help_if_the_node_is_sick_again_within_a_day() -> None:
    first = NOON
    check = compared(
        spell("again", due=first + timedelta(hours=5), cause="ReadyFalse"),
        episodes=(
            repaired("again", first),
            repaired("same", first),
            repaired("same", first + timedelta(hours=3)),
            repaired("well", first),
            repaired("young", NOW - minutes(1)),
            repaired("off", first, outcome=Outcome.FENCED_OFF),
            repaired("refused", first, outcome=Outcome.REFUSED),
        ),
    )
    armed = check.armed
    assert armed is not None
    assert (armed.repairs, armed.not_helped, armed.undecided, armed.otherwise) == (5, 2, 1, 1)
    assert (armed.reboots, armed.same_cause) == (5, 1)
    assert armed.share is not None
    assert (armed.share.cases, armed.share.of) == (2, 4)
    assert set(armed.incidents) == {"i-again-281200", "i-same-281200"}
    late = repaired("same", first + SICK_AGAIN + minutes(7))
    found = compared(episodes=(repaired("same", first), late)).armed
    assert found is not None
    assert found.not_helped == 0


def test_a_sickness_that_is_recorded_in_parts_counts_once() -> None:
    """A record is closed after a week, and where the scanner is stopped; the next one has the same beginning."""
    first = spell(ending=Ending.STILL_SICK, lasted=minutes(60))
    second = replace(spell(due=NOON + minutes(61), lasted=minutes(30), ending=Ending.OTHERS), since=first.since)
    check = compared(second, first, spell("node-8", ending=Ending.STILL_SICK))
    assert check.judgements == {Judgement.OTHERS: 1, Judgement.STILL_SICK: 1}
    assert check.others is not None
    assert check.others.after == minutes(91)
    unwatched = replace(first, ending=Ending.NOT_OURS)
    assert compared(unwatched, second).judgements == {Judgement.NOT_WATCHED: 1, Judgement.OTHERS: 1}
    again = replace(second, since=first.since + minutes(1))
    assert compared(first, again).judgements == {Judgement.OTHERS: 1, Judgement.STILL_SICK: 1}


def test_days_that_are_not_recorded_are_named_and_one_check_is_found_by_its_name() -> None:
    other = replace(spell("o"), check="MachineHealthCheck/default/workers")
    found = compare(recorded(spell(), other), (node_days(1),), (), since=SINCE, now=NOW)
    assert [each.check for each in found.checks] == ["MachineHealthCheck/default/workers", CHECK]
    assert found.missing_days == ("2026-11-25", "2026-11-26", "2026-11-27", "2026-11-29")
    assert found.since == SINCE.replace(hour=0)
    for name, expected in (("workers", 2), (CHECK, 1), ("default/workers", 0), ("other", 0)):
        assert len(compare(recorded(spell(), other), (), (), since=SINCE, now=NOW, check=name).checks) == expected
    old = spell(due=SINCE - timedelta(days=1))
    assert compare(recorded(old), (), (), since=SINCE, now=NOW).checks == ()


lengths = st.integers(1, 7200).map(lambda seconds: timedelta(seconds=seconds))
codes = st.sampled_from([MODE, "CircuitBreakerOpen", "Paused", "HeldOff"])


@st.composite
def spells(draw: st.DrawFn) -> Spell:
    """With spans that follow each other from `due` to the end."""
    parts = draw(st.lists(st.tuples(codes, lengths), min_size=1, max_size=5))
    at, spans = NOON, []
    for code, length in parts:
        spans.append(held(code, at, at + length))
        at += length
    ended = draw(st.booleans())
    last = spans[-1] if ended else replace(spans[-1], until=None)
    found = spell(draw(st.sampled_from("abcdef")), lasted=at - NOON if ended else None, held=(*spans[:-1], last))
    return replace(found, mode=draw(st.sampled_from(Mode)), ending=draw(st.sampled_from(Ending)) if ended else None)


@given(st.lists(spells(), max_size=6, unique_by=lambda each: each.node), lengths)
def test_every_spell_is_judged_once_and_a_longer_time_out_begins_no_more(found: list[Spell], usual: timedelta) -> None:
    cases = cases_of(recorded(*found), usual, NOW)
    assert len(cases) == len(found)
    for case in cases:
        if case.begins is not None:
            assert case.spell.due <= case.begins < (case.spell.ended or NOW)
            inside = [each for each in case.spell.held if each.since <= case.begins and (each.until or NOW) > case.begins]
            assert [each.code for each in inside] == [MODE]
        if case.judgement is Judgement.FALSE:
            assert case.spell.ending is Ending.CAME_BACK
            assert case.spell.ended is not None
            assert case.begins is not None
            assert case.spell.ended - case.begins <= usual
    if not found:
        return
    check = compared(*found)
    assert sum(check.judgements.values()) == len(found)
    assert [each.longer for each in check.timeouts] == list(LONGER)
    repairs = [each.repairs for each in check.timeouts]
    assert repairs == sorted(repairs, reverse=True)
    assert repairs[0] + check.timeouts[0].undecided == check.would_repair
    assert check.timeouts[0].false_repairs == check.false_repairs
    assert check.timeouts[0].later == timedelta(0)
    for tally in check.brakes:
        assert tally.rightly + tally.wrongly + tally.undecided == tally.spells <= len(found)


# The exact intervals: against their definition in exact fractions, and against what scipy 1.17 computes.

TAIL = 0.025

OF_SCIPY = {
    0: (0.0, 3.6888794541139354),
    1: (0.025317807984289876, 5.571643390938898),
    2: (0.24220927854396496, 7.22468766772396),
    5: (1.6234863901184207, 11.66833207932267),
    10: (4.7953886961324335, 18.39035604201778),
    25: (16.178681847829328, 36.904931697530365),
    100: (81.36399125092314, 121.62679379242638),
    1000: (938.9730184076952, 1063.952136016302),
}
"""`chi2.ppf(0.025, 2 * n) / 2` and `chi2.ppf(0.975, 2 * n + 2) / 2`."""

SHARES_OF_SCIPY = {
    (0, 1): (0.0, 0.975),
    (1, 1): (0.025, 1.0),
    (0, 20): (0.0, 0.1684334709830853),
    (20, 20): (0.8315665290169146, 1.0),
    (3, 10): (0.06673951117773447, 0.6524528500599973),
    (30, 1000): (0.020330485683109627, 0.042551402470029046),
    (999, 1000): (0.9944410757201734, 0.9999746825125088),
    (500, 1000): (0.46854917297179194, 0.531450827028208),
}
"""`beta.ppf(0.025, k, n - k + 1)` and `beta.ppf(0.975, k + 1, n - k)`."""


@pytest.mark.parametrize("cases", OF_SCIPY)
def test_a_rate_has_the_interval_of_scipy(cases: int) -> None:
    assert poisson_interval(cases) == pytest.approx(OF_SCIPY[cases], rel=1e-9)


@pytest.mark.parametrize(("cases", "of"), SHARES_OF_SCIPY)
def test_a_share_has_the_interval_of_scipy(cases: int, of: int) -> None:
    assert binomial_interval(cases, of) == pytest.approx(SHARES_OF_SCIPY[cases, of], rel=1e-8)


@given(of=st.integers(1, 60), part=st.floats(0, 1))
def test_each_end_of_a_share_leaves_a_fortieth_beyond_it(of: int, part: float) -> None:
    cases = round(of * part)
    low, high = binomial_interval(cases, of)

    def exactly(number: int, share: float) -> Fraction:
        exact = Fraction(share)
        return math.comb(of, number) * exact**number * (1 - exact) ** (of - number)

    assert 0 <= low <= cases / of <= high <= 1
    if cases:
        assert float(sum(exactly(each, low) for each in range(cases, of + 1))) == pytest.approx(TAIL, rel=1e-6)
    if cases < of:
        assert float(sum(exactly(each, high) for each in range(cases + 1))) == pytest.approx(TAIL, rel=1e-6)


@given(st.integers(0, 60))
def test_each_end_of_a_rate_leaves_a_fortieth_beyond_it(cases: int) -> None:
    low, high = poisson_interval(cases)

    def at_most(number: int, mean: float) -> float:
        term, total = Fraction(1), Fraction(0)
        for each in range(number + 1):
            total, term = total + term, term * Fraction(mean) / (each + 1)
        return float(total) * math.exp(-mean)

    assert low <= cases <= high
    if cases:
        assert 1 - at_most(cases - 1, low) == pytest.approx(TAIL, abs=1e-9)
    assert at_most(cases, high) == pytest.approx(TAIL, abs=1e-9)


def test_many_cases_need_no_patience() -> None:
    low, high = poisson_interval(5_000)
    assert (low, high) == pytest.approx((5_000 - 1.96 * math.sqrt(5_000), 5_000 + 1.96 * math.sqrt(5_000)), rel=1e-3)


def test_too_few_cases_say_too_little_and_none_say_nothing() -> None:
    rate, share = rate_of(3, 1500), share_of(3, FEWEST_CASES)
    assert rate is not None
    assert share is not None
    assert (rate.value, rate.enough) == (2.0, True)
    assert (share.value, share.enough) == (0.3, True)
    few, little = share_of(3, FEWEST_CASES - 1), rate_of(0, FEWEST_DAYS - 1)
    assert few is not None
    assert not few.enough
    assert little is not None
    assert not little.enough
    assert share_of(0, 0) is None
    assert rate_of(0, 0) is None
