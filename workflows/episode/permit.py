"""The permit of an episode: asked of the scanner, waited for in its queue, and given back.

The other end is the scanner's (`workflows/scanner/queue.py`, `workflows/scanner/permits.py`). Here is only how often it is
asked and what an episode does meanwhile. A grant that comes by signal is `Episode.take_grant`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from activities.contracts.episodes import AskPermit, EpisodeActivities
from activities.contracts.target import PublishedEvent
from activities.errors import error_message
from policy.episode.events import EventReason
from policy.episode.messages import Need, NeedKind, Phase, scanner_id
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import PermitAnswer, PermitDecision, PermitRequest, Release
from workflows.episode.episode import Episode
from workflows.kit import options

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(minutes=10)
"""Between two requests of an episode that waits: each is twice as long as the one before. A grant ends it at once."""
KEEPS_ITS_PLACE = "an-episode-that-is-queued-ends-by-no-refusal-without-a-rule"
"""Histories of builds that ended it so go on as they began."""
HELD_IN_THE_QUEUE = "an-episode-that-a-person-holds-ends-by-no-refusal"
"""Histories of builds that ended it so, and forgot the hold, go on as they began."""


def permit_request(episode: Episode, need: Need) -> PermitRequest:
    """What the scanner is asked for, once the target is pinned. What is not known of it is what guards it best (S15)."""
    pinned, seen = episode.target.pinned, episode.state.last_seen
    return PermitRequest(
        node=episode.state.node,
        workflow_id=workflow.info().workflow_id,
        incident=episode.state.incident,
        kind=episode.state.kind,
        reason=need.reason,
        provider_id=pinned.provider_id,
        zone=pinned.zone,
        control_plane=episode.state.control_plane is not False,
        node_uid=pinned.uid,
        owner=episode.state.owner,
        removes=episode.state.removes,
        ready=seen is None or seen.ready,
        by_person=need.kind is NeedKind.PERSON or episode.was_answered,
        override=CIRCUIT_BREAKER if episode.state.override is not None else "",
    )


async def obtain_permit(
    episode: Episode, request: PermitRequest, *, phase: Phase = Phase.QUEUED, gone: Callable[[], str] = str
) -> str:
    """Ask the scanner for leave and wait in its queue. Returns "" once granted, else the refusal in a sentence.

    phase: as people see the episode meanwhile. gone: why the permit is not wanted any more, "" while it is.
    """
    begins = phase is Phase.QUEUED and episode.state.phase is not Phase.NEEDS_HUMAN
    episode.enter(phase=phase, doing="asks the scanner for a permit")
    episode.state.by_person, pause = request.by_person, FIRST_PAUSE
    while True:
        place, answer = episode.state.queued, await _ask(episode, request)
        # That it is queued was said. A scanner that is busy, or away, takes nothing of that back: a rule does.
        waits = (
            answer.decision is PermitDecision.REFUSED and bool(place) and not answer.rule and workflow.patched(KEEPS_ITS_PLACE)
        )
        episode.state.queued = place if waits else answer.reason if answer.decision is PermitDecision.QUEUED else ""
        refused = answer.decision is PermitDecision.REFUSED and not waits
        # Of one that ends the next episode would know no hold.
        holds = refused and begins and episode.is_held and workflow.patched(HELD_IN_THE_QUEUE)
        if refused and not holds:
            return answer.reason
        if answer.decision is PermitDecision.GRANTED:
            episode.state.permit, episode.state.asks_anew = True, False
        if holds:
            await episode.wait_while_held()
        elif not episode.state.permit and episode.state.abort_asked is None:
            episode.enter(doing=f"waits for a permit: {answer.reason}")
            await episode.rest(pause, "waits for a permit")
            pause = min(pause * 2, LONGEST_PAUSE)
        if episode.state.permit:
            episode.state.queued = ""
            if request.override:
                text = f"an open circuit breaker does not stop this episode: overridden by {episode.overridden_by}"
                episode.note("override", request.override, text)
                overridden = EventReason.CIRCUIT_BREAKER_OVERRIDDEN
                episode.publisher.add_event(PublishedEvent(reason=overridden, message=text, warning=True))
            return ""
        if episode.state.abort_asked is not None:
            return "aborted while it waited for a permit"
        if reason := gone():
            return reason


async def _ask(episode: Episode, request: PermitRequest) -> PermitAnswer:
    """Ask once. Asking again keeps the place in the queue, and finds a scanner that has forgotten us."""
    try:
        answer: PermitAnswer = await options.execute(
            EpisodeActivities.request_permit,
            AskPermit(cluster=episode.state.cluster, permit=request),
            options.temporal_call(),
            f"asks for a permit to disrupt {episode.state.node}",
        )
    except ActivityError as error:
        answer = PermitAnswer(decision=PermitDecision.REFUSED, reason=error_message(error))
    episode.note("permit", answer.decision.value, answer.reason, rule=answer.rule)
    episode.state.holder = answer.holder or episode.state.holder
    return answer


async def give_back_permit(episode: Episode, **known: Any) -> None:
    """Signal the scanner, also that it waits for none any more; a failed signal is only logged, since the scanner also
    describes its holders. known: fields of Release, beside those that the state has."""
    episode.state.permit = episode.state.asks_anew = False
    episode.state.queued = ""
    release = Release(
        node=episode.state.node,
        incident=episode.state.incident,
        cause=episode.state.cause,
        workloads=episode.state.workloads,
        node_uid=episode.state.pinned.uid if episode.state.pinned else "",
        vetoed_until=episode.state.vetoed_until,
        **known,
    )
    scanner = workflow.get_external_workflow_handle(scanner_id(episode.state.cluster))
    try:
        await scanner.signal("release", release)
    except (ApplicationError, FailureError) as error:
        workflow.logger.warning("the scanner did not hear of the release: %s", error)
