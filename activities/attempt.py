"""Until when the attempt of an activity that runs here may still write.

A worker that stood still (SIGSTOP, a suspended machine) goes on in the middle of an attempt which Temporal has long given to
another worker: what it then writes comes late and beside the episode (S45). Set for each attempt by `workers/liveness.py`; asked
right before each write by `activities/cluster/objects/livenode.py`.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime

ATTEMPT_ENDS: ContextVar[datetime | None] = ContextVar("ATTEMPT_ENDS", default=None)
"""When Temporal gives this attempt up, None outside of a worker's activities."""
