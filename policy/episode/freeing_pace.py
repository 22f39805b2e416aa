"""How many pods may be freed in a minute over a whole cluster, how many each episode was allowed, and how many are left.

The scanner keeps the portions that it has handed out and is the only one that hands any out; an episode asks for one right before
it frees, and comes back when it is told to. A portion counts until a minute after the last moment at which it may be used,
whatever becomes of it: so nobody has to report, and a lost answer or a dead worker frees too few pods, never too many. Where
nothing limits, nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortionRequest:
    """An episode asks to free so many pods now. number: the number of its question; the same number is the same question.
    per_minute: the limit as the episode has just read it."""

    node: str
    incident: str
    number: int
    pods: int
    per_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """So many pods may be freed by that episode until then."""

    incident: str
    number: int
    pods: int
    until: datetime

    @property
    def counts_until(self) -> datetime:
        """From then on no pod that was freed on it has been freed within the last minute."""
        return self.until + MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class PortionAnswer:
    """pods: how many may be freed until `until`; 0: none now, ask anew at `again`. problem: why nobody can say."""

    pods: int = 0
    until: datetime | None = None
    again: datetime | None = None
    problem: str = ""


def standing(portions: Iterable[Portion], now: datetime) -> tuple[Portion, ...]:
    """Those that still count."""
    return tuple(each for each in portions if each.counts_until > now)


def portion_of(
    portions: Iterable[Portion], request: PortionRequest, now: datetime, *, used_within: timedelta
) -> tuple[tuple[Portion, ...], PortionAnswer]:
    """What still counts after the question, and its answer. used_within: how long a portion may be used.

    As much as is left, so that a node with more pods than may go in a minute goes minute by minute.
    """
    counted = standing(portions, now)
    asked = next((each for each in counted if (each.incident, each.number) == (request.incident, request.number)), None)
    if asked is not None:
        return counted, PortionAnswer(pods=asked.pods, until=asked.until)
    pods = min(request.pods, request.per_minute - sum(each.pods for each in counted))
    if pods <= 0:
        again = min((each.counts_until for each in counted), default=now + MINUTE)
        return counted, PortionAnswer(again=again)
    portion = Portion(incident=request.incident, number=request.number, pods=pods, until=now + used_within)
    return (*counted, portion), PortionAnswer(pods=pods, until=portion.until)
