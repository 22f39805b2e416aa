"""`nodewarden fence check`: would the devices answer, if a node had to be fenced now? They are read, and nothing is done."""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption, OutputOption
from starter.commands.session import Exit, session_of, show, working
from starter.output import PIPE_WIDTH


@working
async def check(
    context: typer.Context,
    *,
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Only this node's devices.")] = "",
    admit: Annotated[
        bool, typer.Option("--admit", help="With --node: credentials that name no hosts may go to its devices from now on.")
    ] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit:
    """Read the state of every configured fence device, and show how fast it answered and when it last did. Never acts.

    Exit code 1: some device did not answer, or some node has no usable fence configuration.
    """
    from starter.output.device_table import as_table

    if admit and not node:
        raise typer.BadParameter("expected --node with it: each new address is one person's decision", param_hint="--admit")
    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, settings, name):
        if node:
            await session.expect_node(settings, name, node)
        report = await warden.check_devices(name, node, admit=admit)
    show(session, lambda: report, lambda: as_table(report), width=PIPE_WIDTH)
    return Exit.FAILED if report.problems else Exit.OK
