"""What `nodewarden fence` and `remediate` ask before they begin an episode, and report of it: the scanner's decision, or all of
it to its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from policy.values.display_text import visible
from starter.commands.session import Exit, Session, complain, folded, print_answer

if TYPE_CHECKING:
    from datetime import datetime

    from policy.episode.messages import EpisodeResult
    from starter.handles.episodes import EpisodeHandle

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
    from policy.episode.messages import Outcome
    from starter import wording

    if result.outcome is not Outcome.REFUSED or session.for_programs:
        print_answer(session, f"{episode.node}: {wording.ending(result)}", lambda: result)
    else:
        complain(result.message if result.missing else f"{episode.node} is not {words.not_done}: {result.message}")
    if result.outcome is Outcome.REFUSED:
        return Exit.MISSING if result.missing else Exit.REFUSED
    return Exit.OK if result.outcome in wording.REPAIRED else Exit.FAILED


async def _see_through(session: Session, episode: EpisodeHandle, words: RequestWords) -> Exit:
    """Print what it does on stderr until it ends; one that waits for a person is not waited for."""
    from policy.episode.messages import EpisodeStatus, Phase
    from starter.errors import MissingError, SilentError
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
