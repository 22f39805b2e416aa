"""What the scanner does beside the scan, so that no deadline waits for it: tasks that end before the scanner does.

No `asyncio.TaskGroup`: one that is thrown away with its workflow, when that leaves a worker's cache, waits once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from temporalio import workflow


class BackgroundTasks:
    """Tasks of one scanner. What one of them raises is raised by the scan, at once (`failed`, `reap`)."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def failed(self) -> bool:
        """Whether there is an error for `reap` to raise."""
        return any(task.done() and (task.cancelled() or task.exception() is not None) for task in self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start it."""
        self._tasks.append(asyncio.create_task(work))

    def reap(self) -> None:
        """Forget what has ended. Raises what it has ended with."""
        done = [task for task in self._tasks if task.done()]
        self._tasks = [task for task in self._tasks if not task.done()]
        for task in done:
            task.result()

    async def ended(self) -> None:
        """Wait until nothing is under way. Raises what any of it ends with."""
        await workflow.wait_condition(lambda: self.failed or all(task.done() for task in self._tasks))
        self.reap()


class CoalescedTask:
    """Work that is done once at a time: a request that comes meanwhile has it done once more, with what is known by then."""

    def __init__(self, tasks: BackgroundTasks, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._work = work
        self._asked = self._busy = self._ending = False

    def ask(self) -> None:
        """Have it done soon."""
        self._asked = True
        if not self._busy and not self._ending:
            self._busy = True
            self._tasks.begin(self._run())

    def end(self) -> None:
        """Nothing more is begun; what is under way is not cut off."""
        self._ending = True

    async def _run(self) -> None:
        while self._asked and not self._ending:
            self._asked = False
            await self._work()
        self._busy = False
