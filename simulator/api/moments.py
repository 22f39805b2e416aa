"""Times as the API writes them. The wall clock of the simulated cluster is the machine's own, but for a server made to err."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """metav1.Time: whole seconds, Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(moment: datetime) -> str:
    """metav1.MicroTime, as Lease and Event have it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)


def age(text: str, at: datetime) -> str:
    """`5m`, `3h12m`, `2d4h`: how kubectl's tables tell an age."""
    try:
        elapsed = at - parse(text)
    except (TypeError, ValueError):
        return "<unknown>"
    return _short(max(elapsed, timedelta(0)))


def _short(elapsed: timedelta) -> str:
    seconds = int(elapsed.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y{days % 365}d"
