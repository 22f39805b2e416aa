"""`nodewarden scan start|stop|status`: the scanner of a cluster; `pause|unpause`: people have it begin nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption, ForOption, OfOption, OutputOption, ReasonOption, UntilOption, WhoOption
from starter.commands.session import ending, given, print_answer, print_command_answer, session_of, show, working
from starter.output import PIPE_WIDTH

app = typer.Typer(help="Start, stop and look at the scanner of a cluster.", no_args_is_help=True)


@app.command("start")
@working
async def start(
    context: typer.Context,
    *,
    cap: Annotated[int, typer.Option("--cap", min=0, help="Nodes disrupted at once; default: scan.cap.")] = 0,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Start the scanner, so that the cluster's health checks are acted upon. One that runs already is left as it is."""
    from starter import wording

    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, settings, name):
        started = await warden.start_scanner(
            name,
            cap=cap or settings.scan.cap,
            wait=settings.scan.wait,
            repeat_alarm=settings.repeat_alarm.alarm(),
            check_every=settings.fence_check.interval(),
            mode=settings.scan.mode,
        )
        seen = await warden.scanner(name).first_look() if started.started else None
    from datetime import UTC, datetime

    text = f"scanner of {name} {'started' if started.started else 'runs already; stop it first to change its settings'}"
    text += f": {wording.view(seen, datetime.now(UTC))}" if seen is not None else ""
    print_answer(session, text, lambda: started)


@app.command("stop")
@working
async def stop(
    context: typer.Context,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")] = "no reason given",
    who: WhoOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Stop the scanner and give the cluster's Lease back. Open episodes pause before their next destructive act."""
    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, _, name):
        answer = await warden.stop_scanner(name, who=who, reason=given("--reason", reason))
    print_command_answer(session, answer, cluster=name)


@working
async def pause(
    context: typer.Context,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, as status shows it.")],
    hold: ForOption = "",
    until: UntilOption = "",
    who: WhoOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Begin nothing new in a cluster and do nothing destructive, until `unpause` or for a while.

    Machines that are off already are still freed and switched on again. Each person has one pause,
    and the later word of theirs counts; the cluster goes on when none is left.
    """
    session = session_of(context, cluster=cluster, output=output)
    ends = ending(hold, until)
    async with session.connected() as (warden, _, name):
        answer = await warden.scanner(name).pause(who=who, reason=given("--reason", reason), until=ends)
    print_command_answer(session, answer, cluster=name)


@working
async def unpause(
    context: typer.Context,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    of: OfOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """End your pause, or with --of that of another person. The cluster goes on when none is left."""
    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, _, name):
        answer = await warden.scanner(name).unpause(who=who, reason=given("--reason", reason), of=of)
    print_command_answer(session, answer, cluster=name)


@app.command("status")
@working
async def status(context: typer.Context, cluster: ClusterOption = "", output: OutputOption = None) -> None:
    """Show what the scanner sees, which episodes it lets act, and why the others wait."""
    from datetime import UTC, datetime

    from starter.handles.status import ClusterStatus
    from starter.output.status_table import render

    session = session_of(context, cluster=cluster, output=output)
    async with session.connected() as (warden, _, name):
        scanner = await warden.scanner_status(name)
    now = datetime.now(UTC)
    seen = ClusterStatus(cluster=name, at=now, scanner=scanner)
    show(session, lambda: scanner, lambda: render(seen, now=now), width=PIPE_WIDTH)
