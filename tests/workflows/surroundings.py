"""Where a workflow test plays: on the clockwork, or on a real server that skips time, and what both have in common for it.

On the clockwork a test costs a tenth of the time, and what happens first happens first in each run. `NODEWARDEN_TEST_SERVER=1`
plays them all on the server, from which the histories are recorded, too; some always do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowHandle
from temporalio.runtime import BufferedMetricUpdate, MetricBuffer
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.contracts.metrics import Metric
from tests.workflows.clockwork_service import ClockworkService, StaffedClockwork
from workers.plugin import PLUGIN

T = TypeVar("T")

POLL = 0.01
LONG_ENOUGH = 2.5


class ClockworkEnvironment(WorkflowEnvironment):
    """The clockwork in the server's place."""

    def __init__(self) -> None:
        self.clockwork = StaffedClockwork()
        super().__init__(Client(ClockworkService(self.clockwork), plugins=[PLUGIN]))

    async def shutdown(self) -> None:
        """Nothing happens any more."""
        await self.clockwork.close()
        assert self.clockwork.problems == []

    async def get_current_time(self, handle: WorkflowHandle[Any, Any] | None = None) -> datetime:
        """There is one clock for all."""
        return self.clockwork.now

    async def fast_forward(self, handle: WorkflowHandle[Any, Any], duration: timedelta | float | None = None, /) -> bool:
        """Let so much time pass, or what is left of a workflow."""
        assert isinstance(duration, timedelta)
        return await self.clockwork.skip(duration, handle.id)

    @contextmanager
    def with_time_skipping_disabled(self) -> Iterator[None]:
        """Not for what begins in here, nor for anything else in this test."""
        self.clockwork.skips = False
        yield


def worker(
    client: Client,
    *,
    task_queue: str,
    workflows: Sequence[type] = (),
    activities: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> AbstractAsyncContextManager[object]:
    """A worker where the client's workflows run."""
    if isinstance(client.service_client, ClockworkService):
        return _hired(client.service_client.clockwork, task_queue, workflows, activities)
    return Worker(client, task_queue=task_queue, workflows=workflows, activities=activities, **options)


@asynccontextmanager
async def _hired(
    clockwork: StaffedClockwork, queue: str, workflows: Sequence[type], activities: Sequence[Callable[[Any], Any]]
) -> AsyncIterator[None]:
    clockwork.learn(workflows)
    hired = clockwork.hire(queue, activities)
    try:
        yield
    finally:
        clockwork.dismiss(hired)
        names = {kind.__name__ for kind in workflows}
        for execution in clockwork.executions.values():
            if execution.definition.name in names:
                execution.forget()


async def moment(env: WorkflowEnvironment) -> None:
    """Between two looks at something that is waited for."""
    if isinstance(env, ClockworkEnvironment):
        await env.clockwork.moment()
    else:
        await asyncio.sleep(POLL)


@asynccontextmanager
async def patience(env: WorkflowEnvironment, seconds: float) -> AsyncIterator[None]:
    """Wait for something so long, by the clock of where it is to happen."""
    async with asyncio.timeout(seconds):
        if isinstance(env, ClockworkEnvironment):
            with env.clockwork.patient(timedelta(seconds=seconds)):
                yield
        else:
            yield


async def eventually(env: WorkflowEnvironment, condition: Callable[[], bool], *, within: float = 20) -> None:
    """Wait until it is so."""
    async with patience(env, within):
        while not condition():
            await moment(env)


async def asked_until(
    env: WorkflowEnvironment, ask: Callable[[], Awaitable[T]], condition: Callable[[T], bool], *, within: float = 20
) -> T:
    """Ask a workflow until its answer is as wished."""
    async with patience(env, within):
        while True:
            with contextlib.suppress(RPCError):  # between two runs, or before the first task: there is nobody to answer yet
                if condition(answer := await ask()):
                    return answer
            await moment(env)


async def let_pass(env: WorkflowEnvironment, handle: WorkflowHandle[Any, Any], duration: timedelta) -> None:
    """Let some time pass in which nothing is to happen. A server is not waited for that long: it skips it or it does not."""
    if isinstance(env, ClockworkEnvironment):
        await env.fast_forward(handle, duration)
    else:
        await asyncio.sleep(min(duration.total_seconds(), LONG_ENOUGH))


class Measured:
    """Another client of the same server, and its metrics."""

    def __init__(self, client: Client, buffer: MetricBuffer) -> None:
        self.client = client
        self._buffer = buffer
        self._seen: list[BufferedMetricUpdate] = []

    def updates(self, metric: Metric | str) -> list[BufferedMetricUpdate]:
        """Each time that it was measured; one of Temporal's own goes by its name."""
        name = metric if isinstance(metric, str) else metric.name
        self._seen += self._buffer.retrieve_updates()
        return [each for each in self._seen if each.metric.name == name]

    def of(self, metric: Metric | str, *labels: str) -> Counter[tuple[str, ...]]:
        """How often each was measured; labels: what they are told apart by."""
        return Counter(tuple(str(each.attributes[label]) for label in labels) for each in self.updates(metric))

    def longest(self, metric: Metric) -> float:
        """The greatest value, in seconds."""
        return max(each.value for each in self.updates(metric))
