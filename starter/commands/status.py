"""`nodewarden status`: nodes, checks and episodes of a cluster, once or live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ClusterOption, OutputOption
from starter.commands.session import Exit, session_of, working

if TYPE_CHECKING:
    from starter.handles.status import ClusterStatus
    from workers.configuration.settings import Settings


@working
async def status(
    context: typer.Context,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking until Ctrl-C.")] = False,
    everywhere: Annotated[bool, typer.Option("--all", help="All clusters of the settings, a line each.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit | None:
    """Show nodes with their verdicts, checks with their circuit breakers, and episodes with their current step."""
    from starter.output import status_table
    from starter.output.console import fitting_console
    from starter.output.display import display_for, look
    from starter.output.display import watch as keep_watching

    session = session_of(context, cluster=cluster, output=output)
    where = ""
    async with session.looking(everywhere=everywhere) as (warden, names):
        if not everywhere:
            where = _where(session.settings(), names[0])
        if watch:
            await keep_watching(warden, names, display_for(session.output, live=True, where=where))
            return Exit.OK
        found = await asyncio.gather(*(look(warden, name) for name in names))
    if everywhere and not session.for_programs:
        fitting_console().print(status_table.as_table(found))
    else:
        display_for(session.output, live=False, where=where).show(found)
    return max(_code(each) for each in found)


def _where(settings: Settings, cluster: str) -> str:
    """Where else to look, as far as the settings say it."""
    from activities.contracts.episode_start import TemporalUi, page_of
    from policy.episode.advice import PAGE
    from policy.episode.messages import scanner_id

    page, ui = page_of(settings.page_url, cluster), settings.temporal.ui_url
    temporal = TemporalUi(address=ui, namespace=settings.temporal.namespace).of(scanner_id(cluster)) if ui else ""
    runbook = f"{settings.docs_url.rstrip('/')}/{PAGE}" if settings.docs_url else ""
    known = (("page", page), ("Temporal", temporal), ("runbook", runbook))
    return ", ".join(f"{name} {address}" for name, address in known if address)


def _code(status: ClusterStatus) -> Exit:
    if status.scanner is not None or status.episodes:
        return Exit.OK
    return Exit.UNREACHABLE if status.unanswered else Exit.MISSING
