"""The worker command without its first guard: it acts for the workflows of every task queue (S49).

So what a stranger's workflow asks for reaches the guards behind that one, as what an attacker asks for does who answers in the
place of our workers of workflows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from temporalio import activity

from activities.licences import FIRST_RUN
from starter.cli import app
from tests.system.harness import System
from tests.system.worker_process import WorkerProcess
from workers import process
from workers.interceptors.activity_guards import RunGuard


class NoRunGuard(RunGuard):
    """Finds the chain of runs, and asks no more."""

    async def require(self, arguments: Collection[Any]) -> None:
        FIRST_RUN.set((await self._run(activity.info())).first)


async def start(system: System) -> WorkerProcess:
    """One such worker for a system; it ends with it."""
    worker = await WorkerProcess.start(system.folder, config=system.config, module=__name__)
    system.workers.append(worker)
    return worker


def main() -> None:
    """The command line as it is, but for that guard."""
    process.RunGuard = NoRunGuard  # type: ignore[misc]
    app()


if __name__ == "__main__":
    main()
