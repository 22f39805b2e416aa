"""`nodewarden doctor`: whether everything is there that a fencing will need, before one is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption, OutputOption
from starter.commands.session import Exit, session_of, show, working


@working
async def doctor(
    context: typer.Context,
    *,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Create what is missing of ours: search attributes and definitions of kinds. Nothing else.",
        ),
    ] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit:
    """Look at Temporal, workers, scanner, rights, definitions, health checks, Secrets, devices, clocks, and who else is at work.

    Each line says what to do. Nothing is changed without --fix. Exit code 1: there are problems.
    """
    from starter.doctor.examination import as_model, as_table, examine, has_problems

    session = session_of(context, cluster=cluster, output=output)
    settings = session.settings()
    name = session.one_cluster(settings)
    found = await examine(settings, name, fix=fix)
    show(session, lambda: as_model(name, found), lambda: as_table(found))
    return Exit.FAILED if has_problems(found) else Exit.OK
