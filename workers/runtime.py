"""The process's one runtime of Temporal's SDK: it holds the threads that talk to the service, and serves the metrics.

What is measured is `activities/contracts/metrics.py`. The second section runs several things of which any failure ends all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from temporalio.runtime import LogForwardingConfig, LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig, TelemetryFilter

from activities.contracts.metrics import buckets
from workers.errors import SettingsError

_runtimes: list[Runtime] = []


def start_runtime(*, metrics: str = "") -> Runtime:
    """Make the process's one runtime, before anything connects. Raises SettingsError where metrics cannot be served there.

    Core's log lines go through Python's logging, so that `log.format` holds for them too.
    """
    if _runtimes:
        raise RuntimeError("the Temporal runtime of this process exists already")
    try:
        made = Runtime(
            telemetry=TelemetryConfig(
                metrics=PrometheusConfig(bind_address=metrics, durations_as_seconds=True, histogram_bucket_overrides=buckets())
                if metrics
                else None,
                logging=LoggingConfig(
                    filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"),
                    forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
                ),
            )
        )
    except (RuntimeError, ValueError) as error:
        message = f"metrics: expected an address to serve Prometheus metrics on, got {metrics!r}: {' '.join(str(error).split())}"
        raise SettingsError(message) from error
    _runtimes.append(made)
    return made


def runtime() -> Runtime:
    """The process's one runtime; one without metrics where it was not made before."""
    return _runtimes[0] if _runtimes else start_runtime()


# Running several things of which any failure ends all, as one plain exception.

T = TypeVar("T")


async def alongside(main: Awaitable[T], *companions: Coroutine[Any, Any, Any]) -> T:
    """Await `main` while the companions run; they are cancelled when it ends, and it when one of them fails.

    Raises what failed first, not a group of it: callers and people want the one reason.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(companion) for companion in companions]
            result = await main
            for task in tasks:
                task.cancel()
        return result
    except BaseExceptionGroup as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
