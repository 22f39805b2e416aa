"""`nodewarden worker`: only the worker, for a deployment against an existing Temporal."""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption
from starter.commands.session import Exit, session_of, working


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
    from workers import process
    from workers.composition import needs_clusters
    from workers.configuration.setting_sources import SettingsError
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
    async with stop_on_signals() as stop, process.temporal(settings, embed=False, stop=stop) as running:
        await process.work(settings, running, clusters=clusters, role=chosen, deployment=version)
    return Exit.OK
