"""Until when the attempt of an activity that runs here may still write.

A worker that stood still (SIGSTOP, a suspended machine) goes on in the middle of an attempt which Temporal has long given to
another worker: what it then writes comes late and beside the episode (S45). Set for each attempt by
`workers/interceptors/liveness.py`; asked at the first byte of each write (`api/connection.py`), and before, by `in_time`.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime

from activities.errors import ErrorType, failure

ATTEMPT_ENDS: ContextVar[datetime | None] = ContextVar("ATTEMPT_ENDS", default=None)
"""When Temporal gives this attempt up, None outside of a worker's activities."""


def begin_by(not_after: datetime) -> datetime:
    """By when a write is begun that was to begin by that moment."""
    return min(not_after, ATTEMPT_ENDS.get() or not_after)


def in_time(not_after: datetime | None, now: datetime, act: str) -> None:
    """Refuse what was to be begun earlier (S20): the reasons for it may have gone since."""
    limit = ATTEMPT_ENDS.get() if not_after is None else begin_by(not_after)
    if limit is not None and now > limit:
        raise failure(ErrorType.EXPIRED, f"{act}: not begun, it was to begin by {limit.isoformat()} and it is {now.isoformat()}")
