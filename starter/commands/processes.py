"""`nodewarden up`: what the current context needs, in one process: Temporal unless one is named, worker, scanner, table.
`nodewarden worker`: only the worker, for a deployment against an existing Temporal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from activities.lean_imports import import_temporal
from starter.commands.arguments import ClusterOption, for_a_cluster
from starter.commands.scan import started_by
from starter.commands.servers import PAGE_PORT, page_beside
from starter.commands.session import Exit, Session, folded, session_of, working
from starter.errors import ClusterHeldError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from activities.cluster.api.connection import ClusterConnection
    from starter.client import Nodewarden
    from starter.handles.scanners import StartedScanner
    from starter.handles.status import ClusterStatus
    from starter.output.display import Display
    from workers.configuration.clusters import ClusterSettings
    from workers.configuration.settings import Settings


log = logging.getLogger(__name__)


@working
async def worker(
    context: typer.Context,
    *,
    role: Annotated[str, typer.Option("--role", help="What to serve: all, workflows, cluster or power.", metavar="ROLE")] = "all",
    site: Annotated[
        list[str] | None, typer.Option("--site", help="Site with power devices that are reached from here (repeatable).")
    ] = None,
    deployment: Annotated[str, typer.Option("--deployment", help="Worker deployment, with --build-id.")] = "",
    build_id: Annotated[str, typer.Option("--build-id", help="Version of the worker deployment.")] = "",
    cluster: ClusterOption = "",
) -> Exit | None:
    """Run a worker until SIGTERM or Ctrl-C; then let what is in flight end. Waits for Temporal if it is not up yet."""
    import_temporal()
    from workers import process
    from workers.composition import needs_clusters, warn_without_temporal
    from workers.logs import configure
    from workers.runtime import start_runtime
    from workers.worker import Role, WorkerDeployment, stop_on_signals

    session = session_of(context, cluster=cluster)
    if bool(deployment) != bool(build_id):
        raise SettingsError("--deployment and --build-id: expected both or neither")
    if role not in set(Role):
        raise SettingsError(f"--role: expected one of {', '.join(Role)}, got {role!r}")
    settings = session.settings()
    if site:
        settings = settings.model_copy(update={"sites": tuple(site)})
    version = WorkerDeployment(name=deployment, build_id=build_id) if deployment else None
    chosen = Role(role)
    clusters = session.clusters(settings) if needs_clusters(settings, chosen) else {}
    configure(settings.log)
    start_runtime(metrics=settings.metrics)
    meanwhile = partial(warn_without_temporal, settings, clusters) if chosen in {Role.ALL, Role.CLUSTER} else None
    async with (
        _says_why_it_ends(settings, clusters),
        stop_on_signals() as stop,
        process.temporal(settings, embed=False, stop=stop, meanwhile=meanwhile) as running,
    ):
        await process.work(settings, running, clusters=clusters, role=chosen, deployment=version)
    return Exit.OK


@asynccontextmanager
async def _says_why_it_ends(settings: Settings, clusters: Mapping[str, ClusterSettings]) -> AsyncIterator[None]:
    """Where a key is refused or can't be read, or Temporal refuses us: people may see nothing but logs and notifications. It does
    not wait for that to change: a rollout with such settings has to stop while the workers before it still run."""
    from workers.composition import notify_of_end
    from workers.errors import NamespaceMissingError, SearchAttributesError
    from workers.logs import finish

    try:
        yield
    except (SettingsError, NamespaceMissingError, SearchAttributesError) as error:
        why = f"this worker ends, and nothing is done by it: {error}"
        log.error(why)
        await notify_of_end(settings, clusters, why)
        finish()  # the thread that writes lines may not get to it any more
        raise


LOOK_SECONDS = 0.5
LEASE_LOOK_SECONDS, LEASE_MARGIN_SECONDS = 1.0, 5.0


@for_a_cluster
async def up(
    session: Session,
    *,
    cap: Annotated[int, typer.Option("--cap", min=0, help="Nodes disrupted at once; 0: scan.cap.")] = 0,
    ui: Annotated[bool, typer.Option("--ui/--no-ui", help="Serve the page here, too, if it is installed.")] = True,
    ui_port: Annotated[
        int, typer.Option("--ui-port", min=0, max=65535, help="Port of the page; 0: any that is free.")
    ] = PAGE_PORT,
) -> Exit:
    """Watch over the clusters of the settings, else over that of the current kubeconfig context, until Ctrl-C. Where there is no
    health check, nothing is changed.

    Without TEMPORAL_ADDRESS a Temporal server is run here; its history is kept and found again on the next start.
    """
    import_temporal()
    from starter.client import Nodewarden
    from starter.output.display import display_for
    from workers import process
    from workers.composition import warn_without_temporal
    from workers.logs import configure
    from workers.runtime import alongside, start_runtime
    from workers.worker import stop_on_signals

    settings = session.settings()
    clusters = session.clusters(settings)
    live = not session.for_programs and sys.stdout.isatty()
    configure(settings.log.model_copy(update={"level": "warning"}) if live and settings.log.level == "info" else settings.log)
    start_runtime(metrics=settings.metrics)
    meanwhile = partial(warn_without_temporal, settings, clusters)
    async with (
        _says_why_it_ends(settings, clusters),
        stop_on_signals() as stop,
        process.temporal(settings, embed=True, stop=stop, meanwhile=meanwhile) as running,
        page_beside(settings, running.client, tuple(clusters), port=ui_port if ui else None) as page,
    ):
        warden = Nodewarden(running.client)
        where = f"Temporal {running.address}, namespace {settings.temporal.namespace}{page}"
        if running.endpoint is not None:
            where = f"Temporal {running.address}, UI {running.endpoint.ui_url}, data in {settings.state}{page}"
        display = display_for(session.output, live=True, where=where)
        if not live:
            typer.echo(folded(where, sys.stderr), err=True)
        await alongside(
            process.work(settings, running, clusters=clusters),
            running.failed(),
            _look_after(warden, clusters, display, cap=cap, settings=settings),
        )
    return Exit.OK


async def _look_after(
    warden: Nodewarden, clusters: Mapping[str, ClusterSettings], display: Display, *, cap: int, settings: Settings
) -> None:
    """Start the scanners, then show them; leave as soon as one finds that its cluster is a living other deployment's."""
    from starter.output.display import watch
    from workers.runtime import alongside

    rivals: dict[str, str] = {}
    started = {name: await started_by(warden, settings, name, cap=cap) for name in clusters}

    def note(statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            report = status.scanner.report if status.scanner is not None else None
            foreign = report is not None and not report.lease.held and report.lease.holder != started[status.cluster].holder
            rivals[status.cluster] = report.lease.holder if report is not None and foreign else ""

    await alongside(
        watch(warden, list(clusters), display, each=note),
        *(_refuse_a_rival(warden, started[name], clusters[name], rivals) for name in clusters),
    )


async def _refuse_a_rival(
    warden: Nodewarden, scanner: StartedScanner, cluster: ClusterSettings, rivals: Mapping[str, str]
) -> None:
    """Once the Lease is another's: stay if it lapses, else stop the scanner that we started and raise."""
    from workers.configuration.clusters import open_connection

    async with await open_connection(scanner.cluster, cluster) as connection:
        while True:
            holder = rivals.get(scanner.cluster, "")
            if holder and await is_alive(connection, holder):
                refusal = ClusterHeldError(scanner.cluster, holder)
                if scanner.started:
                    await warden.scanner(scanner.cluster).withdraw()
                    await warden.device_check(scanner.cluster).stop()
                raise refusal
            await asyncio.sleep(LOOK_SECONDS)


async def is_alive(connection: ClusterConnection, holder: str) -> bool:
    """Whether the deployment that a cluster's Lease names is alive, or only left its name there when it was killed: the scanner
    decides by itself when a Lease has lapsed, this only says whether it is worth staying.

    Watch the Lease until its holder renews it (True) or lets its whole duration pass, or it changes hands (False).

    By our own clock alone: the clocks of two hosts may differ by more than a Lease lasts.
    """
    from temporalio.exceptions import ApplicationError

    from activities.cluster.api.lease_view import CLUSTER_LEASE, LeaseView, read_lease

    loop = asyncio.get_running_loop()
    first: LeaseView | None = None
    end = loop.time() + LEASE_MARGIN_SECONDS
    while loop.time() < end:
        with contextlib.suppress(ApplicationError):  # an API that is down for a moment proves nothing either way
            lease = read_lease(await connection.get(CLUSTER_LEASE))
            if lease.holder != holder:
                return False
            if lease.duration is None or (first is not None and lease.renewed != first.renewed):
                return True
            if first is None:
                first = lease
                end = loop.time() + lease.duration.total_seconds() + LEASE_MARGIN_SECONDS
        await asyncio.sleep(LEASE_LOOK_SECONDS)
    return False
