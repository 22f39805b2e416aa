"""`nodewarden fence NODE`: start a fencing by hand, or join the same request; with --wait, see it through.

A node that is called like a command of the group is fenced by the command's full name, `nodewarden fence begin NODE`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands import fence_check, fence_plan
from starter.commands.arguments import (
    BEGIN,
    ClusterOption,
    NodeArgument,
    NodeOrCommand,
    OutputOption,
    OverrideOption,
    ReasonOption,
    WhoOption,
    YesOption,
)
from starter.commands.beginning import FENCING, confirmed, see_through, tell_the_decision
from starter.commands.session import Exit, given, session_of, working

app = typer.Typer(
    cls=NodeOrCommand,
    help="Fence a node (`fence NODE` is `fence begin NODE`), or see what fencing it would do, or whether it could.",
)
app.command("plan")(fence_plan.plan)
app.command("check")(fence_check.check)


@app.command(BEGIN)
@working
async def begin(
    context: typer.Context,
    node: NodeArgument,
    *,
    reason: ReasonOption = "",
    who: WhoOption = "",
    template: fence_plan.TemplateOption = "",
    override: OverrideOption = None,
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, as `fence plan` does. Needs no reason.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit | None:
    """Power-cycle NODE, free its pods once it is proven off, and bring it back. Needs a reason, and a permit from the cluster's
    scanner.
    """
    session = session_of(context, cluster=cluster, output=output)
    named = fence_plan.template_of(template)
    if dry_run:
        return await fence_plan.show_plan(session, node, named)
    why = given("--reason", reason)
    question = f"Switch {node} off and on again, and delete its pods?"
    if (refused := await confirmed(FENCING, question, node, yes=yes, override=override)) is not None:
        return refused
    async with session.connected() as (warden, _, name):
        episode = await warden.fence(name, node, reason=why, requester=who, template=named, override=",".join(override or ()))
        if wait:
            return await see_through(session, episode, FENCING)
        return await tell_the_decision(session, episode, FENCING)
