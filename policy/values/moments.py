"""Moments as the API writes them: reading them, saying them, and adding to them without falling off the calendar.

Whoever may write a Node's status chooses its moments, up to the year 9999; none of them may stop the judgement of all others.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

RESOLUTION = timedelta(seconds=1)
"""The API cuts moments off to whole seconds: only a second later a timeout has certainly been exceeded, and never early."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def later(moment: datetime, *waits: timedelta) -> datetime:
    """The moment after all these waits; where the calendar ends, its end."""
    try:
        return moment + sum(waits, timedelta(0))
    except OverflowError:
        return LATEST


def in_utc(moment: datetime) -> datetime:
    """The same moment in UTC, which those without a zone are in already."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return EARLIEST if moment.year == 1 else LATEST


def moment_of(value: object) -> datetime | None:
    """A moment as the API writes it (RFC 3339), None for anything else."""
    try:
        return in_utc(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def written(moment: datetime) -> str:
    """In UTC and whole seconds, so that equal moments are equal words whoever writes them."""
    return in_utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ")
