"""Worker processes: what one serves, how it starts, and how it ends without burning what is in flight.

A `Serving` is one task queue; several run in one process on one client. What implements an activity is wired in
`workers/composition.py`; this module knows only queues, slots and shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Interceptor, Worker, WorkerDeploymentConfig

from workers.configuration.process_settings import WorkerSettings
from workers.interceptors.activity_guards import CallerGuard, ClockGuard, Liveness, RunGuard
from workers.interceptors.workflow_guards import CommandGuard, ContinuationGuard
from workers.runtime import alongside, runtime

_log = logging.getLogger(__name__)

HEARTBEATS_EVERY = timedelta(seconds=2)
"""Longest throttle of heartbeats; the SDK's four fifths of a time-out leave a busy moment no room."""


class Role(StrEnum):
    """What a worker process serves: everything, or one blast radius."""

    ALL = "all"
    WORKFLOWS = "workflows"
    CLUSTER = "cluster"
    POWER = "power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One task queue with what is served on it. `slots`: activities at once, which is the limit on concurrent acts. guards: what
    is asked before each of them, last of all. without_temporal: what goes on while Temporal is away, until it is cancelled."""

    queue: str
    workflows: Sequence[type] = ()
    activities: Sequence[Callable[..., Any]] = ()
    slots: int = 50
    guards: Sequence[Interceptor] = ()
    without_temporal: Callable[[], Coroutine[Any, Any, None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeployment:
    """A worker deployment version. Episodes stay on the build they began on; the behaviour is set here and never on the
    workflow classes, where it would break every unversioned worker."""

    name: str
    build_id: str

    def config(self) -> WorkerDeploymentConfig:
        return WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(deployment_name=self.name, build_id=self.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )


def activities_of(*services: object) -> list[Callable[..., Any]]:
    methods = [getattr(service, name) for service in services for name in dir(service) if not name.startswith("_")]
    return [method for method in methods if hasattr(method, "__temporal_activity_definition")]


def build(
    client: Client,
    serving: Serving,
    settings: WorkerSettings,
    *,
    deployment: WorkerDeployment | None = None,
    around: Sequence[Interceptor] = (),
    run_guard: RunGuard | None = None,
) -> Worker:
    """The SDK's worker for one queue. around: interceptors that go before all of ours. run_guard: one for all queues of a process
    asks once of each run; None: one of its own."""
    return Worker(
        client,
        task_queue=serving.queue,
        workflows=serving.workflows,
        activities=serving.activities,
        max_cached_workflows=settings.cached_workflows,
        max_concurrent_activities=serving.slots,
        sticky_queue_schedule_to_start_timeout=settings.sticky_timeout,
        graceful_shutdown_timeout=settings.graceful_shutdown,
        max_heartbeat_throttle_interval=HEARTBEATS_EVERY,
        default_heartbeat_throttle_interval=HEARTBEATS_EVERY,
        # Workflows have Temporal's time, and so has what only talks to Temporal.
        interceptors=[
            *around,
            Liveness(),
            ContinuationGuard(_types(serving.workflows)),
            CommandGuard(required=settings.commands == "verified"),
        ]
        if serving.workflows
        else [
            *around,
            Liveness(),
            ClockGuard(runtime().metric_meter),
            CallerGuard(),
            run_guard or RunGuard(client),
            *serving.guards,
        ],
        deployment_config=deployment.config() if deployment else _unversioned(),
    )


def _types(workflows: Sequence[type]) -> frozenset[str]:
    definitions = (workflow._Definition.must_from_class(each) for each in workflows)
    return frozenset(each.name for each in definitions if each.name is not None)


def _unversioned() -> WorkerDeploymentConfig:
    """Who we are, for the list of pollers, without taking part in versioning. Left out, the SDK makes up a name by compiling
    and hashing all code that is loaded: more than a second of each start, and so of each recovery from a crash."""
    try:
        ours = version("nodewarden")
    except PackageNotFoundError:
        ours = "not-installed"  # run from a source tree
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name="nodewarden", build_id=ours), use_worker_versioning=False
    )


async def run_until(stop: asyncio.Event, workers: Sequence[Worker]) -> None:
    """Poll until `stop` is set, then drain. Raises what ends a worker by itself (an unknown namespace, say)."""
    for worker in workers:
        _log.info("serving task queue %s", worker.task_queue)
    await alongside(_drain_on_stop(stop, workers), *(worker.run() for worker in workers))


async def _drain_on_stop(stop: asyncio.Event, workers: Sequence[Worker]) -> None:
    await stop.wait()
    _log.info("stopping: running activities get time to end")
    await asyncio.gather(*(worker.shutdown() for worker in workers))


@asynccontextmanager
async def stop_on_signals() -> AsyncIterator[asyncio.Event]:
    """An event that SIGTERM, SIGINT and a closed terminal set. A second one has its usual effect at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signals.append(signal.SIGHUP)

    def on_signal() -> None:
        stop.set()
        for each in signals:
            loop.remove_signal_handler(each)

    for each in signals:
        loop.add_signal_handler(each, on_signal)
    try:
        yield stop
    finally:
        for each in signals:
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(each)
