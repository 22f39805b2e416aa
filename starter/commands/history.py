"""`nodewarden history`, `record`, `offenders` and `report`: what has been done, as long as Temporal remembers it; `compare`: what
would have been done, and how often that would have been wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from policy.values.display_text import counted
from starter.commands.arguments import ClusterOption, SinceOption, for_a_cluster
from starter.commands.session import Exit, Output, Session, began_of, complain, session_of, show, working
from starter.errors import SilentError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from policy.checks.health_check import HealthCheck

AT = "Instead the whole cluster at a moment, such as 03:12 or '2026-11-26 03:12': in your zone, or with an offset."


@for_a_cluster
async def history(
    session: Session,
    *,
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Only this node's.")] = "",
    since: SinceOption = "24h",
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", metavar="OUTCOME", help="Only those that ended so; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also requests that were refused, which never began.")] = False,
    at: Annotated[str, typer.Option("--at", metavar="MOMENT", help=AT)] = "",
) -> Exit:
    """Show the episodes that have ended, the newest first: how, when, how long they took, and why. Among them what would
    have been repaired (kind Observation), what held the node, and what became of it; `explain NODE --at` has the moments. And the
    pauses of the cluster: who, why, and how they ended, unless --node or --outcome asks for some episodes only.
    """
    from starter.output.history_table import as_model, as_table, outcome_problem, read_history

    began = began_of(since)
    if problem := outcome_problem(outcome or ()):
        raise SettingsError(f"--outcome: {problem}")
    if at:
        if node or outcome:
            raise SettingsError("--at: expected neither --node nor --outcome beside it: it shows the whole cluster")
        return await at_moment(session, at)
    async with session.connected() as (warden, _, name):
        found = await read_history(warden, name, since=began, node=node, outcomes=outcome or (), everything=everything)
    show(session, lambda: as_model(*found), lambda: as_table(*found, node=node))
    return Exit.OK


async def at_moment(session: Session, at: str, *, node: str = "") -> Exit:
    """Show a cluster, or one node, at a moment as people write it."""
    from starter.output.cluster_moment import as_text, asked_moment, cluster_moment

    try:
        moment = asked_moment(at, datetime.now(UTC))
    except ValueError as error:
        raise SettingsError(f"--{error}") from None
    async with session.connected() as (warden, _, name):
        found = await cluster_moment(warden, name, moment, node=node)
    show(session, lambda: found, lambda: as_text(found))
    return Exit.OK


@for_a_cluster
async def record(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NODE|INCIDENT", help="A node, or the incident of an episode.")],
) -> Exit:
    """Show what one episode saw, decided and did, and which moments proved that the machine was off.

    Of a node it is the open episode, else the last one, and the times in which it was sick and not repaired; of an incident
    the time that its episode ended.
    """
    from starter.output.record_table import as_table

    async with session.connected() as (warden, _, known):
        found = await warden.observations.record(known, name)
    show(session, lambda: found, lambda: as_table(found))
    return Exit.OK


@for_a_cluster
async def offenders(
    session: Session,
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Begun within this time; default: offenders.window.")
    ] = "",
) -> Exit:
    """Show which machines were repaired, by their hardware: under which names of their Nodes, how often, for which reasons.

    From `offenders.limit` repairs on a machine offends: its episode says so, and by `offenders.answer: ask` or `keep` a person is
    asked before it is switched on again.
    """
    from starter.output.history_table import offenders_table
    from starter.output.models import OffendersAnswer

    async with session.connected() as (warden, settings, name):
        rules = settings.offenders.rules()
        began = began_of(since) if since else datetime.now(UTC) - rules.window
        machines, more = await warden.history.offenders(name, began, rules)
    answer = OffendersAnswer(cluster=name, since=began, limit=rules.limit, machines=machines, more=more)
    show(session, lambda: answer, lambda: offenders_table(answer))
    return Exit.OK


@for_a_cluster
async def report(session: Session, *, since: SinceOption = "30d") -> Exit:
    """Show what helps: for each reason and step how often it was tried, how often the node was back at work or replaced by it,
    how long it took until the machine was proven off and until then, and how long people were waited for.
    """
    from starter.handles.history import OPEN_LISTED, outcomes_of
    from starter.output.history_table import report_table

    began = began_of(since)
    async with session.connected() as (warden, _, name):
        found = outcomes_of(await warden.history.ended(name, since=began, limit=OPEN_LISTED), began)
    show(session, lambda: found, lambda: report_table(found))
    return Exit.OK


class ReportOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


@working
async def compare(
    context: typer.Context,
    check: Annotated[str, typer.Argument(metavar="[CHECK]", help="Only this health check, such as workers; default: all.")] = "",
    *,
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="Due within this time, such as 30d or 12h.")] = "30d",
    export: Annotated[
        str,
        typer.Option("--export", metavar="FILE", help="Write the spells there, for `evaluate --replay`."),
    ] = "",
    cluster: ClusterOption = "",
    output: Annotated[ReportOutput | None, typer.Option("--output", "-o", help="How to print the answer.")] = None,
) -> Exit:
    """Show what health checks would have repaired while they only observed: how often the node came back by itself (a false
    repair), what others repaired and how much later, what held nodes back, and what longer time-outs would change. Of checks in
    mode repair: which repairs did not help.

    Each case names the workflow that records it. Exit code 4: nothing is recorded of that check.
    """
    from starter.output.comparison import as_markdown, as_text, parts

    plain = Output(output.value) if output is not None and output is not ReportOutput.MARKDOWN else None
    session = session_of(context, cluster=cluster, output=plain)
    began = began_of(since)
    async with session.connected() as (warden, _, name):
        answer, found = await warden.observations.compared(name, since=began, check=check)
    if export:
        from starter.plans import spell_file

        number = spell_file.write(export, found, answer, await _checks(session))
        complain(f"{counted(number, 'spell')} of {name} written to {export}")
    elif output is ReportOutput.MARKDOWN:
        typer.echo(as_markdown(parts(answer)))
    else:
        show(session, lambda: answer, lambda: as_text(parts(answer)))
    return Exit.MISSING if check and not answer.comparison.checks else Exit.OK


async def _checks(session: Session) -> list[HealthCheck]:
    """As the cluster has them now, by the caller's rights."""
    try:
        return (await session.snapshot(session.settings())).checks
    except (SilentError, SettingsError) as error:
        complain(f"{error}; without its health checks `evaluate --replay` has nothing to compare a changed one with")
        return []
