"""An answer that many pages want and one question gets: kept for seconds, and asked for by nobody's clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

FAILED_SECONDS = 1.0
"""How long it is remembered that there was no answer, however long that took."""

T = TypeVar("T")


class Shared(Generic[T]):
    """Asks when somebody wants to know and what is known is too old; all who come meanwhile wait for the same answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]], *, fresh: timedelta, times_as_long: int = 0) -> None:
        """fresh: how long an answer is good for; times_as_long: or so many times as long as it has taken, where that is longer,
        so that what is dear is not asked for as often as what is cheap."""
        self._ask = ask
        self._fresh = fresh.total_seconds()
        self._times_as_long = times_as_long
        self._asking: asyncio.Task[T] | None = None
        self._good_until = float("-inf")

    async def get(self) -> T:
        """As old as it may be. Raises what asking raises, kept for a second: who does not answer is not asked by each page."""
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now >= self._good_until):
            self._asking = asyncio.create_task(self._asked())
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _asked(self) -> T:
        clock = asyncio.get_running_loop().time
        began, good_for = clock(), min(self._fresh, FAILED_SECONDS)
        try:
            answer = await self._ask()
            good_for = max(self._fresh, (clock() - began) * self._times_as_long)
            return answer
        finally:
            self._good_until = clock() + good_for
