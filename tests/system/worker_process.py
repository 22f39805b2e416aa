"""`nodewarden worker` as a process of its own, so that it can be killed like one. Its log is shown when a test fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tests.system import mortal
from tests.system.nursery import Nursery

ROOT = Path(__file__).parents[2]
ORDER_VARIABLE = "KILL_ORDER"
LONGEST_ACT_VARIABLE = "LONGEST_ACT"
"""Seconds that the longest act of any template takes, of a killable worker; without it as the product has it."""
OURS = ("NODEWARDEN_", "TEMPORAL_", "KUBECONFIG", "KUBERNETES_", "NODE_NAME")
"""What of the caller's environment would change a worker."""

TAIL = 60


class When(StrEnum):
    """Which side of an activity's effect."""

    BEFORE = "before"
    AFTER = "after"
    """The effect is there, its result was not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillOrder:
    """When a killable worker is to kill itself: at the n-th activity of that type that it runs in one workflow. freezes: it is to
    stop (SIGSTOP) instead, until `thaw`."""

    when: When
    activity: str
    occurrence: int = 1
    freezes: bool = False

    def __str__(self) -> str:
        number = f" #{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.when.value} {self.activity}{number}"


class Process(Protocol):
    """What is asked of a process, whoever started it."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...


class WorkerProcess:
    """One worker. `start` makes it; it is ended by `kill`, `stop`, or by itself."""

    def __init__(self, process: Process, log: Path, order_file: Path | None = None) -> None:
        self.log = log
        self._process = process
        self._order_file = order_file

    @classmethod
    async def start(
        cls,
        folder: Path,
        *,
        config: Path,
        name: str = "worker",
        environment: Mapping[str, str] | None = None,
        module: str = "starter.cli",
        arguments: Sequence[str] = (),
    ) -> WorkerProcess:
        """The real command, with these settings and none that happen to be in our environment; it dies with us.

        module: another one whose command line is the real one's. arguments: more of them for `worker`.
        """
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *mortal.command(sys.executable, "-m", module, *_arguments(config), *arguments),
                cwd=folder, env=clean_environment(environment),
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        return cls(process, log)

    @classmethod
    async def start_killable(
        cls, folder: Path, *, config: Path, name: str, nursery: Nursery, longest_act: float | None = None
    ) -> WorkerProcess:
        """The same command with a switch in it (`killable_worker.py`). longest_act: see LONGEST_ACT_VARIABLE."""
        log, order_file = folder / f"{name}.log", folder / f"{name}.order"
        environment = clean_environment({ORDER_VARIABLE: str(order_file)})
        if longest_act is not None:
            environment[LONGEST_ACT_VARIABLE] = str(longest_act)
        process = await nursery.bear(_arguments(config), folder=folder, environment=environment, log=log)
        return cls(process, log, order_file)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def obey(self, order: KillOrder) -> None:
        """Set the switch of a killable worker."""
        assert self._order_file is not None, "only a worker from a nursery obeys"
        draft = self._order_file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(order)))
        draft.rename(self._order_file)

    def forget_order(self) -> bool:
        """Take the order back; False where it was carried out."""
        assert self._order_file is not None, "only a worker from a nursery obeys"
        try:
            self._order_file.unlink()
        except FileNotFoundError:
            return False
        return True

    @property
    def obeyed(self) -> bool:
        """Whether it has done what it was told to."""
        assert self._order_file is not None, "only a worker from a nursery obeys"
        return not self._order_file.exists()

    def thaw(self) -> None:
        """Let one that stands still go on, where it stopped."""
        os.kill(self.pid, signal.SIGCONT)

    async def wait(self) -> int:
        """Its exit code, once it has one; minus nine after SIGKILL."""
        return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL: nothing of it has a moment left."""
        if self.alive:
            self._process.kill()
        await self._process.wait()

    async def stop(self, *, seconds: float = 30.0) -> int:
        """SIGTERM, and its exit code. One that does not end in time is killed, which is an error."""
        if self.alive:
            self._process.terminate()
        try:
            return await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            await self.kill()
            raise TimeoutError(f"worker {self.pid} did not end within {seconds} s of SIGTERM:\n{self.tail()}") from None

    @property
    def end(self) -> str:
        """How it ended, in a line; "" while it has not."""
        last = self.tail(1) or "it said nothing"
        return "" if self.alive else f"{self.log.stem} ended with {self._process.returncode}: {last}"

    async def tell_where_it_stands(self) -> None:
        """Have a killable worker write its threads' stacks into its log, for one that seems to do nothing."""
        if self.alive and self._order_file is not None:
            os.kill(self.pid, signal.SIGUSR1)
            await asyncio.sleep(0.2)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._process.terminate()

    def tail(self, lines: int = TAIL) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _arguments(config: Path) -> list[str]:
    return ["--config", str(config), "worker"]


def clean_environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """Ours without what would change a worker, with the canary, and with more."""
    from tests.system.canary import RUN  # not in the processes that are started here

    inherited = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    return {**inherited, "PYTHONPATH": str(ROOT), "NODEWARDEN_CREDENTIAL_NOBODYS": RUN.value, **(more or {})}
