"""`nodewarden abort|ack-off|hold|resume|return-path`: what people say to an open episode. Each word goes into its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from policy.values.display_text import in_a_line
from starter.commands.arguments import (
    ClusterOption,
    ForOption,
    NodeArgument,
    OfOption,
    OpenArgument,
    OutputOption,
    OverrideOption,
    QuestionOption,
    ReasonOption,
    UntilOption,
    WhoOption,
    YesOption,
)
from starter.commands.session import Exit, Session, ending, given, print_command_answer, session_of, working
from starter.commands.started_episode import FREEING, follow, name_typed

if TYPE_CHECKING:
    from starter.client import Nodewarden
    from starter.handles.episodes import EpisodeHandle


@working
async def abort(
    context: typer.Context,
    node: OpenArgument,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    power_on: Annotated[
        bool, typer.Option("--power-on", help="Switch the machine on again if it was off by then; else it stays off.")
    ] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Stop the episode of NODE. Before the power is off our marks are undone; after that the pods are still freed."""
    session = session_of(context, cluster=cluster, output=output)
    await send_command(
        session, node, lambda _, episode: episode.abort(who=who, reason=given("--reason", reason), power_on=power_on)
    )


@working
async def ack_off(
    context: typer.Context,
    node: NodeArgument,
    *,
    who: Annotated[str, typer.Option("--who", help="Who saw it off.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="How you saw it: at the rack, at the switch, ...")],
    question: QuestionOption = 0,
    override: OverrideOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit | None:
    """Vouch that the machine of NODE is OFF. Its pods are then started elsewhere: if it runs, data is corrupted.

    It shows which volumes are at stake and what each device says, and asks for the name of the node, typed once more. Where no
    episode of it is open, a fencing begins that frees its pods and switches nothing off.
    """
    session = session_of(context, cluster=cluster, output=output)
    who, reason = given("--who", who), given("--reason", reason)
    risk = f"The pods of {node} are started elsewhere. If it still runs, two write to each volume, and data is corrupted."
    if not yes:
        risk = "\n".join((risk, *map(in_a_line, await _at_stake(session, node)), ""))
    if (refused := name_typed(node, risk, yes=yes)) is not None:
        return refused
    said = {"reason": reason, "override": ",".join(override or ())}
    async with session.connected() as (warden, settings, name):
        if not question and not await warden.episode(name, node).is_open():
            await session.expect_node(settings, name, node)
            return await follow(session, await warden.fence(name, node, requester=who, seen_off=True, **said), FREEING)
    await send_command(session, node, lambda _, episode: episode.ack_off(who=who, question=question, **said))
    return None


async def _at_stake(session: Session, node: str) -> list[str]:
    from starter.handles.node_actions import own_connection
    from starter.plans.fence_plans import device_lines, pods_on

    async with session.connected() as (warden, settings, name), own_connection(settings, name) as connection:
        episode = warden.episode(name, node)
        said = await device_lines(warden, await episode.status()) if await episode.is_open() else []
        return [*said, await pods_on(connection, node)] if connection is not None else said


@working
async def hold(
    context: typer.Context,
    node: NodeArgument,
    *,
    duration: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Let the episode of NODE do nothing destructive until `resume`, or for a while. Where none is open, none begins."""
    session = session_of(context, cluster=cluster, output=output)
    await send_command(
        session, node, lambda _, episode: episode.hold(who=who, reason=given("--reason", reason), until=ending(duration, until))
    )


@working
async def resume(
    context: typer.Context,
    node: OpenArgument,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    question: QuestionOption = 0,
    of: OfOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """End your hold of the episode of NODE, or with --of that of another person; or let one that waits for a person try again."""

    async def send(warden: Nodewarden, episode: EpisodeHandle) -> str:
        from starter.output.permits import in_the_way

        why = given("--reason", reason)
        in_its_way = await in_the_way(warden, episode)
        answer = await episode.resume(who=who, reason=why, question=question, of=of)
        return "; ".join(filter(None, (answer, in_its_way)))

    await send_command(session_of(context, cluster=cluster, output=output), node, send)


@working
async def return_path(
    context: typer.Context,
    node: OpenArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why nothing on the node writes any more.")],
    who: WhoOption = "",
    question: QuestionOption = 0,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Give a path of NODE back behind which pods were freed. If anything on it still writes there, data is corrupted."""
    session = session_of(context, cluster=cluster, output=output)
    why = given("--reason", reason)
    await send_command(session, node, lambda _, episode: episode.return_path(who=who, reason=why, question=question))


async def send_command(session: Session, node: str, send: Callable[[Nodewarden, EpisodeHandle], Awaitable[str]]) -> None:
    """Tell the episode of a node something, print what it answers, and exit."""
    from starter.errors import MissingError

    async with session.connected() as (warden, settings, name):
        episode = warden.episode(name, node)
        try:
            answer = await send(warden, episode)
        except MissingError:
            await session.expect_node(settings, name, node)
            raise
    print_command_answer(session, answer, cluster=name, node=node, workflow_id=episode.workflow_id)
