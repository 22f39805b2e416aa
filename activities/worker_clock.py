"""The worker's clock: whether it may be trusted, by the moment that Temporal wrote on what the worker has just been given, and
until when an attempt may write.

Every act carries moments of Temporal's clock: when it was decided, until when it may begin (S20, S45). A worker with a
wrong clock sends a command too late or calls each one expired, and what it writes is dated wrongly. Every worker, also one that
talks to no cluster, is told Temporal's time with every activity.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, failure
from policy.values.times import format_duration

Clock = Callable[[], datetime]
"""Where the moment comes from: `utc_now`, or what a test says."""

SLOWEST = timedelta(seconds=3)
"""A clock that is further behind would send what is too late: what may be in flight is waited out with a margin of 2 s (S34)."""

FASTEST = timedelta(seconds=5)
"""One that is further ahead calls expired what is not: an attempt to write has 10 s. More than SLOWEST, because an activity that
is taken up late looks the same."""

ANOTHER_WORKER = timedelta(seconds=1)
"""How soon another worker may have what this one has declined."""

wrong_clock: ContextVar[str] = ContextVar("wrong_clock", default="")
"""Of the activity that runs: what is wrong with its worker's clock, "" for nothing."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def worker() -> str:
    """Which one this is, for people who set its clock right."""
    return f"{os.getpid()}@{platform.node()}"


def left_to_others(problem: str) -> ApplicationError:
    """What a worker with a wrong clock raises: it has done nothing, and another one may."""
    return failure(ErrorType.WRONG_CLOCK, f"{problem}: it leaves this to another worker", retry_after=ANOTHER_WORKER)


def problem_of(started: datetime, now: datetime) -> str:
    """How a clock that says `now` where Temporal's said `started` a moment ago is wrong, to end a sentence with; "" where not."""
    ahead = now - started
    return "" if -SLOWEST <= ahead <= FASTEST else f"{about(ahead)} Temporal's"


def about(ahead: timedelta) -> str:
    """A difference of two clocks, for people: to a second, a large one to a minute, so that it is not another text each time."""
    step = timedelta(minutes=1) if abs(ahead) >= timedelta(minutes=2) else timedelta(seconds=1)
    return f"{format_duration(max(round(abs(ahead) / step), 1) * step)} {'ahead of' if ahead > timedelta(0) else 'behind'}"


# Until when the attempt of an activity that runs here may still write.
#
# A worker that stood still (SIGSTOP, a suspended machine) goes on in the middle of an attempt which Temporal has long given to
# another worker: what it then writes comes late and beside the episode (S45). Set for each attempt by
# `workers/interceptors/activity_guards.py`; asked at the first byte of each write (`cluster/api/connection.py`), and before, by
# `in_time`.

ATTEMPT_ENDS: ContextVar[datetime | None] = ContextVar("ATTEMPT_ENDS", default=None)
"""When Temporal gives this attempt up, None outside of a worker's activities."""


def waited_for_a_worker() -> timedelta:
    """How long the activity that runs, and earlier attempts at it, have taken before this attempt began, by Temporal's clock."""
    info = activity.info() if activity.in_activity() else None
    return max(info.started_time - info.scheduled_time, timedelta(0)) if info is not None else timedelta(0)


def begin_by(not_after: datetime) -> datetime:
    """By when a write is begun that was to begin by that moment."""
    return min(not_after, ATTEMPT_ENDS.get() or not_after)


def in_time(not_after: datetime | None, now: datetime, act: str) -> None:
    """Refuse what was to be begun earlier (S20): the reasons for it may have gone since."""
    limit = ATTEMPT_ENDS.get() if not_after is None else begin_by(not_after)
    if limit is not None and now > limit:
        raise failure(ErrorType.EXPIRED, f"{act}: not begun, it was to begin by {limit.isoformat()} and it is {now.isoformat()}")
