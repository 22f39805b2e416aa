"""Giving up: what becomes of a machine that was preserved, once its time has come: its Machine is deleted, and it is replaced.

A preservation hands it over to `Remediation` (`workflows/remediation/story.py`), which awaits this story instead of a ladder. The
look before the request is live and the last word: a person who asks for the machine to be preserved gets it back into
preservation (S27).
"""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.preservation import GiveUpRequest, GiveUpResult, PreservationActivities
from activities.errors import ErrorType, error_message, error_type
from policy.episode.messages import EpisodeResult, Kind, Outcome, Phase, Pinned, RemediationInput
from policy.episode.permits import PermitRequest
from workflows.episode.end import close
from workflows.episode.episode import Episode
from workflows.episode.node_writes import UNMARK_PAUSE, NodeWriter
from workflows.episode.permit import give_back_permit, obtain_permit
from workflows.episode.state import End, GivingUpProgress, PreservationHistory
from workflows.kit import options
from workflows.kit.continuation import NewHistory
from workflows.kit.interrupts import is_unclear
from workflows.kit.messages import AbortRequest
from workflows.remediation.ladder_step import withdraw_claim

LOOK_AGAIN = timedelta(seconds=20)
PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=5)
HELD_WITHOUT_A_PERMIT = "a-machine-that-is-held-before-it-is-given-up-takes-no-permit"
"""Histories of builds that took one, and kept it, go on as they began."""
TRIES_BEFORE_A_PERSON = 10
"""After so many requests in a row that came to nothing, half an hour about, a person is told, and the permit is another's."""

HOPELESS = frozenset({ErrorType.NOT_SUPPORTED, ErrorType.INVALID_CONFIG, ErrorType.UNAUTHORIZED})


class GivingUpStory:
    def __init__(self, request: RemediationInput, episode: Episode) -> None:
        kept = episode.state.preservation
        assert kept is not None, "a preservation hands over"
        self._request = request
        self.episode = episode
        self._kept = kept
        self._progress = kept.giving_up = kept.giving_up or GivingUpProgress()
        self._node_writer = NodeWriter(episode)
        episode.state.control_plane = False  # a member's deletion only a ladder may ask for: here it is refused
        episode.state.pinned = Pinned(node=request.node, uid=kept.node_uid)
        if request.machine is not None:
            episode.state.machine = f"{request.machine.namespace}/{request.machine.name}"

    @property
    def deletes(self) -> bool:
        """Whether the deletion was asked for."""
        return self._progress.asked

    @property
    def may_delete(self) -> bool:
        """Whether a request for that is under way, or its answer was lost."""
        return self._progress.asks or self._progress.unclear

    async def run(self) -> EpisodeResult:
        """Ask for the deletion, and follow it until the Machine is gone, which a finalizer may hold up for days. Raises
        NewHistory, also where the machine is kept after all."""
        self.episode.introduce(zone="", reason=self._request.reason)
        if self.episode.state.phase is not Phase.NEEDS_HUMAN:
            self.episode.enter(phase=Phase.TERMINATING, doing="asks for the deletion of the machine")
        pause, progress = PAUSE, self._progress
        while True:
            if (abort := self.episode.state.abort_asked) is not None and not progress.asked:
                return await self._aborted(abort)
            held = self.episode.longest_hold is not None and not progress.asked
            needs_none = held and not progress.unclear and workflow.patched(HELD_WITHOUT_A_PERMIT)
            if needs_none and self.episode.state.permit:
                await give_back_permit(self.episode, held=True)
            if not (needs_none or progress.asked or self.episode.state.permit):
                if refused := await self._permitted():
                    return refused
                continue  # what was said meanwhile is heard first (S20)
            if held:
                await self.episode.wait_while_held()
                continue
            progress.asks = True
            try:
                found = await self._give_up()
            except ActivityError as error:
                progress.asks = False
                if error_type(error) is ErrorType.TARGET_CHANGED:
                    return await self._end(Outcome.REPLACED, error_message(error))
                await self._after_failure(error, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause, progress.failures, self.episode.state.problem = PAUSE, 0, ""
            progress.asks = progress.unclear = False
            if found.gone:
                return await self._end(Outcome.REPLACED, "the machine was given up; its owner makes another one")
            if found.kept:
                await self._go_back(found)
            if not progress.asked:
                progress.asked = True
                self.episode.note("delete-machine", "asked", found.detail)
            self.episode.enter(phase=Phase.TERMINATING, doing="waits until the machine is gone")
            await self.episode.rest(LOOK_AGAIN, "until the machine is looked for again")

    async def _after_failure(self, error: ActivityError, pause: timedelta) -> None:
        """Nothing came of a request, for all that is known: what is to be waited for is waited for."""
        episode, progress, kind = self.episode, self._progress, error_type(error)
        episode.state.problem = error_message(error)
        episode.note("delete-machine", "failed", episode.state.problem)
        if kind is ErrorType.NOT_LICENSED:
            progress.asked = episode.state.permit = False  # the scanner knows of no permit, or no Lease is held: ask anew
        if is_unclear(error):
            progress.unclear = True
            await episode.settle(options.DELETION_DEADLINE)
        if kind in HOPELESS:
            await self._node_writer.ask_for_a_person(episode.state.problem)
            await episode.rest(None, "a person's word")
            return
        progress.failures += not progress.asked
        if not progress.asked and progress.failures % TRIES_BEFORE_A_PERSON == 0:
            await self._node_writer.ask_for_a_person(
                f"the deletion came to nothing {progress.failures} times: {episode.state.problem}"
            )
        else:
            episode.enter(doing=f"will ask again: {episode.state.problem}")
        await episode.rest(pause, "before the deletion is asked for again")

    async def _permitted(self) -> EpisodeResult | None:
        """A deletion disrupts as a fencing does: the scanner lets so many at once (S14). Refused, it is asked again later."""
        request = self._request
        while not self.episode.state.permit:
            refused = await obtain_permit(
                self.episode,
                PermitRequest(
                    node=request.node,
                    workflow_id=workflow.info().workflow_id,
                    incident=self.episode.state.incident,
                    kind=Kind.REMEDIATION,
                    reason=request.reason,
                    node_uid=self._kept.node_uid,
                    ready=False,
                    by_person=self.episode.was_answered,
                ),
            )
            if not refused:
                break
            if (abort := self.episode.state.abort_asked) is not None:
                return await self._aborted(abort)
            self.episode.state.problem = f"no permit: {refused}"
            self.episode.enter(doing="waits before it asks for a permit again")
            await self.episode.rest(LONGEST_PAUSE, "before a permit is asked for again")
        self.episode.state.problem = ""
        self.episode.enter(phase=Phase.TERMINATING, doing="asks for the deletion of the machine")
        return None

    async def _aborted(self, abort: AbortRequest) -> EpisodeResult:
        """Our claim on the Node goes, however often it takes; a further abort leaves it (S35). Whether an answer that was lost
        has begun the deletion is looked up, as far as can be."""
        found: list[GiveUpResult] = []

        async def withdraw() -> None:
            found[:] = [await self._give_up(withdraw=True)]

        left = await withdraw_claim(self._node_writer, withdraw, PAUSE)
        going = not found[0].kept if found else self._progress.unclear
        when = "its deletion may have been asked for" if going else "its deletion was not asked for"
        message = f"{abort}; {when}{self._progress.left}{left}"
        return await self._end(Outcome.ABORTED, message)

    async def _give_up(self, *, withdraw: bool = False) -> GiveUpResult:
        request = self._request
        assert request.machine is not None, "checked when the workflow began"
        return await options.execute(
            PreservationActivities.give_up,
            GiveUpRequest(
                cluster=request.cluster,
                node=request.node if not request.node.startswith("machine/") else "",
                machine=request.machine,
                machine_uid=self._kept.machine_uid,
                node_uid=self._kept.node_uid,
                victim=request.node,
                incident=self.episode.state.incident,
                unhealthy=self._kept.unhealthy,
                withdraw=withdraw,
                holder=self.episode.state.holder,
                not_after=workflow.now() + options.ACT_WINDOW,
                released=(released := self._kept.hold is not None and self._kept.hold.released),
                word=self._kept.released if released else None,
            ),
            options.consequence(request.cluster),
            f"asks for the deletion of {request.machine.name}",
        )

    async def _go_back(self, found: GiveUpResult) -> NoReturn:
        """A person keeps it after all: what was asked for before the deletion wins (S27). A preservation needs no permit. What a
        health check has called failed is so until its Node is well: it would else be given back what it was cut off from."""
        request, episode, kept, why = self._request, self.episode, self._kept, found.kept
        await give_back_permit(episode, outcome=Outcome.RELEASED.value, problem=why)
        episode.note("hand-over", "back", why)
        kept.giving_up, kept.drained, kept.shown = None, None, None
        kept.unhealthy = "" if found.well else kept.unhealthy
        episode.state.kind, episode.state.reason, episode.state.control_plane = Kind.PRESERVATION, why, None
        raise NewHistory(
            PreservationHistory(
                cluster=request.cluster,
                node=request.node,
                machine=request.machine,
                reason=why,
                requester=request.requester,
                keep=False,
                holder=episode.state.holder,
            )
        )

    async def _end(self, outcome: Outcome, message: str) -> EpisodeResult:
        if self._kept.marked or self._kept.cutting_off.marked:
            await self._node_writer.remove_marks(UNMARK_PAUSE)
        return await close(self.episode, End(outcome=outcome, message=message), self._node_writer, about=None, leased=False)
