"""The worker command with the clocks sped up by which the work of a terminated episode is noticed and taken over.

A terminated episode tells nobody, and what it may have in flight is waited out by the longest act there may be in any template.
A minute for each is right for a cluster and too long for a test; everything else is the real thing, from the command line on.
Its neighbour `killable_worker.py` is the one that can be killed on order.
"""

from __future__ import annotations

from datetime import timedelta

from starter.cli import app
from tests.system.harness import System
from tests.system.worker_process import WorkerProcess
from workflows.episode import node_writes
from workflows.kit import options
from workflows.scanner import permits

LOOK_EVERY = timedelta(seconds=2)
LONGEST_ACT = timedelta(seconds=3)
"""As long as the act deadline of the harness's template, the only one in its clusters."""

ACT_WINDOW = timedelta(seconds=6)
WAITED_OUT = LONGEST_ACT + ACT_WINDOW + options.IN_FLIGHT_MARGIN
"""How long whoever adopts a node waits before it concludes anything from a reading (S34)."""


async def start(system: System, *, name: str = "impatient") -> WorkerProcess:
    """One such worker for a system; it ends with it."""
    worker = await WorkerProcess.start(system.folder, config=system.config, name=name, module=__name__)
    system.workers.append(worker)
    return worker


def main() -> None:
    """The command line as it is, with the clocks sped up."""
    permits.DESCRIBE_EVERY = LOOK_EVERY
    node_writes.LONGEST_ACT = LONGEST_ACT
    options.ACT_WINDOW = ACT_WINDOW
    app()


if __name__ == "__main__":
    main()
