"""The ladder of a remediation: which step comes first, which one after it, and when a step has had its time.

Only the order. Which steps a target has is `ladder.py`; what a step does is the workflow's story; what its object says meanwhile
is `following.py`. A step that failed is not tried again within a sequence of retries (`memory.py`), also not by the machine that
replaces the patient: the ladder goes on where its predecessor's ended. At its end there is a person, never nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from policy.remediation.strategies import Strategy
from policy.values.moments import later
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationStep:
    """One step. name: unique in its ladder, for the memory and for people. timeout None: it never runs out of time."""

    strategy: Strategy
    name: str
    template: ObjectRef | None = None
    timeout: timedelta | None = None


def first_step(ladder: tuple[EscalationStep, ...], failed: Collection[str]) -> int | None:
    """The index of the first step that has not failed, None where the ladder is used up."""
    return next_step(ladder, -1, failed)


def next_step(ladder: tuple[EscalationStep, ...], index: int, failed: Collection[str]) -> int | None:
    """The index of the first step after this one that has not failed, None where the ladder is used up."""
    return next((at for at in range(index + 1, len(ladder)) if ladder[at].name not in failed), None)


def timed_out(started: datetime, timeout: timedelta | None, now: datetime) -> bool:
    """Whether a step has had its time: strictly more than it."""
    return timeout is not None and now > later(started, timeout)
