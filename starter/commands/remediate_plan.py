"""`nodewarden remediate plan NODE`: by which steps it would be remediated by hand, without doing it; live, or from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from policy.checks.health_check import Overlap
from starter.commands import completion
from starter.commands.arguments import ClusterOption, OutputOption
from starter.commands.offline import FilesOption, NowOption, moment_of, read_cluster
from starter.commands.session import Exit, Session, session_of, show, working

if TYPE_CHECKING:
    from policy.remediation.ladder import EscalationStep
    from starter.plans.remediation_plans import RemediationPlan

PatientArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="Name of the node, or machine/NAMESPACE/NAME of a Machine that has none.",
        autocompletion=completion.nodes,
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


@working
async def plan(
    context: typer.Context,
    node: PatientArgument,
    *,
    steps: StepsOption = None,
    filename: FilesOption = None,
    now: NowOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit:
    """Show by which steps NODE would be remediated if a person asked for it now, and which are not possible and why; then how
    the scanner would go about it, which remembers what has failed. Nothing is done.

    Without -f the cluster is read; with it, only the files are. Exit code 1: nothing could be done; 4: there is no such node.
    """
    from starter.errors import NoSuchNodeError
    from starter.plans.remediation_plans import as_model, as_table, planned

    session = session_of(context, cluster=cluster, output=output)
    named = named_steps(steps)
    if filename:
        found = planned(read_cluster(filename, moment_of(now), overlap=Overlap.STRICTEST), node, named, None)
    else:
        found = await read_plan(session, node, named)
    if not session.for_programs and found.by_hand is None and not found.mistakes:
        raise NoSuchNodeError(node, found.names)
    show(session, lambda: as_model(found), lambda: as_table(found))
    return _code(found)


async def read_plan(session: Session, node: str, named: tuple[EscalationStep, ...] | None) -> RemediationPlan:
    """Of the cluster as it is now, with the caller's own rights."""
    from activities.cluster.api.served_cluster import Connections
    from activities.cluster.objects.live_machines import find_target
    from policy.remediation.ladder import body_of
    from starter.plans.live import read_live
    from starter.plans.remediation_plans import planned

    settings = session.settings()
    async with session.reading(settings) as (_, connection, machines):
        seen = await read_live(settings, connection, machines)
        found = await find_target(Connections(nodes=connection, machines=machines or connection), node)
    return planned(seen, node, named, body_of(found) if found is not None else None)


def named_steps(steps: list[str] | None) -> tuple[EscalationStep, ...] | None:
    """The steps that --with names, None without any. Raises SettingsError."""
    from policy.remediation.ladder import read_strategies
    from policy.values.errors import PolicyError
    from workers.configuration.setting_sources import SettingsError

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
