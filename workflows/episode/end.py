"""The end of an episode of any kind: people are told, the node's lease and the permit are given back.

What is undone before is each kind's own; what came out is an `End`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

from temporalio import workflow

from policy.episode.events import EventReason
from policy.episode.messages import REPAIRED, EpisodeResult, Kind, Outcome, Phase
from workflows.episode.episode import Episode
from workflows.episode.node_writes import NodeWriter
from workflows.episode.permit import give_back_permit
from workflows.episode.state import End

WORD_OUTLIVES_IT = "what-people-say-while-an-end-is-carried-out-is-obeyed"
"""Histories of builds that dropped it go on as they began."""


def not_begun(episode: Episode, why: str) -> End:
    """The end of an episode that was let do nothing: refused, unless a person has aborted it by then."""
    abort = episode.state.abort_asked
    if abort is None:
        return refusal(why)
    return End(outcome=Outcome.ABORTED, message=f"{abort}; nothing had been done")


def refusal(message: str, *, missing: bool = False) -> End:
    """The end of an episode that has not begun. missing: see End."""
    return End(outcome=Outcome.REFUSED, message=message, missing=missing)


async def close(
    episode: Episode,
    end: End,
    node_writer: NodeWriter | None,
    *,
    about: EventReason | None = EventReason.EPISODE_ENDED,
    leased: bool = True,
    powered_on_at: datetime | None = None,
    powered_off_at: datetime | None = None,
    left_off: bool = False,
    freed_pods: int = 0,
) -> EpisodeResult:
    """The episode is over. node_writer: None where it has touched nothing and no Event is sent. about: the Event, None for none.
    leased: whether the node's lease may be ours. powered_on_at, powered_off_at: see `Release`."""
    if node_writer is not None and episode.state.kind is not Kind.PRESERVATION:
        end = await _as_people_say(episode, end)
    if node_writer is not None and about is not None:
        message = f"{end.outcome.value}: {end.message}"
        worse = end.outcome not in REPAIRED  # than what it was there for
        node_writer.send_event(about, message, warning=worse and about is EventReason.EPISODE_ENDED, outcome=end.outcome.value)
    episode.outcome = end.outcome
    episode.enter(phase=Phase.FINAL, doing=f"{end.outcome.value}: {end.message}")
    ended = workflow.now()  # before others may begin
    lasted = {"seconds": (ended - episode.state.started).total_seconds(), "restarts": float(episode.state.restarts)}
    episode.note("end", end.outcome.value, end.message, numbers=lasted | {"freed_pods": float(freed_pods)})
    gives_back = []
    if node_writer is not None and leased:
        gives_back.append(node_writer.release_node_lease())
    if episode.state.kind is not Kind.PRESERVATION or episode.state.permit or episode.state.queued:  # most never asked for one
        power = {"powered_on_at": powered_on_at, "powered_off_at": powered_off_at}
        why = {"outcome": end.outcome.value, "problem": end.message, "missing": end.missing}
        gives_back.append(give_back_permit(episode, **why, **power))
    await asyncio.gather(*reversed(gives_back))
    episode.count_end(end.outcome, ended)
    return EpisodeResult(
        outcome=end.outcome,
        incident=episode.state.incident,
        cluster=episode.state.cluster,
        node=episode.state.node,
        message=end.message,
        started=episode.state.started,
        ended=ended,
        off_proof=episode.state.off_proof,
        restart_proof=episode.state.restart_proof,
        left_off=left_off,
        freed_pods=freed_pods,
        record=tuple(episode.state.record),
        kernel_dead=episode.state.kernel_dead,
        missing=end.missing,
        check=episode.state.check,
        cause=episode.state.cause,
    )


async def _as_people_say(episode: Episode, end: End) -> End:
    """What people have said while the end was carried out holds (S44): a program would begin the next episode of a node that is
    still sick, or of a machine without one. A hold keeps this one open, without a permit; an abort makes it an aborted one."""
    seen, pinned = episode.state.last_look, episode.state.pinned
    has_node = pinned is not None and bool(pinned.uid)
    sick = seen is not None and seen.present and not seen.ready if has_node else end.outcome is Outcome.RELEASED
    if not sick or end.outcome not in {Outcome.RELEASED, Outcome.RECOVERED}:
        return end
    if episode.is_held and workflow.patched(WORD_OUTLIVES_IT):
        if episode.state.permit:
            await give_back_permit(episode, held=True)
        await episode.wait_while_held()
    abort = episode.state.abort_asked
    if abort is not None and workflow.patched(WORD_OUTLIVES_IT):
        return replace(end, outcome=Outcome.ABORTED, message=f"{abort}; {end.message}")
    return end
