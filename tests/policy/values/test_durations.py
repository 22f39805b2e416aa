"""Durations as Kubernetes objects write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.values.times import format_duration, parse_duration


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
    ("seconds", "text"), [(0, "0s"), (300, "5m"), (3930.5, "1h5m30.5s"), (3600, "1h"), (-90, "-1m30s"), (86400, "24h")]
)
def test_people_get_the_short_form(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(min_value=timedelta(days=-90000), max_value=timedelta(days=90000)))
def test_what_is_written_reads_back_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
