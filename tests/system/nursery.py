"""Worker processes that are born with everything imported, for tests that need dozens of them.

Importing takes longer than all that such a worker then does. So one process imports once, and forks for each request: this
module is both, that process (`python -m tests.system.nursery`) and the test's side of it. What runs in the fork is the command
line of `killable_worker`, from its arguments on. Nothing of Temporal's runtime lives before the fork, only code.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from tests.system import mortal


class Born:
    """The test's side of one forked process, shaped like asyncio's own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def has_ended(self, returncode: int) -> None:
        self.returncode = returncode
        self._ended.set()

    def _signal(self, what: signal.Signals) -> None:
        # Its pid is its own until the nursery has told its end; only the telling may be on its way.
        with suppress(ProcessLookupError):
            os.kill(self.pid, what)


class Nursery:
    """`async with Nursery(folder) as nursery:`; on exit everything that it bore is killed."""

    def __init__(self, root: Path, log: Path) -> None:
        self._root = root
        self._log = log
        self._born: dict[int, Born] = {}
        self._waiting: list[asyncio.Future[Born]] = []

    async def __aenter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *mortal.command(sys.executable, "-m", __name__),
                env={**os.environ, "PYTHONPATH": str(self._root)},
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._listening = asyncio.create_task(self._listen(), name="nursery")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._born.values():
            child.kill()
        await asyncio.gather(*(child.wait() for child in self._born.values()))
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._listening

    async def bear(self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path) -> Born:
        """Fork one that runs the command line with these arguments, this environment and this log."""
        assert self._process.stdin is not None
        request = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment), "log": str(log)}
        told: asyncio.Future[Born] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return await told

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            if "born" in told:
                child = self._born[told["born"]] = Born(told["born"])
                self._waiting.pop(0).set_result(child)
            else:
                self._born.pop(told["ended"]).has_ended(told["status"])
        for told_never in self._waiting:
            told_never.set_exception(RuntimeError(f"the nursery has ended: {self._log.read_text()[-500:]}"))


# The process ------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Import, then fork for each line of standard input, until it ends."""
    for name in everything():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no child looks again through what all of them have
    signal.signal(signal.SIGCHLD, _reap)
    parent = os.getpid()
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # its birth is told before its death
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            _live(request, parent)
        _tell(born=pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


ROOMS = ("activities.cluster", "workflows")
EVERYTHING = (
    "activities.evidence_directory",
    "activities.episodes",
    "activities.power.kdump_listener",
    "activities.temporal_clients",
    "activities.temporal_clients",
    "activities.power.service",
    "activities.power.service",
    "kubernetes.aio.client",
    "kubernetes.aio.config",
    "tests.system.killable_worker",
    "workers.configuration.credentials",
    "workers.logs",
    "workers.process",
)
"""With all of ROOMS, what each worker imports; one that is missing here costs time and nothing else."""


def everything() -> Iterator[str]:
    yield from EVERYTHING
    for room in ROOMS:
        yield from (each.name for each in pkgutil.walk_packages(importlib.import_module(room).__path__, prefix=f"{room}."))


def _live(request: dict[str, Any], parent: int) -> NoReturn:
    from tests.system.killable_worker import main as work

    mortal.die_with(parent)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["nodewarden", *request["arguments"]]
    code = 1
    try:
        work()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(_number: int, _frame: FrameType | None) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(ended=pid, status=os.waitstatus_to_exitcode(status))


def _tell(**words: int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()
