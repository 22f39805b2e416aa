"""Events on a Node, as far as a fence policy asks for them: what somebody on the node has said of it lately.

An Event is no state: it says that something happened once, and nobody takes it back. So one counts for a while only, and only
where it is read at the moment of use (`activities/cluster/api/node_events.py`); no scan watches Events. What follows from one is
`policy/checks/fence_policies.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """reason, source: by whom it was reported, and when it was last seen to happen. message: in that one's words."""

    reason: str
    source: str
    at: datetime
    message: str = ""

    @property
    def called(self) -> str:
        """As a policy may name it."""
        return f"{self.source}/{self.reason}" if self.source else self.reason


def lately(events: Iterable[NodeEvent], wanted: Iterable[str], *, age: timedelta, now: datetime) -> NodeEvent | None:
    """The newest of the wanted ones that is no older than that; wanted by `reason`, or by `source/reason`.

    Nor that much younger than now: whoever writes an Event chooses its moment, and none may hold for ever.
    """
    named = set(wanted)
    found = (event for event in events if abs(now - event.at) <= age and {event.reason, f"{event.source}/{event.reason}"} & named)
    return max(found, key=lambda event: event.at, default=None)
