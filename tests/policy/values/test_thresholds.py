"""Thresholds: reading an int-or-percentage, and rounding it."""

from __future__ import annotations

import pytest

from policy.values.fields import Threshold, parse_threshold


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
