"""A whole process: its Temporal (embedded where none is named), its workers, from start to drained end.

Used by `nodewarden worker`, `nodewarden up` and the demo, which differ only in what they ask for.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.client import Client

from workers.composition import compose
from workers.configuration.clusters import ClusterSettings
from workers.configuration.process_settings import TemporalSettings
from workers.configuration.settings import Settings
from workers.connect import connect, connect_meanwhile, watch_temporal
from workers.embedded.server import EmbeddedTemporal, running_endpoint
from workers.embedded.state_directory import Endpoint
from workers.errors import SettingsError, StoppedError
from workers.interceptors.activity_guards import RunGuard
from workers.os_process import give_back_memory, keep_little_spare_memory, keep_memory_private
from workers.runtime import alongside
from workers.telemetry import tracing
from workers.temporal_namespace import ensure_search_attributes, name_embedded, required_search_attributes
from workers.worker import Role, WorkerDeployment, build, run_until

_log = logging.getLogger(__name__)

EMBEDDED_PATIENCE = timedelta(seconds=30)
LOCAL_STICKY_TIMEOUT = timedelta(seconds=3)
"""With one worker on one machine no other will take a step over: waiting long for a dead predecessor gains nothing."""

COLLECT_AFTER = (10_000, 20, 20)
"""New objects before the youngest are looked through, and how many such rounds before the older ones are."""


@dataclass(slots=True, kw_only=True)
class Running:
    """A connected process. Set `stop` to let it drain. `server`: the embedded one, where this process started or joined it."""

    client: Client
    address: str
    endpoint: Endpoint | None = None
    server: EmbeddedTemporal | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def failed(self) -> None:
        """Returns only by raising: EmbeddedServerError once an embedded server cannot be kept running."""
        if self.server is not None:
            await self.server.failed()
        await asyncio.Event().wait()


@asynccontextmanager
async def temporal(
    settings: Settings,
    *,
    embed: bool,
    stop: asyncio.Event | None = None,
    meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> AsyncIterator[Running]:
    """The Temporal of the settings; where none is named, the embedded one: started (`embed`), else only found. meanwhile: what
    goes on while it is waited for."""
    keep_memory_private()
    keep_little_spare_memory()
    async with AsyncExitStack() as stack:
        endpoint: Endpoint | None = None
        server: EmbeddedTemporal | None = None
        where: TemporalSettings = settings.temporal
        if not where.address:
            if embed:
                attributes = dict.fromkeys(required_search_attributes(), "Keyword")
                server = await stack.enter_async_context(
                    EmbeddedTemporal(
                        settings.state,
                        port=settings.embedded.port,
                        ui_port=settings.embedded.ui_port,
                        search_attributes=attributes,
                        retention=settings.embedded.retention,
                    )
                )
                endpoint = server.endpoint
            else:
                endpoint = running_endpoint(settings.state)
            if endpoint is None:
                raise SettingsError(
                    "temporal.address (TEMPORAL_ADDRESS): expected host:port of a Temporal service; "
                    "none is set, and no `nodewarden up` runs here with one of its own"
                )
            where = where.model_copy(update={"address": endpoint.address})
        stop = stop or asyncio.Event()
        connecting = connect(where, clusters=settings.connections, patience=None if endpoint is None else EMBEDDED_PATIENCE)
        client = await alongside(connect_meanwhile(connecting, [meanwhile] if meanwhile else []), _raise_on_stop(stop))
        if server is not None and server.ours:
            await name_embedded(client)
        yield Running(client=client, address=where.address, endpoint=endpoint, server=server, stop=stop)


async def _raise_on_stop(stop: asyncio.Event) -> None:
    """While nothing is served yet there is nothing to drain."""
    await stop.wait()
    raise StoppedError


async def work(
    settings: Settings,
    running: Running,
    *,
    clusters: Mapping[str, ClusterSettings],
    role: Role = Role.ALL,
    deployment: WorkerDeployment | None = None,
) -> None:
    """Serve until `running.stop` is set; then drain."""
    created = await ensure_search_attributes(running.client, create=settings.temporal.register_search_attributes)
    if created:
        _log.info("created search attributes %s", ", ".join(created))
    limits = settings.worker
    if running.endpoint is not None:
        limits = limits.model_copy(update={"sticky_timeout": min(limits.sticky_timeout, LOCAL_STICKY_TIMEOUT)})
    async with (
        tracing(settings.tracing, identity=running.client.service_client.config.identity) as around,
        compose(settings, running.client, clusters=clusters, role=role) as servings,
    ):
        spare_collector()
        if deployment is not None:
            _log.info(
                "registering as version %s of deployment %s; make it current with: "
                "temporal worker deployment set-current-version --deployment-name %s --build-id %s",
                deployment.build_id,
                deployment.name,
                deployment.name,
                deployment.build_id,
            )
        run_guard = RunGuard(running.client)
        workers = [
            build(running.client, serving, limits, deployment=deployment, around=around, run_guard=run_guard)
            for serving in servings
        ]
        meanwhile = [each.without_temporal for each in servings if each.without_temporal is not None]
        await alongside(run_until(running.stop, workers), watch_temporal(running.client, meanwhile))


def spare_collector() -> None:
    """What is loaded by now stays for as long as the process: the garbage collector need not look through it again and again.

    With the interpreter's own thresholds that took about a tenth of the worker's CPU (`python -m benchmarks.episode`).
    """
    give_back_memory()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
