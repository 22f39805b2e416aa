"""`nodewarden abort|ack-off|hold|resume|return-path`: what people say to an open episode. Each word goes into its record."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from policy.values.display_text import in_a_line, visible
from starter.commands.arguments import (
    ForOption,
    NodeArgument,
    OfOption,
    OpenArgument,
    OverrideOption,
    QuestionOption,
    ReasonOption,
    UntilOption,
    WhoOption,
    YesOption,
    for_a_cluster,
)
from starter.commands.session import Exit, Session, complain, folded, given, hold_until, print_answer, print_command_answer
from starter.errors import MissingError, SilentError

if TYPE_CHECKING:
    from datetime import datetime

    from policy.episode.messages import EpisodeResult
    from starter.client import Nodewarden
    from starter.handles.episodes import EpisodeHandle

# What `nodewarden fence` and `remediate` ask before they begin an episode, and report of it: the scanner's decision, or all of
# it to its end.

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWords:
    """What is being done, as a noun and as what is not done where it is refused."""

    noun: str
    not_done: str


FENCING = RequestWords(noun="fencing", not_done="fenced")
REMEDIATION = RequestWords(noun="remediation", not_done="remediated")
FREEING = RequestWords(noun="freeing", not_done="freed")


OVERRIDES = "An open circuit breaker says that too many are unhealthy: if they have one cause, this makes it worse."


async def confirmed(
    words: RequestWords,
    question: str,
    node: str,
    *,
    yes: bool,
    override: Sequence[str] | None = None,
    show: Callable[[], Awaitable[None]] | None = None,
) -> Exit | None:
    """Ask before a machine is disrupted that may be healthy; the name typed, where a circuit breaker is overridden. show: prints
    what would be done, before the question. None: a person has said yes."""
    if yes:
        return None
    if not on_a_terminal():
        complain(f"no terminal: confirm with --yes. {question}")
        return Exit.USAGE
    if show is not None:
        await show()
    if override:
        return name_typed(node, f"{OVERRIDES} {question}", yes=yes, which="")
    if typer.confirm(question, err=True):
        return None
    complain(f"{node} is not {words.not_done}: you did not say yes")
    return Exit.FAILED


def name_typed(node: str, risk: str, *, yes: bool, which: str = " that you saw off") -> Exit | None:
    """Have the name typed before a word that may corrupt data (S8). risk: what happens if the person is wrong. None: it was."""
    if yes:
        return None
    if not on_a_terminal():
        complain(f"no terminal: confirm with --yes. {risk}")
        return Exit.USAGE
    typed = typer.prompt(f"{visible(risk)} Type the name of the node{which}", default="", show_default=False, err=True)
    if typed == node:
        return None
    complain(f"nothing was said of {node}: expected its name, got {typed!r}")
    return Exit.FAILED


def on_a_terminal() -> bool:
    """Whether there is a person to be asked."""
    return sys.stdin.isatty()


async def follow(session: Session, episode: EpisodeHandle, words: RequestWords, *, to_its_end: bool = False) -> Exit:
    """Print what has begun and what the scanner decides, or all that it does to its end. A refusal is the command's own."""
    if to_its_end:
        return await _see_through(session, episode, words)
    from policy.episode.messages import EpisodeResult
    from starter import wording

    decision = await episode.decided()
    if isinstance(decision, EpisodeResult):
        return _ended(session, episode, decision, words)
    print_begun(session, episode, words.noun, wording.standing(decision), permit=decision is not None and decision.permit)
    return Exit.OK


def print_begun(
    session: Session, episode: EpisodeHandle, noun: str, stands: str, *, permit: bool | None = None, until: datetime | None = None
) -> None:
    """That an episode has begun or was joined, and how it stands. permit, until: see Begun."""
    from starter.output.models import Begun

    found = Begun.of(episode, stands, permit=permit, until=until)
    print_answer(session, found.sentence(noun), lambda: found)


def _ended(session: Session, episode: EpisodeHandle, result: EpisodeResult, words: RequestWords) -> Exit:
    from policy.episode.messages import REPAIRED, Outcome
    from starter import wording

    if result.outcome is not Outcome.REFUSED or session.for_programs:
        print_answer(session, f"{episode.node}: {wording.ending(result)}", lambda: result)
    else:
        complain(result.message if result.missing else f"{episode.node} is not {words.not_done}: {result.message}")
    if result.outcome is Outcome.REFUSED:
        return Exit.MISSING if result.missing else Exit.REFUSED
    return Exit.OK if result.outcome in REPAIRED else Exit.FAILED


async def _see_through(session: Session, episode: EpisodeHandle, words: RequestWords) -> Exit:
    """Print what it does on stderr until it ends; one that waits for a person is not waited for."""
    from policy.episode.messages import EpisodeStatus, Phase
    from starter.output.display import episode_changes

    end = asyncio.create_task(episode.result())
    former: EpisodeStatus | None = None
    try:
        while not end.done():
            status: EpisodeStatus | None
            try:
                status = await episode.status()
            except (MissingError, SilentError):
                status = former  # it has just ended, or does not answer at this moment: the result says which
            if status is not None:
                for line in episode_changes(former, status):
                    typer.echo(folded(line, sys.stderr), err=True)
                former = status
                if status.phase is Phase.NEEDS_HUMAN:
                    complain(f"{episode.node} waits for a person: {status.problem or status.doing}; {status.advice}")
                    return Exit.FAILED
            await _pause(end)
        result = await end
    except asyncio.CancelledError:
        how = f"`nodewarden status --watch` shows it, `nodewarden abort {episode.node}` stops it"
        complain(f"the {words.noun} of {episode.node} goes on: {how}")
        raise
    finally:
        end.cancel()
    return _ended(session, episode, result, words)


async def _pause(end: asyncio.Task[EpisodeResult]) -> None:
    """Until the end, at most a moment."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await asyncio.shield(end)
    except TimeoutError:
        return


@for_a_cluster
async def abort(
    session: Session,
    node: OpenArgument,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    power_on: Annotated[
        bool, typer.Option("--power-on", help="Switch the machine on again if it was off by then; else it stays off.")
    ] = False,
) -> None:
    """Stop the episode of NODE. Before the power is off our marks are undone; after that the pods are still freed."""
    await send_command(
        session, node, lambda _, episode: episode.abort(who=who, reason=given("--reason", reason), power_on=power_on)
    )


@for_a_cluster
async def ack_off(
    session: Session,
    node: NodeArgument,
    *,
    who: Annotated[str, typer.Option("--who", help="Who saw it off.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="How you saw it: at the rack, at the switch, ...")],
    question: QuestionOption = 0,
    override: OverrideOption = None,
    yes: YesOption = False,
) -> Exit | None:
    """Vouch that the machine of NODE is OFF. Its pods are then started elsewhere: if it runs, data is corrupted.

    It shows which volumes are at stake and what each device says, and asks for the name of the node, typed once more. Where no
    episode of it is open, a fencing begins that frees its pods and switches nothing off.
    """
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
        episode, said = warden.episode(name, node), list[str]()
        if await episode.is_open():
            said = await device_lines(await episode.status(), warden.check_devices(name, node))
        return [*said, await pods_on(connection, node)] if connection is not None else said


@for_a_cluster
async def hold(
    session: Session,
    node: NodeArgument,
    *,
    duration: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
) -> None:
    """Let the episode of NODE do nothing destructive until `resume`, or for a while. Where none is open, none begins until
    `resume`: --for and --until are refused then."""
    ends = hold_until(duration, until)
    await send_command(session, node, lambda _, episode: episode.hold(who=who, reason=given("--reason", reason), until=ends))


@for_a_cluster
async def resume(
    session: Session,
    node: OpenArgument,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    question: QuestionOption = 0,
    of: OfOption = "",
) -> None:
    """End your hold of NODE or of its episode, or with --of that of another person; or let an episode that waits for a person try
    again."""

    async def send(warden: Nodewarden, episode: EpisodeHandle) -> str:
        why = given("--reason", reason)
        in_its_way = await warden.in_the_way(episode)
        answer = await episode.resume(who=who, reason=why, question=question, of=of)
        return "; ".join(filter(None, (answer, in_its_way)))

    await send_command(session, node, send)


@for_a_cluster
async def return_path(
    session: Session,
    node: OpenArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why nothing on the node writes any more.")],
    who: WhoOption = "",
    question: QuestionOption = 0,
) -> None:
    """Give a path of NODE back behind which pods were freed. If anything on it still writes there, data is corrupted."""
    why = given("--reason", reason)
    await send_command(session, node, lambda _, episode: episode.return_path(who=who, reason=why, question=question))


async def send_command(session: Session, node: str, send: Callable[[Nodewarden, EpisodeHandle], Awaitable[str]]) -> None:
    """Tell the episode of a node something, print what it answers, and exit."""
    async with session.connected() as (warden, settings, name):
        episode = warden.episode(name, node)
        try:
            answer = await send(warden, episode)
        except MissingError:
            await session.expect_node(settings, name, node)
            raise
    print_command_answer(session, answer, cluster=name, node=node, workflow_id=episode.workflow_id)
