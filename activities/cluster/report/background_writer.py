"""Writing beside the long poll: one task at a time, begun when the scan calls, so that no answer waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class BackgroundWriter:
    """The task that is under way. about: what it writes, for the log. `on_change` is called when it has ended."""

    def __init__(self, about: str, *, on_change: Callable[[], None]) -> None:
        self._about = about
        self._on_change = on_change
        self._working: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._working is not None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside the caller."""
        self._working = asyncio.create_task(work, name=self._about)
        self._working.add_done_callback(self._ended)

    async def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    def failed(self) -> None:
        """Called when it has ended by an unforeseen error, which is in the log."""

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s", self._about, error, exc_info=error)
            self.failed()
        self._on_change()
