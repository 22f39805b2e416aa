"""Tasks that come and go with the power of a machine, with crashes that must not be overlooked.

An `asyncio.TaskGroup` ends everything when one task fails, which is right for controllers and wrong for machines that
are switched off in the middle of anything. So these are started and cancelled one by one, and what fails is kept and
reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """A set of running tasks and the errors that ended some of them."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cancel_all(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def raise_failures(self) -> None:
        if self.failures:
            raise BaseExceptionGroup("parts of the simulated cluster crashed", self.failures)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("%s crashed", task.get_name(), exc_info=error)
            self.failures.append(error)
