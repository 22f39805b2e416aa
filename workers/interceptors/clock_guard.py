"""A worker whose clock is wrong leaves to others everything that it is given, and says so (S18, S44).

What it declines has not begun, so that another try harms nobody, and comes soon: Temporal gives it to whoever asks next. The scan
is an exception: where nobody else takes it, its answer is the only way in which people hear of the clock; its view is closed.
How the difference is measured is `activities/clocks.py`.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.common import MetricMeter
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.clocks import left_to_others, problem_of, worker, wrong_clock
from activities.contracts import metrics

SCAN = "scan.observe-cluster"
SCANS_DECLINED = 4
"""So often in a row a scan is left to others; then there seems to be nobody else."""

_log = logging.getLogger(__name__)


class Timekeeping(Interceptor):
    """Before every activity of a queue whose acts have moments of their own."""

    def __init__(self, meter: MetricMeter = MetricMeter.noop) -> None:
        """meter: the process's own; it has one clock, whatever it is given."""
        self._ahead = metrics.CLOCK_AHEAD.on(meter)
        self._wrong = False

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Timed(next, self)

    def look(self, info: activity.Info) -> str:
        """What is wrong with our clock at this moment, "" for nothing; logged when that changes."""
        now = datetime.now(UTC)
        self._ahead.set((now - info.started_time).total_seconds())
        wrong = problem_of(info.started_time, now)
        problem = f"the clock of worker {worker()} is {wrong}" if wrong else ""
        if bool(problem) != self._wrong:
            self._wrong = bool(problem)
            if problem:
                _log.warning("%s: it leaves %s to others; set it right (NTP)", problem, info.task_queue)
            else:
                _log.info("%s: our clock agrees with Temporal's again", info.task_queue)
        return problem


class _Timed(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, keeping: Timekeeping) -> None:
        super().__init__(inner)
        self._keeping = keeping

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        problem = self._keeping.look(info)
        if problem and not (info.activity_type == SCAN and info.attempt > SCANS_DECLINED):
            raise left_to_others(problem)
        wrong_clock.set(problem)
        return await self.next.execute_activity(input)
