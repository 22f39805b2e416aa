"""Sees arguments and environment of every process of this machine that lives for more than a moment, and of tools at once.

Whoever may look at a machine sees them, so no secret may be in them (S12). A process is looked at again and again in its first
second, for what was just forked shows its parent's until it has become a program of its own. A tool may be over within a few
milliseconds, so who opens its program is told by inotify: it is about to be run. Without inotify tools are seen now and then.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

PROCESSES = Path("/proc")

EVERY, YOUNG = 0.1, 1.0
"""Seconds between two looks round, and for which a process is looked at. Each of the processes of a test run looks round."""

HURRY, LOOKS_IN_HURRY = 0.002, 8
"""Seconds between two looks round while a tool is being started, and how many there are."""

IN_OPEN, IN_CLOSE_ON_EXEC = 0x20, 0o2000000

Seen = Callable[[int, bytes, bytes], None]
"""Told of a process: its number, its arguments and its environment, each of these with zeros between them."""


class ProcessWatch:
    """`with ProcessWatch(seen, tools=[…]):`; `seen` is called in a thread. Processes that ran before are left alone.

    Raises on its exit what `seen` raised meanwhile.
    """

    def __init__(self, seen: Seen, *, tools: Iterable[Path] = (), every: float = EVERY) -> None:
        self._tell = seen
        self._every = every
        self._since: dict[str, float] = {}
        self._tools = _Openings(tools)
        self._ending = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="process watch", daemon=True)

    def __enter__(self) -> Self:
        if possible():
            self._since = dict.fromkeys(_running(), -math.inf)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending = True
        self._tools.wake()
        if possible():
            self._thread.join()
        self._tools.close()
        if self._failure is not None:
            raise self._failure

    def _watch(self) -> None:
        hurried = 0
        try:
            while not self._ending:
                self._look_round()
                hurried = LOOKS_IN_HURRY if self._tools.wait(HURRY if hurried else self._every) else max(0, hurried - 1)
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


class _Openings:
    """Tells that one of these files is opened, where the kernel can."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._waiting = select.poll()
        self._woken, self._waker = os.pipe()
        self._waiting.register(self._woken, select.POLLIN)
        self._opened = -1
        libc = ctypes.CDLL(None)
        if hasattr(libc, "inotify_init1"):
            self._opened = libc.inotify_init1(IN_CLOSE_ON_EXEC)
        if self._opened >= 0:
            for file in files:
                libc.inotify_add_watch(self._opened, os.fsencode(file.resolve()), IN_OPEN)
            self._waiting.register(self._opened, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Until a file is opened, or the time is over. Says which."""
        ready = [handle for handle, _ in self._waiting.poll(seconds * 1000)]
        if self._opened in ready:
            os.read(self._opened, 65536)
        return self._opened in ready

    def wake(self) -> None:
        """Have `wait` return."""
        os.write(self._waker, b"!")

    def close(self) -> None:
        for handle in (self._woken, self._waker, self._opened):
            if handle >= 0:
                os.close(handle)


def possible() -> bool:
    """Whether this machine shows its processes as files."""
    return (PROCESSES / "self" / "environ").exists()
