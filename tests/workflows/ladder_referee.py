"""Whether each step of a ladder had its time before a later one began, which may delete the machine (S20).

It knows when nothing could be done: the node was held, its mode or the lack of a licence or permit let no act through, no worker
was there. What a step was left for it reads in the record; whether that is so, it knows by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from policy.episode.messages import RecordEntry
from policy.fence.plan import FencingPlan
from policy.remediation.ladder import EscalationStep
from tests.workflows.plans import ASKS, switches
from workflows.kit import options

OWN_FAULT = ("its time is over", "not done after", "not licensed", "comes too late")
"""What a step is left for that no device, controller or owner has said: it may only be left so once it had its time."""
ROUNDED = timedelta(seconds=20)
"""How far off that may be: looks come so seldom, and what is refused is known a while later."""
UNSEEN = options.WRITE_WINDOW
"""So long of it may pass for an activity that takes its time."""
BY_ITSELF = frozenset({"power_off", "power_on", *ASKS.values()})
"""Acts by which a step is tried. One that was switched on again has its time for the way back."""


@dataclass(slots=True)
class LadderReferee:
    """Of one machine's remediations."""

    ladder: tuple[EscalationStep, ...]
    plan: FencingPlan
    hindered: list[tuple[datetime, datetime]] = field(default_factory=list)
    """From when until when nothing was to be done."""
    away: list[tuple[datetime, datetime]] = field(default_factory=list)
    """From when until when no worker was there."""
    acts: list[tuple[datetime, str]] = field(default_factory=list)
    """When each act was attempted by which a step is tried."""
    _since: datetime | None = None

    def note(self, now: datetime, *, free: bool) -> None:
        """Whether anything may be done now."""
        if not free:
            self._since = self._since or now
        elif self._since is not None:
            self.hindered.append((self._since, now))
            self._since = None

    def tries(self, act: str, now: datetime) -> None:
        """An act is attempted."""
        if act in BY_ITSELF:
            self.acts.append((now, act))

    def free_time(self, since: datetime, until: datetime) -> timedelta:
        """How much of that time there was in which something could be done."""
        now, free, at = [(self._since, until)] if self._since is not None else [], until - since, since
        for begins, ends in sorted([*self.hindered, *((at + UNSEEN, end) for at, end in self.away), *now]):
            first, last = max(begins, at), min(ends, until)
            if last > first:
                free, at = free - (last - first), last
        return free

    def judge(self, record: Iterable[RecordEntry]) -> list[str]:
        """What a record says of steps that were left for the next one, or for a person."""
        found, began, steps = [], None, {each.name: each for each in self.ladder}
        for entry in record:
            if entry.act != "step":
                continue
            if entry.outcome in {"begins", "goes on"}:
                began = entry.at
            if entry.outcome != "failed" or began is None:
                continue
            name, _, why = entry.detail.partition(": ")
            step = steps[name]
            if any(each in why for each in OWN_FAULT) and self._is_possible(step):
                found += self._left_early(step, began, entry.at, why)
        return found

    def _is_possible(self, step: EscalationStep) -> bool:
        return step.strategy in ASKS or switches(step, self.plan)

    def _left_early(self, step: EscalationStep, began: datetime, left: datetime, why: str) -> list[str]:
        tried = [(at, act) for at, act in self.acts if began <= at <= left]
        own = self.free_time(began, left)
        if not tried:
            return [f"S20: {step.name} was left untried after {own} of its own ({left - began} in all): {why}"]
        if step.strategy in ASKS:  # who was asked goes on, whatever holds us
            own = left - tried[0][0]
        elif on := [at for at, act in tried if act == "power_on"]:  # then it is the machine's, whoever holds us
            own = self.free_time(began, on[0]) + left - on[0]
        if step.timeout is not None and own < step.timeout - ROUNDED:
            return [f"S20: {step.name} was left after {own} of its own, and has {step.timeout}: {why}"]
        return []
