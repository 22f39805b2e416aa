"""`nodewarden remediate NODE`: have a node or machine repaired or replaced by hand, or join the same request. `remediate plan`
shows by which steps, live or from files.

A node that is called like a command of the group is remediated by the command's full name, `nodewarden remediate begin NODE`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from policy.checks.health_check import Overlap
from starter.commands.arguments import (
    BEGIN,
    FilesOption,
    NodeOrCommand,
    NowOption,
    OverrideOption,
    ReasonOption,
    WhoOption,
    YesOption,
    asked_now,
    complete_nodes,
    for_a_cluster,
)
from starter.commands.episodes import REMEDIATION, confirmed, follow
from starter.commands.session import Exit, Session, complain, given, show
from starter.errors import NoSuchNodeError, RequestError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from policy.remediation.ladder import EscalationStep
    from starter.output.outlooks import RemediationPlan

PatientArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="Name of the node, or machine/NAMESPACE/NAME of a Machine that has none.",
        autocompletion=complete_nodes,
    ),
]
StepsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="STRATEGY[=DURATION]",
        help="A step and perhaps its time-out, such as reboot=10m or delete-machine; may be repeated, in the order of trying. "
        "Default: the steps of the node's health check, else the deletion of its Machine.",
    ),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-impossible", help="Leave out steps of --with that can't be carried out, instead of refusing.")
]

app = typer.Typer(
    cls=NodeOrCommand,
    help="Repair or replace a node (`remediate NODE` is `remediate begin NODE`), or see by which steps that would be done.",
)


@app.command(BEGIN)
@for_a_cluster
async def begin(
    session: Session,
    node: PatientArgument,
    *,
    steps: StepsOption = None,
    reason: ReasonOption = "",
    who: WhoOption = "",
    override: OverrideOption = None,
    yes: YesOption = False,
    skip_impossible: SkipOption = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
) -> Exit | None:
    """Remediate NODE step by step until it is well or replaced. Needs a reason, and a permit from the cluster's scanner.

    What has failed before is tried again: a person's wish begins with the first step, and waits for no back-off.
    """
    named, why = named_steps(steps), given("--reason", reason)
    question = f"Carry out these steps on {node}, until it is well or replaced?"
    show = partial(_show_steps, session, node, named, whole=not skip_impossible)
    if (refused := await confirmed(REMEDIATION, question, node, yes=yes, override=override, show=show)) is not None:
        return refused
    strategies = tuple(word.strip() for word in ",".join(steps or ()).split(",") if word.strip())
    async with session.connected() as (warden, _, name):
        asked = {"reason": why, "requester": who, "skip_impossible": skip_impossible, "override": ",".join(override or ())}
        episode = await warden.remediate(name, node, strategies=strategies, **asked)
        return await follow(session, episode, REMEDIATION, to_its_end=wait)


async def _show_steps(session: Session, node: str, named: tuple[EscalationStep, ...] | None, *, whole: bool) -> None:
    """On stderr, before the question. What can't be read is said, and the question asked all the same."""
    from temporalio.exceptions import ApplicationError

    from starter.output.console import PlainConsole
    from starter.output.outlooks import as_table

    try:
        console = PlainConsole(stderr=True, highlight=False, markup=False, emoji=False)
        console.print(as_table(await read_plan(session, node, named, whole=whole)))
    except (ApplicationError, RequestError, SettingsError) as error:
        complain(f"the steps can't be shown: {error}")


@app.command("plan")
@for_a_cluster
async def plan(
    session: Session,
    node: PatientArgument,
    *,
    steps: StepsOption = None,
    skip_impossible: SkipOption = False,
    filename: FilesOption = None,
    now: NowOption = "",
) -> Exit:
    """Show by which steps NODE would be remediated if a person asked for it now, and which are not possible and why; then how
    the scanner would go about it, which remembers what has failed. Nothing is done.

    Without -f the cluster is read; with it, only the files are. Exit code 1: nothing could be done; 4: there is no such node.
    """
    from starter.output.outlooks import as_model, as_table, planned
    from starter.plans.cluster_objects import cluster_from_files

    named, whole = named_steps(steps), not skip_impossible
    if filename:
        found = planned(cluster_from_files(filename, asked_now(now), overlap=Overlap.STRICTEST), node, named, None, whole=whole)
    else:
        found = await read_plan(session, node, named, whole=whole)
    if not session.for_programs and found.by_hand is None and not found.mistakes:
        raise NoSuchNodeError(node, found.names)
    show(session, lambda: as_model(found), lambda: as_table(found))
    return _code(found)


async def read_plan(session: Session, node: str, named: tuple[EscalationStep, ...] | None, *, whole: bool) -> RemediationPlan:
    """Of the cluster as it is now, with the caller's own rights."""
    from activities.cluster.api.served_cluster import Connections
    from activities.cluster.objects.live_machines import find_target
    from policy.remediation.ladder import body_of
    from starter.output.outlooks import planned
    from starter.plans.cluster_objects import read_live

    settings = session.settings()
    async with session.reading(settings) as (connection, machines):
        seen = await read_live(settings, connection, machines)
        counting = settings.machine_namespaces
        both = Connections(nodes=connection, machines=machines or connection, machine_namespaces=counting)
        found = await find_target(both, node)
    return planned(seen, node, named, body_of(found) if found is not None else None, whole=whole)


def named_steps(steps: list[str] | None) -> tuple[EscalationStep, ...] | None:
    """The steps that --with names, None without any. Raises SettingsError."""
    from policy.remediation.ladder import read_strategies
    from policy.values.errors import PolicyError

    if not steps:
        return None
    try:
        return read_strategies(", ".join(steps), subject="", field="--with")
    except PolicyError as error:
        raise SettingsError(f"--with: {error.problem}") from error


def _code(found: RemediationPlan) -> Exit:
    if found.by_hand is None:
        return Exit.MISSING
    return Exit.FAILED if found.by_hand.problem or found.mistakes else Exit.OK
