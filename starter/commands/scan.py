"""`nodewarden scan start|stop|status`: the scanner of a cluster; `pause|unpause`: people have it begin nothing; `status`: what it
sees and what its episodes do, once or live."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ForOption, OfOption, ReasonOption, UntilOption, WhoOption, for_a_cluster
from starter.commands.session import Exit, Session, given, hold_until, print_answer, print_command_answer, show
from starter.output import PIPE_WIDTH
from workers.errors import SettingsError

if TYPE_CHECKING:
    from starter.client import Nodewarden
    from starter.handles.scanners import StartedScanner
    from starter.handles.status import ClusterStatus
    from workers.configuration.settings import Settings

app = typer.Typer(help="Start, stop and look at the scanner of a cluster.", no_args_is_help=True)


@app.command("start")
@for_a_cluster
async def start(
    session: Session,
    *,
    cap: Annotated[int, typer.Option("--cap", min=0, help="Nodes disrupted at once; 0: scan.cap.")] = 0,
) -> None:
    """Start the scanner, so that the cluster's health checks are acted upon. One that runs already is left as it is."""
    from starter import wording

    async with session.connected() as (warden, settings, name):
        started = await started_by(warden, settings, name, cap=cap)
        seen = await warden.scanner(name).first_look() if started.started else None

    text = f"scanner of {name} {'started' if started.started else 'runs already; stop it first to change its settings'}"
    text += f": {wording.view(seen, datetime.now(UTC))}" if seen is not None else ""
    print_answer(session, text, lambda: started)


async def started_by(warden: Nodewarden, settings: Settings, name: str, *, cap: int) -> StartedScanner:
    """The scanner of a cluster, as the settings have it. cap: nodes disrupted at once, 0 for `scan.cap`."""
    return await warden.start_scanner(
        name,
        cap=cap or settings.scan.cap,
        wait=settings.scan.wait,
        repeat_alarm=settings.repeat_alarm.alarm(),
        check_every=settings.fence_check.interval(),
        mode=settings.scan.mode,
    )


@app.command("stop")
@for_a_cluster
async def stop(
    session: Session,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")] = "no reason given",
    who: WhoOption = "",
) -> None:
    """Stop the scanner and give the cluster's Lease back. Open episodes pause before their next destructive act."""
    async with session.connected() as (warden, _, name):
        answer = await warden.stop_scanner(name, who=who, reason=given("--reason", reason))
    print_command_answer(session, answer, cluster=name)


@for_a_cluster
async def pause(
    session: Session,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, as status shows it.")],
    hold: ForOption = "",
    until: UntilOption = "",
    who: WhoOption = "",
) -> None:
    """Begin nothing new in a cluster and do nothing destructive, until `unpause` or for a while.

    Machines that are off already are still freed and switched on again. Each person has one pause,
    and the later word of theirs counts; the cluster goes on when none is left.
    """
    ends = hold_until(hold, until)
    async with session.connected() as (warden, _, name):
        answer = await warden.scanner(name).pause(who=who, reason=given("--reason", reason), until=ends)
    print_command_answer(session, answer, cluster=name)


@for_a_cluster
async def unpause(
    session: Session,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    of: OfOption = "",
) -> None:
    """End your pause, or with --of that of another person. The cluster goes on when none is left."""
    async with session.connected() as (warden, _, name):
        answer = await warden.scanner(name).unpause(who=who, reason=given("--reason", reason), of=of)
    print_command_answer(session, answer, cluster=name)


@app.command("status")
@for_a_cluster
async def scan_status(session: Session) -> None:
    """Show what the scanner sees, which episodes it lets act, and why the others wait."""
    from starter.handles.status import ClusterStatus
    from starter.output.status_table import render

    async with session.connected() as (warden, _, name):
        scanner = await warden.scanner_status(name)
    now = datetime.now(UTC)
    seen = ClusterStatus(cluster=name, at=now, scanner=scanner)
    show(session, lambda: scanner, lambda: render(seen, now=now), width=PIPE_WIDTH)


@for_a_cluster
async def status(
    session: Session,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking until Ctrl-C.")] = False,
    everywhere: Annotated[bool, typer.Option("--all", help="All clusters of the settings, a line each.")] = False,
) -> Exit | None:
    """Show nodes with their verdicts, checks with their circuit breakers, and episodes with their current step."""
    from starter.output import status_table
    from starter.output.console import fitting_console
    from starter.output.display import display_for, look
    from starter.output.display import watch as keep_watching

    where = ""
    if everywhere and session.cluster:
        raise SettingsError("--all, --cluster: expected one of them")
    async with session.connected_to_all(everywhere=everywhere) as (warden, settings, names):
        if not everywhere:
            where = _where(settings, names[0])
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
