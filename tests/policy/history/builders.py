"""Spells, node-days and ended repairs, as a scanner and its episodes record them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from policy.episode.gate import MODE
from policy.episode.messages import EpisodeResult, Outcome, RestartProof
from policy.history.comparison import RecordedSpell
from policy.history.spells import Ending, HeldSpan, NodeDays, Spell
from policy.values.mode import Mode

CHECK = "NodeHealthCheck/workers"
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
"""When spells of these tests are due, if they say nothing else."""
TIMEOUT = timedelta(minutes=5, seconds=1)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def held(code: str, since: datetime, until: datetime | None = None) -> HeldSpan:
    return HeldSpan(code=code, message=f"{code} holds it", since=since, until=until)


def spell(
    node: str = "node-7", *, lasted: timedelta | None = timedelta(minutes=3), ending: Ending | None = None, **fields: Any
) -> Spell:
    """Observed, and back by itself so long after it was due; lasted None: it goes on."""
    due: datetime = fields.pop("due", NOON)
    ended = due + lasted if lasted is not None else None
    found = Spell(
        node=node,
        check=CHECK,
        cause="ReadyUnknown",
        since=due - TIMEOUT,
        due=due,
        mode=Mode.OBSERVE,
        held=(held(MODE, due, ended),),
        ended=ended,
        ending=(ending or Ending.CAME_BACK) if ended is not None else None,
    )
    return replace(found, **fields)


def recorded(*spells: Spell) -> tuple[RecordedSpell, ...]:
    return tuple(RecordedSpell(spell=each, workflow_id=f"observation/prod/{each.node}/{each.due.isoformat()}") for each in spells)


def node_days(days: float, day: str = "2026-11-28", mode: Mode = Mode.OBSERVE) -> NodeDays:
    return NodeDays(day=day, check=CHECK, mode=mode, seconds=days * 86400)


def repaired(node: str, ended: datetime, *, took: timedelta = timedelta(minutes=6), **fields: Any) -> EpisodeResult:
    """By a restart that a check had asked for."""
    found = EpisodeResult(
        outcome=Outcome.RECOVERED,
        incident=f"i-{node}-{ended:%d%H%M}",
        cluster="prod",
        node=node,
        message="",
        started=ended - took,
        ended=ended,
        restart_proof=RestartProof(boot_id="b2", previous_boot_id="b1", seen_at=ended),
        check=CHECK,
        cause="ReadyUnknown",
    )
    return replace(found, **fields)
