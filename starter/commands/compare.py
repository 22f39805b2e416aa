"""`nodewarden compare`: what health checks would have repaired, and how often that would have been wrong."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ClusterOption
from starter.commands.session import Exit, Output, Session, complain, duration_of, session_of, show, working

if TYPE_CHECKING:
    from policy.checks.health_check import HealthCheck


class ReportOutput(StrEnum):
    """How the report is printed."""

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
    from datetime import UTC, datetime

    from policy.values.display_text import counted
    from starter.handles.observations import report
    from starter.output.comparison import as_markdown, as_text, parts

    plain = Output(output.value) if output is not None and output is not ReportOutput.MARKDOWN else None
    session = session_of(context, cluster=cluster, output=plain)
    began = datetime.now(UTC) - duration_of("--since", since)
    async with session.connected() as (warden, _, name):
        found = await warden.observations.observed(name, since=began)
    answer = report(name, found, since=began, check=check)
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
    from starter.errors import SilentError
    from starter.plans.live import read_live
    from workers.configuration.setting_sources import SettingsError

    settings = session.settings()
    try:
        async with session.reading(settings) as (_, connection, machines):
            return (await read_live(settings, connection, machines)).checks
    except (SilentError, SettingsError) as error:
        complain(f"{error}; without its health checks `evaluate --replay` has nothing to compare a changed one with")
        return []
