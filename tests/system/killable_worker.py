"""The worker command with a switch in it: it can be told to SIGKILL or to freeze itself exactly before or after one activity.

Everything else is the real thing, from the command line on. The switch is a file (`worker_process.KillOrder`), so that it can be
set while the worker runs; the file's vanishing tells that the worker obeyed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from starter.cli import app
from tests.system.worker_process import LONGEST_ACT_VARIABLE, ORDER_VARIABLE, KillOrder, When
from workers import worker
from workflows.episode import node_writes
from workflows.scanner import permits


class KillSwitch(Interceptor):
    """Reads the order before each activity."""

    def __init__(self, order_file: Path) -> None:
        self.order_file = order_file
        self._order: KillOrder | None = None
        self._seen: dict[tuple[str, str], list[str]] = {}

    def intercept_activity(self, inner: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return Inbound(inner, self)

    def meets(self) -> KillOrder | None:
        """The order, if the activity that is about to run is the one it means."""
        order = self._read()
        if order != self._order:
            self._order, self._seen = order, {}
        info = activity.info()
        if order is None or info.activity_type != order.activity:
            return None
        seen = self._seen.setdefault((info.activity_type, info.workflow_run_id or ""), [])
        if info.activity_id not in seen:
            seen.append(info.activity_id)
        return order if len(seen) == order.occurrence else None

    def obey(self, order: KillOrder) -> None:
        """Say so by removing the order, then be gone, or stand still until somebody lets it go on."""
        self.order_file.unlink()
        os.kill(os.getpid(), signal.SIGSTOP if order.freezes else signal.SIGKILL)

    def _read(self) -> KillOrder | None:
        try:
            written = json.loads(self.order_file.read_text())
        except FileNotFoundError:
            return None
        return KillOrder(**{**written, "when": When(written["when"])})


class Inbound(ActivityInboundInterceptor):
    """Round one activity."""

    def __init__(self, inner: ActivityInboundInterceptor, switch: KillSwitch) -> None:
        super().__init__(inner)
        self._switch = switch

    async def execute_activity(self, call: ExecuteActivityInput) -> Any:
        order = self._switch.meets()
        if order is not None and order.when is When.BEFORE:
            self._switch.obey(order)
        result = await self.next.execute_activity(call)
        if order is not None and order.when is When.AFTER:
            self._switch.obey(order)
        return result


def main() -> None:
    """The command line as it is, with the switch in every worker that it makes."""
    faulthandler.register(signal.SIGUSR1)
    if seconds := os.environ.get(
        LONGEST_ACT_VARIABLE
    ):  # as `impatient_worker.py`, by which a terminated episode is taken over soon
        node_writes.LONGEST_ACT, permits.DESCRIBE_EVERY = timedelta(seconds=float(seconds)), timedelta(seconds=2)
    switch = KillSwitch(Path(os.environ[ORDER_VARIABLE]))

    def with_switch(*arguments: Any, interceptors: Sequence[Interceptor], **options: Any) -> Worker:
        return Worker(*arguments, interceptors=[switch, *interceptors], **options)

    worker.Worker = with_switch  # type: ignore[assignment, misc]
    app()


if __name__ == "__main__":
    main()
