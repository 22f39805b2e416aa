"""`nodewarden mode`: how far programs may go with which nodes, and why; `mode set` and `unset` change that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption, OutputOption, WhoOption, complete_nodes
from starter.commands.session import given, print_command_answer, session_of, show, working
from starter.errors import SilentError
from workers.errors import SettingsError

app = typer.Typer(help="Show and set how far programs may go with nodes: observe, cordon, drain or repair.")

NodesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NODE...", help="Names of nodes; none: all.", autocompletion=complete_nodes)
]
SelectorOption = Annotated[str, typer.Option("--selector", "-l", help="Nodes with these labels, as kubectl's, such as rack=r7.")]
WhyOption = Annotated[str, typer.Option("--reason", "-r", help="Why, as `nodewarden mode` shows it.")]


@app.callback(invoke_without_command=True)
def mode(context: typer.Context, cluster: ClusterOption = "", output: OutputOption = None) -> None:
    """Show the mode of each node under each health check, and what sets it. The cluster is read once, with your own rights."""
    if context.invoked_subcommand is None:
        _shown(context, cluster=cluster, output=output)


@working
async def _shown(context: typer.Context, *, cluster: str, output: OutputOption) -> None:
    from policy.scan.mode_table import idle_rules, mode_lines
    from starter.output.mode_table import as_model, as_table

    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, settings, name):
        modes = await warden.scanner(name).modes()
    try:
        found = await session.snapshot(settings)
        found.ledger.put_modes(modes)
        unread = ""
        known = found.ledger.known(datetime.now(UTC))
        lines, idle = mode_lines(known), idle_rules(known)
    except (SilentError, SettingsError) as error:
        lines, idle, unread = (), (), str(error)
    show(session, lambda: as_model(name, modes, lines, unread), lambda: as_table(modes, lines, idle, unread))


@app.command("set")
@working
async def set_mode(
    context: typer.Context,
    level: Annotated[str, typer.Argument(metavar="MODE", help="observe, cordon, drain or repair.")],
    node: NodesArgument = None,
    *,
    selector: SelectorOption = "",
    reason: WhyOption,
    who: WhoOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Set how far programs may go with these nodes, or with all. The newest rule that covers a node counts.

    It holds from the next last look on. A rule for all nodes replaces all others. Exit code 4: there is no such node.
    """
    await _say(context, level, node, selector, reason=reason, who=who, cluster=cluster, output=output)


@app.command("unset")
@working
async def unset(
    context: typer.Context,
    node: NodesArgument = None,
    *,
    selector: SelectorOption = "",
    reason: WhyOption,
    who: WhoOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Take the rule of exactly these nodes back, or all rules: what was set before, or the setting scan.mode, holds again."""
    await _say(context, None, node, selector, reason=reason, who=who, cluster=cluster, output=output)


async def _say(
    context: typer.Context,
    level: str | None,
    nodes: list[str] | None,
    selector: str,
    *,
    reason: str,
    who: str,
    cluster: str,
    output: OutputOption,
) -> None:
    """level: None takes the rule back."""
    from policy.episode.modes import UNSET
    from policy.values.mode import read_mode

    if level is not None and (problem := read_mode(level)[1]):
        raise SettingsError(f"MODE: {problem}")
    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, settings, name):
        if level is not None:
            for node in nodes or ():
                await session.expect_node(settings, name, node)
        answer = await warden.scanner(name).set_mode(
            UNSET if level is None else level,
            who=who,
            reason=given("--reason", reason),
            nodes=tuple(nodes or ()),
            selector=selector,
        )
    print_command_answer(session, answer, cluster=name)
