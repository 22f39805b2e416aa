"""Values as objects write them: thresholds, durations, selectors, causes of what is unreadable; and what is due first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.values.agenda import SPARE, Agenda
from policy.values.errors import Unread, unread_text
from policy.values.fields import Threshold, parse_threshold
from policy.values.selectors import Operator, Requirement, Selector
from policy.values.times import LONGEST_SINCE, format_duration, parse_duration, parse_span, read_as_of


@pytest.mark.parametrize(
    ("written", "threshold"),
    [
        (0, Threshold(value=0)),
        ("3", Threshold(value=3)),
        ("40%", Threshold(value=40, percent=True)),
        ("0%", Threshold(value=0, percent=True)),
    ],
)
def test_numbers_and_percentages_are_read(written: object, threshold: Threshold) -> None:
    assert parse_threshold(written) == threshold


@pytest.mark.parametrize(
    "written", [-1, "-1", "-30%", "101%", "40 %", "40.5%", "", "%", "abc", None, True, 1.5, ["3"], "٣%", "99999999999%"]
)
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="expected a whole number of at least 0 or a percentage"):
        parse_threshold(written)


def test_a_dialect_may_refuse_numbers_written_as_text() -> None:
    with pytest.raises(ValueError, match="'10'"):
        parse_threshold("10", plain_text=False)
    assert parse_threshold("10%", plain_text=False) == Threshold(value=10, percent=True)


# Durations as Kubernetes objects write them.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300s", 300),
        ("1h5m30.5s", 3930.5),
        ("0", 0),
        ("-1.5h", -5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("100ms", 0.1),
        ("7µs", 0.000007),
        ("7μs", 0.000007),
        ("5m300s", 600),
    ],
)
def test_a_go_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_what_is_finer_than_a_microsecond_never_shortens_a_wait() -> None:
    assert parse_duration("1ns") == timedelta(microseconds=1)
    assert parse_duration("-1001ns") == timedelta(microseconds=-2)


@pytest.mark.parametrize("text", ["", "300", "5 m", "m", "1d", "s5", "1.2.3s", "5m-3s", "٣s", "--1s", "1e3s", "9999999h", ".s"])
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration with units"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("30d", timedelta(days=30)), ("12h", timedelta(hours=12)), ("366d", LONGEST_SINCE)]
)
def test_people_ask_in_days_and_durations(text: str, expected: timedelta) -> None:
    assert parse_span(text, LONGEST_SINCE) == expected


@pytest.mark.parametrize("text", ["", "soon", "0d", "367d", "-1h", "9999999h", "1000d", "99999d", "١d"])
def test_another_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration above 0 and of at most 366d"):
        parse_span(text, LONGEST_SINCE)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (300, "5m"), (3930.5, "1h5m30.5s"), (3600, "1h"), (-90, "-1m30s"), (86400, "24h")]
)
def test_people_get_the_short_form(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(min_value=timedelta(days=-90000), max_value=timedelta(days=90000)))
def test_what_is_written_reads_back_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


# Whom a selector takes.

ROLES = {"infra": {"role": "infra"}, "master": {"role": "master"}, "worker": {"role": "worker"}, "none": {}}


@pytest.mark.parametrize(
    ("operator", "values", "taken"),
    [
        (Operator.IN, ("worker", "infra"), ["infra", "worker"]),
        (Operator.NOT_IN, ("master",), ["infra", "worker", "none"]),
        (Operator.EXISTS, (), ["infra", "master", "worker"]),
        (Operator.DOES_NOT_EXIST, (), ["none"]),
    ],
)
def test_an_expression_takes_objects_by_one_label(operator: Operator, values: tuple[str, ...], taken: list[str]) -> None:
    """000's own example is "every Machine that is not of the control plane": one that has no role is none of it either."""
    requirement = Requirement(key="role", operator=operator, values=values)
    assert [name for name, labels in ROLES.items() if requirement.matches(labels)] == taken
    both = Selector(requirements=(requirement, Requirement(key="zone", operator=Operator.EXISTS)))
    assert not any(both.matches(labels) for labels in ROLES.values())
    assert [name for name, labels in ROLES.items() if both.matches({**labels, "zone": "a"})] == taken


# What could not be read, by its cause.


def test_one_silent_server_is_one_cause_with_the_count_and_the_kinds() -> None:
    checks = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks/workers"
    found = [
        Unread(what="the node", why="GET /api/v1/nodes/node-1: no answer in time"),
        Unread(what="its health check", why=f"GET {checks}: no answer in time"),
        Unread(what="the permit", why="no scanner answers"),
    ]
    silent = "2 things could not be read (no answer in time): the node, its health check"
    assert unread_text(found) == f"{silent}; the permit could not be read: no scanner answers"


def test_the_request_is_named_where_it_alone_has_failed() -> None:
    found = [Unread(what="the node", why="GET /api/v1/nodes/node-1: 403 Forbidden: nodes is forbidden")]
    assert unread_text(found) == "the node could not be read: GET /api/v1/nodes/node-1: 403 Forbidden: nodes is forbidden"
    assert unread_text([]) == ""


# What is due first, and that nothing piles up until it would be due.

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def agenda(**due: float) -> Agenda[str]:
    found = Agenda[str]()
    for key, seconds in due.items():
        found.put(key, at(seconds))
    return found


def taken(found: Agenda[str], seconds: float) -> list[str]:
    return list(iter(lambda: found.take(at(seconds)), None))


def test_what_is_due_is_taken_in_order_and_once() -> None:
    found = agenda(late=9, soon=1, early=0)
    assert (found.first, len(found)) == (at(0), 3)
    assert taken(found, 1) == ["early", "soon"]
    assert taken(found, 8) == []
    assert (found.first, "late" in found, "soon" in found) == (at(9), True, False)


def test_a_moment_that_was_moved_or_dropped_is_not_kept() -> None:
    found = agenda(moved=1, dropped=2, unset=3, anew=4)
    found.put("moved", at(7))
    found.drop("dropped")
    found.put("unset", None)
    found.drop("anew")
    found.put("anew", at(4))
    assert found.first == at(4)
    assert taken(found, 9) == ["anew", "moved"]
    assert found.first is None


def test_what_flaps_does_not_pile_up() -> None:
    found = agenda(steady=99)
    for seconds in range(5 * SPARE):
        found.put("flaps", at(1_000 + seconds))
        assert len(found._heap) <= SPARE + 4 * len(found) + 1
    assert (found.first, len(found)) == (at(99), 2)
    assert taken(found, 10_000) == ["steady", "flaps"]


# Moments in sentences.

CET = datetime(2026, 11, 28, tzinfo=timezone(timedelta(hours=1), "CET"))


def test_moments_in_a_text_are_read_in_the_zone_of_its_reader() -> None:
    text = "paused by ada, until 2026-11-28T23:12:05Z: since 2026-11-28T03:00:00Z"
    assert read_as_of(CET, text) == "paused by ada, until 2026-11-29 00:12:05+01:00: since 2026-11-28 04:00:00+01:00"
    assert read_as_of(CET.astimezone(UTC), "at 2026-11-28T03:00:00Z.") == "at 2026-11-28 03:00:00+00:00."


def test_what_is_no_moment_of_a_calendar_stays_as_a_stranger_wrote_it() -> None:
    for text in ("9999-12-31T23:59:59Z", "2026-13-41T99:00:00Z", "12026-11-28T03:00:00Z", "2026-11-28T03:00:00Zed"):
        assert read_as_of(CET, text) == text
