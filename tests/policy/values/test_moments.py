"""Moments in sentences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from policy.values.times import read_as_of

CET = datetime(2026, 11, 28, tzinfo=timezone(timedelta(hours=1), "CET"))


def test_moments_in_a_text_are_read_in_the_zone_of_its_reader() -> None:
    text = "paused by ada, until 2026-11-28T23:12:05Z: since 2026-11-28T03:00:00Z"
    assert read_as_of(CET, text) == "paused by ada, until 2026-11-29 00:12:05+01:00: since 2026-11-28 04:00:00+01:00"
    assert read_as_of(CET.astimezone(UTC), "at 2026-11-28T03:00:00Z.") == "at 2026-11-28 03:00:00+00:00."


def test_what_is_no_moment_of_a_calendar_stays_as_a_stranger_wrote_it() -> None:
    for text in ("9999-12-31T23:59:59Z", "2026-13-41T99:00:00Z", "12026-11-28T03:00:00Z", "2026-11-28T03:00:00Zed"):
        assert read_as_of(CET, text) == text
