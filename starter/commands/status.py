"""`nodewarden status`: nodes, checks and episodes of a cluster, once or live."""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.session import ClusterOption, Exit, Output, OutputOption, run, session_of


def status(
    context: typer.Context,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking until Ctrl-C.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Show nodes with their verdicts, checks with their brakes, and episodes with their current step."""
    session = session_of(context, cluster=cluster, output=output)

    async def work() -> Exit | None:
        from starter.output.display import display_for

        async with session.connected() as (warden, _, name):
            if not watch:
                found = await warden.status(name)
                display_for(session.output is Output.JSON, live=False).show([found])
                if found.scanner is not None or found.episodes:
                    return Exit.OK
                return Exit.UNREACHABLE if found.unanswered else Exit.MISSING
            from starter.output.display import watch as keep_watching

            await keep_watching(warden, [name], display_for(session.output is Output.JSON, live=True))
        return Exit.OK

    run(session, work)
