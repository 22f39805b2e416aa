"""A worker's sign of life for whatever it does for longer than a moment: so that its loss is noticed in seconds.

Without it Temporal can only wait until an attempt's whole time is over. Which activities say when they are missed is
`workflows/kit/options.py` (`heartbeat_timeout`); how often is ours. A power command and a consequence say nothing: their
workflow waits out their full deadline in any case (S34).

A worker that is lost may be there again: an attempt knows until when it is waited for, and writes nothing after that (S45).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.clocks import ATTEMPT_ENDS

BEATS_PER_TIMEOUT = 4
"""At most: each is a write of Temporal's, and costs it some 10 to 20 ms."""
ROOM = timedelta(seconds=3)
"""By how much a busy worker's beat may be late before the worker is taken for lost. Where the time-out leaves more than that,
beats are rarer: the long poll beats for ever, and was most of what an idle cluster cost."""


class Liveness(Interceptor):
    """Heartbeats beside every activity that has a heartbeat time-out. They carry nothing."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Beside(next)


class _Beside(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.start_to_close_timeout is not None:
            # Counted by Temporal from its own beginning of the attempt: a worker may stand still before it has read its task.
            ATTEMPT_ENDS.set(info.started_time + info.start_to_close_timeout)
        timeout = info.heartbeat_timeout
        if timeout is None:
            return await self.next.execute_activity(input)
        beating = asyncio.create_task(_beat(pause_between_beats(timeout).total_seconds()))
        try:
            return await self.next.execute_activity(input)
        finally:
            beating.cancel()


def pause_between_beats(timeout: timedelta) -> timedelta:
    """How often an activity with that heartbeat time-out shows a sign of life."""
    return max(timeout - ROOM, timeout / BEATS_PER_TIMEOUT)


async def _beat(pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        activity.heartbeat()
