"""`nodewarden fence plan NODE`: what would be done to fence it, without doing it; live, or from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from starter.commands.offline import FilesOption
from starter.commands.session import ClusterOption, Exit, NodeArgument, OutputOption, Session, run, session_of, show

if TYPE_CHECKING:
    from policy.fence.config import FenceConfig
    from workers.configuration.settings import Settings


def plan(
    context: typer.Context,
    node: NodeArgument,
    *,
    filename: FilesOption = None,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Show which fence configuration holds for NODE and what each step of it would do. Nothing is done, and no secret is shown.

    Without -f the cluster is read; with it, only the files are. Exit code 1: the configuration has errors and would be refused;
    4: there is no such node.
    """
    session = session_of(context, cluster=cluster, output=output)

    async def work() -> Exit:
        from policy.fence.shown import shown_config as as_model
        from starter.plans.fence_plans import as_table, planned_from_files

        settings = session.settings()
        if filename:
            found = await planned_from_files(filename, node, source=settings.policy_source())
        else:
            found = await _live(session, settings, node)
        show(session, lambda: as_model(found), lambda: as_table(found), soft_wrap=True)
        return Exit.FAILED if found.errors else Exit.OK

    run(session, work)


async def _live(session: Session, settings: Settings, node: str) -> FenceConfig:
    from starter.plans.fence_plans import planned

    async with session.reading(settings) as (_, connection, machines):
        return await planned(connection, node, source=settings.policy_source(), machines=machines)
