"""`nodewarden fence plan NODE`: what would be done to fence it, without doing it; live, or from files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from starter.commands.offline import FilesOption
from starter.commands.session import ClusterOption, Exit, NodeArgument, Output, OutputOption, Session, run, session_of

if TYPE_CHECKING:
    from policy.fence.config import FenceConfig
    from workers.settings import Settings


def plan(
    context: typer.Context,
    node: NodeArgument,
    *,
    filename: FilesOption = None,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Show which fence configuration holds for NODE and what each step of it would do. Nothing is done, and no secret is shown.

    Without -f the cluster is read; with it, only the files are. Exit code 1: the configuration has errors and would be refused.
    """
    session = session_of(context, cluster=cluster, output=output)

    async def work() -> Exit:
        from policy.fence.shown import as_json
        from starter.fence_plans import as_table, planned_from_files

        settings = session.settings()
        if filename:
            found = await planned_from_files(filename, node, namespace=settings.fence_namespace)
        else:
            found = await _live(session, settings, node)
        if session.output is Output.JSON:
            typer.echo(json.dumps(as_json(found), indent=2, ensure_ascii=False))
        else:
            from rich.console import Console

            Console(highlight=False).print(as_table(found), soft_wrap=True)
        return Exit.FAILED if found.errors else Exit.OK

    run(session, work)


async def _live(session: Session, settings: Settings, node: str) -> FenceConfig:
    from contextlib import AsyncExitStack

    from temporalio.exceptions import ApplicationError

    from starter.errors import RequestError
    from starter.fence_plans import planned
    from workers.composition import open_connection

    name = session.one_cluster(settings)
    ((name, known),) = session.clusters(settings).items() if session.cluster else ((name, settings.connections()[name]),)
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await open_connection(name, known))
        machines = None
        if known.machines is not None:
            machines = await stack.enter_async_context(await open_connection(f"{name}.machines", known.machines))
        try:
            return await planned(connection, node, namespace=settings.fence_namespace, machines=machines)
        except ApplicationError as error:
            message = f"the cluster {name} could not be read: {error.message}"
            raise RequestError(message) from error
