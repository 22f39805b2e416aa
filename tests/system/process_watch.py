"""Sees arguments and environment of every process of this machine that lives for more than a moment.

Whoever may look at a machine sees them, so no secret may be in them (S12). A process is looked at again and again in its first
second, for what was just forked shows its parent's until it has become a program of its own. What is over within milliseconds is
seen now and then: the tools that fence agents start are asked in `tests/power/agents`, where they are made to wait.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

PROCESSES = Path("/proc")

EVERY, YOUNG = 0.1, 1.0
"""Seconds between two looks round, and for which a process is looked at. Each of the processes of a test run looks round."""

Seen = Callable[[int, bytes, bytes], None]
"""Told of a process: its number, its arguments and its environment, each of these with zeros between them."""


class ProcessWatch:
    """`with ProcessWatch(seen):`; `seen` is called in a thread. Processes that ran before are left alone.

    Raises on its exit what `seen` raised meanwhile.
    """

    def __init__(self, seen: Seen) -> None:
        self._tell = seen
        self._since: dict[str, float] = {}
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="process watch", daemon=True)

    def __enter__(self) -> Self:
        if possible():
            self._since = dict.fromkeys(_running(), -math.inf)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        if possible():
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _watch(self) -> None:
        try:
            while not self._ending.wait(EVERY):
                self._look_round()
        except Exception as error:  # noqa: BLE001 - raised where the watch ends: one that stood still has seen nothing
            self._failure = error

    def _look_round(self) -> None:
        now = time.monotonic()
        since: dict[str, float] = {}
        for name in _running():
            since[name] = self._since.get(name, now)
            if now - since[name] < YOUNG:
                self._look_at(name)
        self._since = since

    def _look_at(self, name: str) -> None:
        try:
            arguments, environment = (self._read(PROCESSES / name / what) for what in ("cmdline", "environ"))
        except (FileNotFoundError, ProcessLookupError):
            return  # it has ended
        if arguments:
            self._tell(int(name), arguments, environment)

    @staticmethod
    def _read(file: Path) -> bytes:
        try:
            return file.read_bytes()
        except PermissionError:
            return b""  # it is another user's, or lets nobody look into it, as our worker and its operations


def _running() -> list[str]:
    return [name for name in os.listdir(PROCESSES) if name[0] in "123456789"]  # noqa: PTH208 - far quicker, and often


def possible() -> bool:
    """Whether this machine shows its processes as files."""
    return (PROCESSES / "self" / "environ").exists()
