"""Thresholds: reading an int-or-percentage, and rounding it."""

from __future__ import annotations

import pytest

from policy.values.thresholds import Rounding, Threshold, parse_threshold, scaled


@pytest.mark.parametrize(
    ("written", "threshold"),
    [
        (0, Threshold(value=0)),
        (3, Threshold(value=3)),
        ("3", Threshold(value=3)),
        ("40%", Threshold(value=40, percent=True)),
        ("100%", Threshold(value=100, percent=True)),
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


@pytest.mark.parametrize(
    ("written", "total", "up", "down"),
    [
        ("51%", 3, 2, 1),
        ("51%", 1, 1, 0),
        ("34%", 3, 2, 1),
        ("40%", 25, 10, 10),
        ("49%", 12, 6, 5),
        ("100%", 0, 0, 0),
        (3, 2, 3, 3),
    ],
)
def test_percentages_round_as_the_dialect_has_it(written: object, total: int, up: int, down: int) -> None:
    threshold = parse_threshold(written)
    assert (scaled(threshold, total, Rounding.UP), scaled(threshold, total, Rounding.DOWN)) == (up, down)
