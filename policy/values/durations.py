"""Durations as Kubernetes objects write them: Go's `time.Duration` text (`300s`, `1h5m30.5s`), or a whole number of seconds.

Only the text; which durations a field accepts (a minimum, no negative ones) is said where the field is read.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

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
_LONGEST = (2**63 - 1) // 1000
"""Go counts nanoseconds in 64 bits: 292 years, here in microseconds."""

EXPECTED = 'a duration with units, such as "300s", "5m" or "1h5m30.5s"'
"""For messages: what every duration field expects."""


def parse_duration(text: str) -> timedelta:
    """The duration in Go's text form; `0` needs no unit. Raises ValueError saying what was expected.

    What is finer than a microsecond is rounded away from zero, so that no wait becomes shorter than it was written.
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
    """As Go prints it (`10m0s`, `1h0m0s`, `1.5s`): for words that have to be equal to those of a program written in Go."""
    microseconds = duration // timedelta(microseconds=1)
    if abs(microseconds) < 1_000_000:
        return format_duration(duration) if microseconds == 0 else f"{microseconds / 1000:g}ms"
    sign = "-" if microseconds < 0 else ""
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds, fraction = divmod(rest, 1_000_000)
    decimals = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{sign}{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{seconds}{decimals}s"
