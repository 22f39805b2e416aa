"""A pause of a whole cluster: a person's word that nothing new is begun and nothing destructive is done, until it ends.

What was begun and is proven off is still freed, and machines are switched on again: restoring needs no permit (S17). Where
nothing scans the cluster any more, because a person has stopped the scanner, the same is said in the same places (S44).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy.values.moments import written

PAUSE_MEMO = "pause"
"""Of a scanner's workflow: the pause that is in force, for the scanner that comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who wants it, why, and until when; None: until somebody ends it."""

    who: str
    reason: str
    since: datetime
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it is still in force."""
        return self.until is None or now < self.until

    def __str__(self) -> str:
        until = f"until {written(self.until)}" if self.until is not None else "until somebody ends it"
        return f"paused by {self.who}, {until}: {self.reason} (`nodewarden unpause` ends it)"
