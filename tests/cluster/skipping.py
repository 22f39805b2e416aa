"""Time that nobody sits out: while every task of the event loop only waits, its clock moves on to the next moment that counts.

The simulated servers, their clients and the product share one loop in one process, so that nothing can happen between two such
moments. A second of silence costs a millisecond, and what is due after an hour is due at once, in the same order as ever. Work is
not skipped: what takes the processor takes its time, and so does what runs in a thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from weakref import WeakKeyDictionary

import pytest

SHARE, LEAST = 0.01, 0.001
"""Of the time that is skipped so much is waited all the same, in pieces that a selector can wait: data on the loopback may be on
its way."""

WALLS = (
    "activities.worker_clock",
    "activities.cluster.api.connection",
    "activities.cluster.api.credentials",
    "activities.cluster.api.events",
    "activities.cluster.acts.cluster_lease",
    "simulator.objects",
)
"""Modules that read the wall clock by `datetime.now`."""


THREADS = frozenset({"evidence"})
"""Those of the product that are begun without the loop's executor, by their names."""


class Skipping:
    """One loop's clock; it never goes back, also after the tests that skip."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.skipped = 0.0
        self._on = False
        self._before = 0.0
        self._threads = 0
        self._owed = 0.0
        selector: Any = loop._selector  # type: ignore[attr-defined]
        self._wait = selector.select
        self._begin = loop.run_in_executor
        selector.select = self._select
        loop.time = lambda: time.monotonic() + self.skipped  # type: ignore[method-assign]
        loop.run_in_executor = self._run  # type: ignore[assignment,method-assign]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Skip within. The walls begin at the machine's own time."""
        self._on, self._before = True, self.skipped
        try:
            yield
        finally:
            self._on = False

    @property
    def ahead(self) -> timedelta:
        """By how much the walls go before the machine's own time, which they do within one test only."""
        return timedelta(seconds=self.skipped - self._before if self._on else 0)

    def _select(self, timeout: float | None = None) -> Any:
        if not self._on or timeout is None or timeout <= 0 or self._working():
            return self._wait(timeout)
        self._owed += SHARE * timeout
        heard = min(timeout, self._owed) if self._owed >= LEAST else 0.0
        self._owed -= heard
        events = self._wait(heard)
        if not events and not self._working():
            self.skipped += timeout - heard
        return events

    def _working(self) -> bool:
        """Whether something goes on beside the loop."""
        return bool(self._threads) or any(each.name in THREADS for each in threading.enumerate())

    def _run(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        self._threads += 1
        running = self._begin(executor, function, *arguments)
        running.add_done_callback(self._ended)
        return running

    def _ended(self, _: object) -> None:
        self._threads -= 1


_clocks: WeakKeyDictionary[asyncio.AbstractEventLoop, Skipping] = WeakKeyDictionary()


def now() -> datetime:
    """By the walls of this test."""
    return datetime.now(UTC) + sum((each.ahead for each in _clocks.values()), timedelta(0))


class Wall(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        """The wall clock's, which moves with the loop's."""
        return now().astimezone(tz)


@contextmanager
def skipping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Skip what is only waited for in this loop, and move the walls with it."""
    loop = asyncio.get_running_loop()
    if loop not in _clocks:
        _clocks[loop] = Skipping(loop)
    for module in WALLS:
        monkeypatch.setattr(f"{module}.datetime", Wall)
    monkeypatch.setattr("simulator.api.moments.now", now)
    with _clocks[loop].on():
        yield
