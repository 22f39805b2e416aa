"""`nodewarden fence NODE`: start a fencing by hand, or join the same request; with --wait, see it through.

A node that is called like a command of the group is fenced by the command's full name, `nodewarden fence begin NODE`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import fence_check, fence_plan
from starter.commands.groups import BEGIN, NodeOrCommand
from starter.commands.session import (
    ClusterOption,
    Exit,
    NodeArgument,
    Output,
    OutputOption,
    Session,
    WhoOption,
    complain,
    given,
    me,
    run,
    say,
    session_of,
)

if TYPE_CHECKING:
    from policy.episodes import EpisodeResult
    from policy.healthcheck import ObjectRef
    from starter.episodes import EpisodeHandle

LOOK_SECONDS = 1.0


app = typer.Typer(
    cls=NodeOrCommand,
    help="Fence a node (`fence NODE` is `fence begin NODE`), or see what fencing it would do, or whether it could.",
)
app.command("plan")(fence_plan.plan)
app.command("check")(fence_check.check)


@app.command(BEGIN)
def begin(
    context: typer.Context,
    node: NodeArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the decision record.")] = "no reason given",
    who: WhoOption = "",
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar="NAMESPACE/NAME", help="FencingTemplate; default: the node's check's, or the only one."
        ),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Power-cycle NODE, free its pods once it is proven off, and bring it back. Needs a permit from the cluster's scanner."""
    session = session_of(context, cluster=cluster, output=output)

    async def work() -> Exit | None:
        from starter.client import Nodewarden

        named = _template(template)
        settings = session.settings()
        name = session.one_cluster(settings)
        async with Nodewarden.connect(settings) as warden:
            await session.expect_served(warden, settings, name)
            episode = await warden.fence(name, node, reason=given("--reason", reason), requester=who or me(), template=named)
            if wait:
                return await _see_through(session, episode)
            return await _tell_the_decision(session, episode)

    run(session, work)


def _template(text: str) -> ObjectRef | None:
    from policy.fence.specs import GROUP, VERSION
    from policy.healthcheck import ObjectRef
    from policy.templates import KIND
    from workers.setting_sources import SettingsError

    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        message = f"--template: expected NAMESPACE/NAME of a {KIND}, got {text!r}"
        raise SettingsError(message)
    return ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)


async def _tell_the_decision(session: Session, episode: EpisodeHandle) -> Exit:
    """Say what was begun and what the scanner says to it; a refusal is the command's own."""
    from policy.episodes import EpisodeResult
    from starter import wording

    decision = await episode.decided()
    if isinstance(decision, EpisodeResult):
        return _ended(session, episode, decision)
    stands = wording.standing(decision)
    begun = f"{'joined the' if episode.joined else 'started'} fencing of {episode.node}"
    say(
        session,
        f"{begun}: {stands} ({episode.workflow_id}, run {episode.run_id})",
        cluster=episode.cluster,
        node=episode.node,
        workflow_id=episode.workflow_id,
        run_id=episode.run_id,
        joined=episode.joined,
        permit=decision is not None and decision.permit,
        stands=stands,
    )
    return Exit.OK


def _ended(session: Session, episode: EpisodeHandle, result: EpisodeResult) -> Exit:
    from policy.episodes import Outcome
    from starter import wording
    from starter.encoding import to_json

    if session.output is Output.JSON:
        typer.echo(to_json(result))
    elif result.outcome is Outcome.REFUSED:
        complain(f"{episode.node} is not fenced: {result.message}")
    else:
        typer.echo(f"{episode.node}: {wording.ending(result)}")
    if result.outcome is Outcome.REFUSED:
        return Exit.REFUSED
    return Exit.OK if result.outcome in wording.GOOD_ENDS else Exit.FAILED


async def _see_through(session: Session, episode: EpisodeHandle) -> Exit:
    """Print what it does on stderr until it ends; one that waits for a person is not waited for."""
    from policy.episodes import EpisodeStatus, Phase
    from starter.changes import episode_changes
    from starter.errors import MissingError, SilentError

    end = asyncio.create_task(episode.result())
    former: EpisodeStatus | None = None
    try:
        while not end.done():
            status: EpisodeStatus | None
            try:
                status = await episode.status()
            except (MissingError, SilentError):
                status = former  # it has just ended, or nobody answers at this moment: the result will tell
            if status is not None:
                for line in episode_changes(former, status):
                    typer.echo(line, err=True)
                former = status
                if status.phase is Phase.NEEDS_HUMAN:
                    complain(
                        f"{episode.node} waits for a person: {status.problem or status.doing}; "
                        f"see `nodewarden ack-off`, `abort` and `resume`"
                    )
                    return Exit.FAILED
            await _pause(end)
        result = await end
    finally:
        end.cancel()
    return _ended(session, episode, result)


async def _pause(end: asyncio.Task[EpisodeResult]) -> None:
    """Until the end, at most a moment."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await asyncio.shield(end)
    except TimeoutError:
        return
