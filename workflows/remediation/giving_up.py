"""Giving up: what becomes of a machine that was preserved, once its time has come: its Machine is deleted, and it is replaced.

A preservation hands it over to `Remediation` (`workflows/remediation/story.py`), which awaits this story instead of a ladder. The
look before the request is live and the last word: somebody who asks for the machine to be preserved gets it back into
preservation (S27).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.preservation import GiveUpRequest, GiveUpResult, PreservationActivities
from activities.contracts.target import Target
from activities.errors import ErrorType, error_message, error_type
from policy.episode.messages import (
    EpisodeResult,
    Kind,
    Outcome,
    Phase,
    Pinned,
    PreservationInput,
    PreservationState,
    RemediationInput,
)
from policy.episode.permits import PermitRequest, Release
from workflows.episode.bookkeeping import UNMARK_PAUSE, Bookkeeping
from workflows.episode.episode import Episode
from workflows.kit import handing_over, options
from workflows.kit.interrupts import is_unclear
from workflows.kit.messages import AbortRequest

LOOK_AGAIN = timedelta(seconds=20)
PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=5)
TRIES_BEFORE_A_PERSON = 10
"""After so many requests in a row that came to nothing, half an hour about, a person is told, and the permit is another's."""

HOPELESS = frozenset({ErrorType.NOT_SUPPORTED, ErrorType.INVALID_CONFIG, ErrorType.UNAUTHORIZED})


class GivingUpStory:
    """The deletion of one Machine."""

    def __init__(self, request: RemediationInput, machine_uid: str) -> None:
        self._request = request
        self._machine_uid = machine_uid
        incident = request.incident or workflow.uuid4().hex[:12]
        self.episode = Episode(
            kind=Kind.REMEDIATION, cluster=request.cluster, node=request.node, incident=incident, reason=request.reason
        )
        self.episode.started = request.started or workflow.now()
        self.episode.record += request.record
        self.episode.holder = request.holder
        self.episode.control_plane = False  # a member's deletion only a ladder may ask for: here it is refused
        if request.machine is not None:
            self.episode.machine = f"{request.machine.namespace}/{request.machine.name}"
        self._desk = Bookkeeping(self.episode)
        self._asked = request.asked
        self.episode.permit = request.asked or request.permit_granted
        self._unclear = request.unclear
        """Whether the deletion was asked for, and whether it may have been for all that we know: an answer was lost."""
        info = workflow.info()
        self.episode.target = Target(
            cluster=request.cluster,
            pinned=Pinned(node=request.node, uid=request.node_uid),
            incident=incident,
            kind=Kind.REMEDIATION.value,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
        )

    async def run(self) -> EpisodeResult | PreservationInput | RemediationInput:
        """Ask for the deletion, and follow it until the Machine is gone, which a finalizer may hold up for days."""
        self.episode.introduce(zone="", reason=self.episode.reason)
        self.episode.enter(phase=Phase.TERMINATING, doing="asks for the deletion of the machine")
        pause, tries = PAUSE, 0
        while True:
            if (abort := self.episode.abort_asked) is not None and not self._asked:
                return await self._aborted(abort)
            if not self._asked and not self.episode.permit:
                if refused := await self._permitted():
                    return refused
                continue  # what was said meanwhile is heard first (S20)
            if self.episode.held is not None and not self._asked:
                await self.episode.wait_while_held()
                continue
            try:
                found = await self._give_up()
            except ActivityError as error:
                self.episode.problem = error_message(error)
                self.episode.note("delete-machine", "failed", self.episode.problem)
                if error_type(error) is ErrorType.TARGET_CHANGED:
                    return await self._end(Outcome.REPLACED, self.episode.problem)
                if error_type(error) is ErrorType.NOT_LICENSED:
                    self._asked = self.episode.permit = False  # the scanner knows of no permit, or no Lease is held: ask anew
                if is_unclear(error):
                    self._unclear = True
                    await self.episode.settle(options.DELETION_DEADLINE)
                if error_type(error) in HOPELESS:
                    await self._desk.ask_for_a_person(self.episode.problem)
                    await self.episode.rest(None, "a person's word")
                    continue
                if self._may_roll:
                    return self._rolled()
                tries += not self._asked
                if not self._asked and tries % TRIES_BEFORE_A_PERSON == 0:
                    await self._desk.ask_for_a_person(f"the deletion came to nothing {tries} times: {self.episode.problem}")
                else:
                    self.episode.enter(doing=f"will ask again: {self.episode.problem}")
                await self.episode.rest(pause, "before the deletion is asked for again")
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause, tries, self.episode.problem, self._unclear = PAUSE, 0, "", False
            if found.gone:
                return await self._end(Outcome.REPLACED, "the machine was given up; its owner makes another one")
            if found.kept:
                return await self._back(found)
            if not self._asked:
                self._asked = True
                self.episode.note("delete-machine", "asked", found.detail)
            if handing_over.roll_is_due():
                return self._rolled()
            self.episode.enter(phase=Phase.TERMINATING, doing="waits until the machine is gone")
            await self.episode.rest(LOOK_AGAIN, "until the machine is looked for again")

    async def _permitted(self) -> EpisodeResult | None:
        """A deletion disrupts as a fencing does: the scanner lets so many at once (S14). Refused, it is asked again later."""
        request = self._request
        while not self.episode.permit:
            refused = await self.episode.obtain_permit(
                PermitRequest(
                    node=request.node,
                    workflow_id=workflow.info().workflow_id,
                    incident=self.episode.incident,
                    kind=Kind.REMEDIATION,
                    reason=request.reason,
                    node_uid=request.node_uid,
                    ready=False,
                    by_person=self.episode.has_a_persons_word,
                )
            )
            if not refused:
                break
            if (abort := self.episode.abort_asked) is not None:
                return await self._aborted(abort)
            self.episode.problem = f"no permit: {refused}"
            self.episode.enter(doing="waits before it asks for a permit again")
            await self.episode.rest(LONGEST_PAUSE, "before a permit is asked for again")
        self.episode.problem = ""
        self.episode.enter(phase=Phase.TERMINATING, doing="asks for the deletion of the machine")
        return None

    async def _aborted(self, abort: AbortRequest) -> EpisodeResult:
        """Our claim on the Node goes. Whether an answer that was lost has begun the deletion is looked up, as far as can be."""
        try:
            found = await self._give_up(withdraw=True)
            going = not found.kept
        except ActivityError as error:
            self.episode.note("delete-machine", "claim left", error_message(error))
            going = self._unclear
        when = "though its deletion may have been asked for" if going else "and its deletion was not asked for"
        return await self._end(Outcome.ABORTED, f"aborted by {abort.who} ({abort.reason}), {when}")

    async def _give_up(self, *, withdraw: bool = False) -> GiveUpResult:
        request = self._request
        assert request.machine is not None, "checked when the workflow began"
        return await workflow.execute_activity_method(
            PreservationActivities.give_up,
            GiveUpRequest(
                cluster=request.cluster,
                node=request.node if not request.node.startswith("machine/") else "",
                machine=request.machine,
                machine_uid=self._machine_uid,
                node_uid=request.node_uid,
                victim=request.node,
                incident=self.episode.incident,
                unhealthy=request.unhealthy,
                withdraw=withdraw,
                holder=self.episode.holder,
                not_after=workflow.now() + options.ACT_WINDOW,
            ),
            **(options.deletion(request.cluster) | {"summary": f"asks for the deletion of {request.machine.name}"}),
        )

    async def _back(self, found: GiveUpResult) -> PreservationInput:
        """Somebody keeps it after all: what was asked for before the deletion wins (S27). A preservation needs no permit. What a
        health check has called failed is so until its Node is well: it would else be given back what it was cut off from."""
        request, why = self._request, found.kept
        await self.episode.give_back_permit(
            Release(node=self.episode.node, incident=self.episode.incident, outcome=Outcome.RELEASED.value, problem=why)
        )
        self.episode.note("hand-over", "back", why)
        return PreservationInput(
            cluster=request.cluster,
            node=request.node,
            machine=request.machine,
            reason=why,
            requester=request.requester,
            incident=self.episode.incident,
            keep=False,
            unhealthy="" if found.well else request.unhealthy,
            holder=self.episode.holder,
            state=PreservationState(
                started=self.episode.started,
                record=tuple(self.episode.record),
                node_uid=request.node_uid,
                machine_uid=self._machine_uid,
                marked=request.marked,
                isolated=request.isolated,
            ),
        )

    @property
    def _may_roll(self) -> bool:
        """Whether a new history may begin; a word that is not carried out yet would be lost with this one."""
        return handing_over.roll_is_due() and self.episode.abort_asked is None and self.episode.held is None

    def _rolled(self) -> RemediationInput:
        return replace(
            self._request,
            incident=self.episode.incident,
            holder=self.episode.holder,
            asked=self._asked,
            unclear=self._unclear,
            permit_granted=self.episode.permit,
            started=self.episode.started,
            record=tuple(self.episode.record),
        )

    async def _end(self, outcome: Outcome, message: str) -> EpisodeResult:
        if self._request.marked:
            await self._desk.remove_marks(UNMARK_PAUSE)
        await self.episode.give_back_permit(
            Release(node=self.episode.node, incident=self.episode.incident, outcome=outcome.value, problem=message)
        )
        return self.episode.ended(outcome, message)
