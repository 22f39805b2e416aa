"""`nodewarden preserve …`, `release` and `preserved`: which machines are kept for analysis, at the request of which person, and
until when.

A node that is called like a command of the group is preserved by the command's full name, `nodewarden preserve begin NODE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import (
    BEGIN,
    FilesOption,
    NodeArgument,
    NodeOrCommand,
    NowOption,
    OpenArgument,
    OutputOption,
    ReasonOption,
    WhoOption,
    asked_now,
    for_a_cluster,
)
from starter.commands.episodes import print_begun, send_command
from starter.commands.session import Exit, Session, complain, given, hold_of, moment_of, session_of, show, working
from starter.output import PIPE_WIDTH
from workers.errors import SettingsError

if TYPE_CHECKING:
    from starter.client import Nodewarden
    from starter.handles.episodes import EpisodeHandle

app = typer.Typer(
    cls=NodeOrCommand,
    help="Preserve a node (`preserve NODE` is `preserve begin NODE`), move the end of it, or see who would be preserved.",
)


@app.command(BEGIN)
@for_a_cluster
async def begin(
    session: Session,
    node: NodeArgument,
    *,
    hold: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long, such as 72h; default: the time-out of the node's pool.")
    ] = "",
    isolate: Annotated[
        bool,
        typer.Option(
            "--isolate", help="Cut it off from its volumes and its network once it has failed, as its fence configuration says."
        ),
    ] = False,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
) -> Exit | None:
    """Keep the machine of NODE as it is, powered, until its time is over or a person releases it. It is drained if it fails.

    A node that is preserved already stays preserved until the same moment (see `preserve extend`); --isolate is added to that.
    """
    wanted = hold_of(hold) if hold else None
    async with session.connected() as (warden, _, name):
        why = given("--reason", reason)
        episode = await warden.preserve(name, node, reason=why, requester=who, hold=wanted, isolate=isolate)
        return await _print_state(session, episode)


@app.command("extend")
@for_a_cluster
async def extend(
    session: Session,
    node: OpenArgument,
    *,
    until: Annotated[str, typer.Option("--until", metavar="RFC3339", help="When it is to end.")] = "",
    hold: Annotated[str, typer.Option("--for", metavar="DURATION", help="How much longer, such as 24h.")] = "",
    shorten: Annotated[bool, typer.Option("--shorten", help="Let --until be earlier than the end that it has.")] = False,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
) -> None:
    """Let the preservation of NODE end later: so much later, or at a moment."""

    async def send(_: Nodewarden, episode: EpisodeHandle) -> str:
        if bool(until) is bool(hold):
            raise SettingsError("--until, --for: expected exactly one of them")
        return await episode.extend(
            who=who,
            reason=given("--reason", reason),
            until=moment_of("--until", until) if until else None,
            hold=hold_of(hold) if hold else None,
            shorten=shorten,
        )

    await send_command(session, node, send)


@for_a_cluster
async def release(
    session: Session,
    node: OpenArgument,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
) -> None:
    """End the preservation of NODE now. A machine that has failed is then deleted, for its owner to replace it; a node that no
    Machine belongs to is fenced where a health check asks for that.
    """
    await send_command(session, node, lambda _, episode: episode.release(who=who, reason=given("--reason", reason)))


@for_a_cluster
async def preserved(session: Session) -> Exit:
    """List the nodes that are preserved: who asked, why, until when, and for how many hours they have been held."""
    from starter.output.status_table import preservations_table

    async with session.connected() as (warden, _, name):
        found = await warden.preserved(name)
    show(session, lambda: found, lambda: preservations_table(found), width=PIPE_WIDTH)
    return Exit.UNREACHABLE if found.silent and not found.preservations else Exit.OK


async def _print_state(session: Session, episode: EpisodeHandle) -> Exit:
    """Say what was begun, and until when it holds."""
    from policy.episode.messages import EpisodeResult, Outcome
    from starter import wording

    found = await episode.kept()
    if isinstance(found, EpisodeResult):
        refused = found.outcome is Outcome.REFUSED
        why = f"{episode.node} is not preserved: {found.message if refused else wording.ending(found)}"
        complain(found.message if found.missing else why)
        return Exit.MISSING if found.missing else Exit.FAILED
    stands = wording.kept(found) if found is not None else wording.standing(None)
    until = found.preserved_until if found is not None else None
    print_begun(session, episode, "preservation", stands, until=until)
    return Exit.OK


@app.command("plan")
@working
async def plan(
    context: typer.Context,
    *,
    filename: FilesOption = None,
    now: NowOption = "",
    output: OutputOption = None,
) -> Exit:
    """Show which machines in the files would be preserved, until when, and which would be given up. Nothing is done.

    The files hold Machines, MachineDeployments, Nodes, health checks and PreservationPolicies as kubectl get -o yaml prints them,
    or a block machineControllerManager. Exit code 1: some object could not be used; everything else was judged all the same.
    """
    from starter.plans.preserve_plans import as_model, as_table, planned_from_files

    session = session_of(context, output=output)
    if not filename:
        raise SettingsError("-f: expected a file with Kubernetes objects, got nothing")
    found = planned_from_files(filename, asked_now(now))
    show(session, lambda: as_model(found), lambda: as_table(found), width=PIPE_WIDTH)
    return Exit.FAILED if found.errors else Exit.OK
