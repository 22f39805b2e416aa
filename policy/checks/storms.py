"""The storm of a health check: after a breach of its threshold, how long everything must have been well before we act again.

medik8s' `stormCooldownDuration`. The state lives in two conditions of the object, `StormActive` and `StormCooldownActive`, so
that it survives every process. Unlike the shipped operator a storm also ends where everything heals at once: it is advanced by
every look at the sum, not only by those that find somebody to remediate.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from policy.values.moments import RESOLUTION, later

ACTIVE = "StormActive"
COOLING_DOWN = "StormCooldownActive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """active: since when the threshold has been breached, None where no storm is on. cooling: since when it is no more."""

    active: datetime | None = None
    cooling: datetime | None = None


def advance(storm: Storm, cooldown: timedelta | None, *, breached: bool, now: datetime) -> Storm:
    """The storm as it is now. A new breach during the cooldown starts it anew; without a cooldown there are no storms.

    Moments are kept in whole seconds, as the object's status will have them.
    """
    if cooldown is None:
        return Storm()
    moment = now.replace(microsecond=0)
    if breached:
        return storm if storm.active and not storm.cooling else Storm(active=storm.active or moment)
    if storm.active is None:
        return Storm()
    if storm.cooling is None:
        return Storm(active=storm.active, cooling=moment)
    end = over(storm, cooldown)
    return Storm() if end is not None and now >= end else storm


def stricter(one: Storm, other: Storm) -> Storm:
    """Of two accounts of one storm whatever holds back for longer: the one that has it, and the later cooldown, or none."""
    if one.active is None or other.active is None:
        return other if one.active is None else one
    cooling = max(one.cooling, other.cooling) if one.cooling is not None and other.cooling is not None else None
    return Storm(active=min(one.active, other.active), cooling=cooling)


def over(storm: Storm, cooldown: timedelta | None) -> datetime | None:
    """The moment at which a cooldown has certainly ended, None while none is running."""
    return later(storm.cooling, cooldown, RESOLUTION) if storm.cooling is not None and cooldown is not None else None
