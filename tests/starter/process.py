"""A command of ours as a process of its own, as a person or a pod would run it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.power.process_table import children_of, gone

ROOT = Path(__file__).parents[2]


class Process:
    """A running command and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def says(self, text: str, *, within: float = 60) -> str:
        """Wait for a line with that text, so many seconds."""
        async with asyncio.timeout(within):
            while True:
                for line in self.said:
                    if text in line:
                        return line
                assert not self._reading.done(), f"ended without saying {text!r}: {self.said}"
                await asyncio.sleep(0.05)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        try:
            async with asyncio.timeout(60):
                await asyncio.shield(self._reading)
                return await self.process.wait()
        except TimeoutError:
            self.tell(signal.SIGABRT)  # says where each of its threads is
            await self._reading
            lines = "\n".join(self.said)
            raise AssertionError(f"it has not ended:\n{lines}") from None

    def tell(self, what: signal.Signals) -> None:
        self.process.send_signal(what)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.said.append(line.decode().rstrip())


def _hears_an_interrupt() -> None:
    """A test run in the background has it ignored, and so would have what it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@asynccontextmanager
async def nodewarden(*arguments: str, module: str = "starter.cli", **environment: str) -> AsyncIterator[Process]:
    """stdout and stderr in one; killed if the test forgets it, or fails, with all that it has started."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=Path.cwd(),
        preexec_fn=_hears_an_interrupt,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", **environment},
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            started = _started_by(process.pid)
            process.kill()
            for each in started:  # it can end none of them any more, and what they write is waited for, too
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
                await gone(each)
            await process.wait()


def _started_by(parent: int) -> list[int]:
    """Its living children, theirs, and so on: a demo's worker has a Temporal server."""
    return [each for child in children_of(parent) for each in (child, *_started_by(child))]
