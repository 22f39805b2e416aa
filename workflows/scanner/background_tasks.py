"""What the scanner does beside the scan, so that no deadline waits for it: tasks that end before the scanner does.

No `asyncio.TaskGroup`: one that is thrown away with its workflow, when that leaves a worker's cache, waits once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, CancelledError

CUT_OFF = "what-the-next-history-does-anew-is-cut-off-with-this-one"
"""Marks the histories in which it is: those of earlier builds waited for it, and scanned nothing meanwhile."""


class BackgroundTasks:
    """Tasks of one scanner. What one of them raises is raised by the scan, at once (`failed`, `reap`)."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._repeated: list[asyncio.Task[None]] = []
        self._cut_off: list[asyncio.Task[None]] = []

    @property
    def failed(self) -> bool:
        """Whether there is an error for `reap` to raise."""
        return any(task.done() and (task.cancelled() or task.exception() is not None) for task in self._tasks)

    def begin(self, work: Coroutine[Any, Any, None], *, repeated: bool = False) -> None:
        """Start it. repeated: the next history does it anew where this one does not come to its end."""
        self._tasks.append(task := asyncio.create_task(work))
        if repeated:
            self._repeated.append(task)

    def reap(self) -> None:
        """Forget what has ended. Raises what it has ended with."""
        done = [task for task in self._tasks if task.done()]
        self._tasks = [task for task in self._tasks if not task.done()]
        self._repeated = [task for task in self._repeated if not task.done()]
        for task in done:
            task.result()

    def cut_off(self) -> bool:
        """End what the next history does anew, and whether there was any. Nothing is scanned until that one begins, nor is the
        cluster Lease renewed (S38), and what takes a moment else may take a minute while hundreds of nodes are in hand."""
        self.reap()
        if not self._repeated or not workflow.patched(CUT_OFF):
            return False
        self._cut_off, self._repeated = self._repeated, []
        self._tasks = [task for task in self._tasks if task not in self._cut_off]
        for task in self._cut_off:
            task.cancel()
        return True

    async def ended(self) -> None:
        """Wait until nothing is under way. Raises what any of it ends with, but for the end of what was cut off."""
        await workflow.wait_condition(lambda: self.failed or all(task.done() for task in (*self._tasks, *self._cut_off)))
        self.reap()
        for task in self._cut_off:
            if not task.cancelled():
                task.result()


def is_cut_off(error: ActivityError) -> bool:
    """Whether it is the end of an activity that was cut off with its task, and no failure."""
    return isinstance(error.cause, CancelledError)


class CoalescedTask:
    """Work that is done once at a time: a request that comes meanwhile has it done once more, with what is known by then."""

    def __init__(self, tasks: BackgroundTasks, work: Callable[[], Awaitable[None]], *, repeated: bool = False) -> None:
        """repeated: see `BackgroundTasks.begin`."""
        self._repeated = repeated
        self._tasks = tasks
        self._work = work
        self._asked = self._busy = self._ending = False

    def ask(self) -> None:
        """Have it done soon."""
        self._asked = True
        if not self._busy and not self._ending:
            self._busy = True
            self._tasks.begin(self._run(), repeated=self._repeated)

    def end(self) -> None:
        """Nothing more is begun. What is under way goes on, unless `cut_off` ends it."""
        self._ending = True

    async def _run(self) -> None:
        while self._asked and not self._ending:
            self._asked = False
            await self._work()
        self._busy = False
