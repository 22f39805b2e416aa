"""Until when the attempt of an activity that runs here may still write.

A worker that stood still (SIGSTOP, a suspended machine) goes on in the middle of an attempt which Temporal has long given to
another worker: what it then writes comes late and beside the episode (S45). Set for each attempt by
`workers/interceptors/liveness.py`; asked right before each write, by `in_time`.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime

from activities.errors import ErrorType, failure

ATTEMPT_ENDS: ContextVar[datetime | None] = ContextVar("ATTEMPT_ENDS", default=None)
"""When Temporal gives this attempt up, None outside of a worker's activities."""


def in_time(not_after: datetime | None, now: datetime, act: str) -> None:
    """Refuse what was to be begun earlier (S20): the reasons for it may have gone since. Whoever writes asks this last, since the
    worker may have stood still after it had read (S45)."""
    limit = min((each for each in (not_after, ATTEMPT_ENDS.get()) if each is not None), default=None)
    if limit is not None and now > limit:
        raise failure(ErrorType.EXPIRED, f"{act}: not begun, it was to begin by {limit.isoformat()} and it is {now.isoformat()}")
