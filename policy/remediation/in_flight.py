"""How many of a group may be remediated at the same time, and who of them goes first.

A MachineSet's `maxInFlight` (`strategy.remediation` of its MachineDeployment), which holds for any group of targets here. It is
another thing than the brake of a health check (`policy/brakes.py`): that one asks how many are unwell, this one how many are
under way. Those are never stopped by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from policy.errors import PolicyError
from policy.healthcheck import Threshold
from policy.thresholds import LARGEST, Rounding, parse_threshold, scaled

MAX_IN_FLIGHT_ANNOTATION = "nodewarden.io/max-in-flight"
"""On a health check: a number or a percentage of its targets."""

UNLIMITED = LARGEST

LOOK_AGAIN = timedelta(seconds=15)
"""While the group is not fit for any remediation."""

_UNKNOWN_AGE = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One target that is to be remediated. annotated: a person wants it so."""

    name: str
    created: datetime | None = None
    annotated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Who begins now and who waits, both in their order. again: when to look again though nothing has changed, None for never.
    why: what the others wait for, "" where nobody waits.
    """

    begin: tuple[str, ...]
    defer: tuple[str, ...]
    again: timedelta | None = None
    why: str = ""


def room(limit: Threshold | None, total: int, in_flight: int) -> int:
    """How many more may begin. limit None: any number; 0: none at all; a percentage of the total is rounded up."""
    if limit is None:
        return UNLIMITED
    return max(0, scaled(limit, total, Rounding.UP) - in_flight)


def choose(
    waiting: Iterable[Waiting],
    *,
    limit: Threshold | None,
    replicas: int | None,
    in_flight: int,
    unfit: str = "",
    oldest_first: bool = False,
) -> Chosen:
    """Who begins. The newest does first, as on it there is the least to lose, except for those that a person has marked.

    replicas None: nobody says how many are wanted; that is one. unfit: why none may begin in this group now (a MachineSet's
    preflight checks), in words.
    """
    order = sorted(waiting, key=lambda each: each.name)
    order.sort(key=lambda each: each.created or _UNKNOWN_AGE, reverse=not oldest_first)
    order.sort(key=lambda each: not each.annotated)
    names = tuple(each.name for each in order)
    if unfit:
        return Chosen(begin=(), defer=names, again=LOOK_AGAIN if names else None, why=unfit if names else "")
    free = room(limit, 1 if replicas is None else replicas, in_flight)
    defer = names[free:]
    why = f"at most {limit} at the same time, {in_flight + len(names[:free])} are under way" if defer else ""
    return Chosen(begin=names[:free], defer=defer, why=why)


def read_limit(annotations: Mapping[str, str], subject: str) -> Threshold | None:
    """The limit in the annotation of a health check, None where there is none. Raises PolicyError."""
    text = annotations.get(MAX_IN_FLIGHT_ANNOTATION)
    if text is None:
        return None
    try:
        return parse_threshold(text)
    except ValueError as error:
        raise PolicyError(subject, f"metadata.annotations.{MAX_IN_FLIGHT_ANNOTATION}", str(error)) from error
