"""`nodewarden remediate NODE`: have a node or machine repaired or replaced by hand, or join the same request.

A node that is called like a command of the group is remediated by the command's full name, `nodewarden remediate begin NODE`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands import remediate_plan
from starter.commands.arguments import ClusterOption, OutputOption, ReasonOption, WhoOption
from starter.commands.beginning import REMEDIATION, see_through, tell_the_decision
from starter.commands.groups import BEGIN, NodeOrCommand
from starter.commands.remediate_plan import PatientArgument, StepsOption, named_steps
from starter.commands.session import Exit, given, session_of, working

app = typer.Typer(
    cls=NodeOrCommand,
    help="Repair or replace a node (`remediate NODE` is `remediate begin NODE`), or see by which steps that would be done.",
)
app.command("plan")(remediate_plan.plan)


@app.command(BEGIN)
@working
async def begin(
    context: typer.Context,
    node: PatientArgument,
    *,
    steps: StepsOption = None,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    skip_impossible: Annotated[
        bool, typer.Option("--skip-impossible", help="Leave out steps of --with that can't be carried out, instead of refusing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit | None:
    """Remediate NODE step by step until it is well or replaced. Needs a permit from the cluster's scanner.

    What has failed before is tried again: a person's wish begins with the first step, and waits for no back-off.
    """
    session = session_of(context, cluster=cluster, output=output)
    named_steps(steps)
    strategies = tuple(word.strip() for word in ",".join(steps or ()).split(",") if word.strip())
    async with session.connected() as (warden, _, name):
        why = given("--reason", reason)
        episode = await warden.remediate(
            name, node, reason=why, requester=who, strategies=strategies, skip_impossible=skip_impossible
        )
        if wait:
            return await see_through(session, episode, REMEDIATION)
        return await tell_the_decision(session, episode, REMEDIATION)
