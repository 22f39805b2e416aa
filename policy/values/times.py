"""Durations and moments as Kubernetes objects write them: Go's `time.Duration` text (`300s`, `1h5m30.5s`) or a whole number of
seconds, and RFC 3339.

Only the text is read here; the reader of a field says which durations it accepts (a minimum, no negative ones).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache

_UNITS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),  # micro sign
    "μs": Fraction(1),  # Greek mu; Go takes both
    "ms": Fraction(1000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}
_PART = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"([-+]?)((?:{_PART})+)", re.ASCII)
_PARTS = re.compile(r"([0-9.]+)([a-zµμ]+)", re.ASCII)
_WRITTEN = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\b", re.ASCII)
_DAYS = re.compile(r"([0-9]{1,5})d", re.ASCII)
_LONGEST = (2**63 - 1) // 1000
"""Go counts nanoseconds in 64 bits: 292 years, here in microseconds."""

EXPECTED = 'a duration with units, such as "300s", "5m" or "1h5m30.5s"'
"""For messages: what every duration field expects."""
LONGEST_SINCE = timedelta(days=366)
"""How far back people may ask for what has ended."""
USUAL_SINCE = "30d"


@lru_cache(maxsize=256)
def parse_duration(text: str) -> timedelta:
    """The duration in Go's text form; `0` needs no unit. Raises ValueError saying what was expected.

    Fractions of a microsecond are rounded away from zero, so that no wait becomes shorter than it was written.
    """
    if text in {"0", "+0", "-0"}:
        return timedelta(0)
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"expected {EXPECTED}, got {text!r}")
    exact = sum((Fraction(number.rstrip(".")) * _UNITS[unit] for number, unit in _PARTS.findall(matched[2])), Fraction(0))
    microseconds = -(-exact.numerator // exact.denominator)
    if microseconds > _LONGEST:
        raise ValueError(f"expected {EXPECTED} of at most 292 years, got {text!r}")
    return timedelta(microseconds=-microseconds if matched[1] == "-" else microseconds)


def parse_span(text: str, longest: timedelta) -> timedelta:
    """How long a person asks for: `30d`, or a duration as everywhere. Raises ValueError saying what was expected."""
    try:
        found = timedelta(days=int(days[1])) if (days := _DAYS.fullmatch(text)) else parse_duration(text)
    except ValueError:
        found = timedelta(0)
    if not timedelta(0) < found <= longest:
        raise ValueError(
            f"expected a duration above 0 and of at most {longest.days}d, such as 90m, 72h or 30d, got {text[:40]!r}"
        )
    return found


def quantile(values: Sequence[timedelta], share: float) -> timedelta:
    """The shortest of them within which that share of all lies: one that has been, and no mean of two."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def format_duration(duration: timedelta) -> str:
    """The same form, for people: `5m`, `1h5m30.5s`, `0s`. Parses back to the same duration."""
    microseconds = duration // timedelta(microseconds=1)
    if microseconds == 0:
        return "0s"
    sign = "-" if microseconds < 0 else ""
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds, fraction = divmod(rest, 1_000_000)
    decimals = f".{fraction:06d}".rstrip("0") if fraction else ""
    parts = (f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{seconds}{decimals}s" if rest else "")
    return sign + "".join(parts)


def go_duration(duration: timedelta) -> str:
    """As Go prints it (`10m0s`, `1h0m0s`, `1.5s`): for texts that must equal those of a Go program."""
    microseconds = duration // timedelta(microseconds=1)
    if abs(microseconds) < 1_000_000:
        return format_duration(duration) if microseconds == 0 else f"{microseconds / 1000:g}ms"
    sign = "-" if microseconds < 0 else ""
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds, fraction = divmod(rest, 1_000_000)
    decimals = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{sign}{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{seconds}{decimals}s"


# Moments as the API writes them: parsed, written, and added to without an overflow of the calendar.
#
# A client that may write a Node's status chooses its moments, up to the year 9999; none of them may stop the judgement of the
# other nodes.

RESOLUTION = timedelta(seconds=1)
"""The API cuts moments off to whole seconds: only a second later a timeout has certainly been exceeded, and never early."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def later(moment: datetime, *waits: timedelta) -> datetime:
    """The moment after all these waits, at most the end of the calendar."""
    try:
        return moment + sum(waits, timedelta(0))
    except OverflowError:
        return LATEST


def in_utc(moment: datetime) -> datetime:
    """The same moment in UTC; a moment without a zone is in UTC already."""
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


def as_of(reader: datetime, moment: datetime) -> str:
    """A moment in the zone of another one, which is its reader's."""
    return moment.astimezone(reader.tzinfo).isoformat(" ", "seconds")


def read_as_of(reader: datetime, text: str) -> str:
    """A text with each moment that `written` has put into it in the zone of its reader."""

    def shown(found: re.Match[str]) -> str:
        try:
            return as_of(reader, datetime.fromisoformat(found[0]))
        except (ValueError, OverflowError):
            return found[0]  # of a day that no calendar has, as a stranger may write it

    return _WRITTEN.sub(shown, text)


def written(moment: datetime) -> str:
    """In UTC and whole seconds, so that equal moments are equal texts from any writer."""
    return in_utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ")
