"""`nodewarden remediate NODE`: have a node or machine repaired or replaced by hand, or join the same request.

A node that is called like a command of the group is remediated by the command's full name, `nodewarden remediate begin NODE`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import remediate_plan
from starter.commands.arguments import (
    BEGIN,
    ClusterOption,
    NodeOrCommand,
    OutputOption,
    OverrideOption,
    ReasonOption,
    WhoOption,
    YesOption,
)
from starter.commands.beginning import REMEDIATION, confirmed, see_through, tell_the_decision
from starter.commands.remediate_plan import PatientArgument, StepsOption, named_steps, read_plan
from starter.commands.session import Exit, Session, complain, given, session_of, working

if TYPE_CHECKING:
    from policy.remediation.ladder import EscalationStep

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
    reason: ReasonOption = "",
    who: WhoOption = "",
    override: OverrideOption = None,
    yes: YesOption = False,
    skip_impossible: Annotated[
        bool, typer.Option("--skip-impossible", help="Leave out steps of --with that can't be carried out, instead of refusing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit | None:
    """Remediate NODE step by step until it is well or replaced. Needs a reason, and a permit from the cluster's scanner.

    What has failed before is tried again: a person's wish begins with the first step, and waits for no back-off.
    """
    session = session_of(context, cluster=cluster, output=output)
    named, why = named_steps(steps), given("--reason", reason)
    question = f"Carry out these steps on {node}, until it is well or replaced?"
    show = partial(_show_steps, session, node, named)
    if (refused := await confirmed(REMEDIATION, question, node, yes=yes, override=override, show=show)) is not None:
        return refused
    strategies = tuple(word.strip() for word in ",".join(steps or ()).split(",") if word.strip())
    async with session.connected() as (warden, _, name):
        asked = {"reason": why, "requester": who, "skip_impossible": skip_impossible, "override": ",".join(override or ())}
        episode = await warden.remediate(name, node, strategies=strategies, **asked)
        if wait:
            return await see_through(session, episode, REMEDIATION)
        return await tell_the_decision(session, episode, REMEDIATION)


async def _show_steps(session: Session, node: str, named: tuple[EscalationStep, ...] | None) -> None:
    """On stderr, before the question. What can't be read is said, and the question asked all the same."""
    from temporalio.exceptions import ApplicationError

    from starter.errors import RequestError
    from starter.output.console import PlainConsole
    from starter.plans.remediation_plans import as_table
    from workers.configuration.setting_sources import SettingsError

    try:
        console = PlainConsole(stderr=True, highlight=False, markup=False, emoji=False)
        console.print(as_table(await read_plan(session, node, named)))
    except (ApplicationError, RequestError, SettingsError) as error:
        complain(f"the steps can't be shown: {error}")
