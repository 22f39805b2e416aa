"""What every kind of episode has: its record, its phase as people see it, people's words to it, its permit, its waits.

The story of a kind (`workflows/fencing/story.py`) owns one `Episode` and tells it what it does; nothing here decides what to do
next. Its neighbour `workflows/definitions/scanner.py` is the other end of the permit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from activities.contracts.episodes import AskPermit, EpisodeActivities
from activities.contracts.target import LookResult, Target
from activities.errors import ErrorType, error_message, error_type
from policy.episode.messages import (
    Acknowledgement,
    EpisodeResult,
    EpisodeStatus,
    Kind,
    OffProof,
    Outcome,
    PathProof,
    Phase,
    RecordEntry,
    RestartProof,
)
from policy.episode.needs import Need, NeedKind
from policy.episode.observation import Observation
from policy.episode.permits import Decision, PermitAnswer, PermitRequest, Release
from policy.fence.config import Step
from policy.fence.kdump import KernelDead
from policy.objects.marks import NOTHING_ADDED, Added
from workflows.episode.publisher import Publisher
from workflows.kit import measuring, options, search
from workflows.kit.ids import scanner_id
from workflows.kit.interrupts import is_unclear, told_of
from workflows.kit.messages import AbortRequest, AcknowledgeRequest, PersonRequest

MAXIMUM_RECORD = 500
ASK_AGAIN_MAXIMUM = timedelta(minutes=10)
REASON_LENGTH = 200
"""Visibility on PostgreSQL keeps 255 characters of a keyword."""


class Episode:
    """State shared by all kinds. Fields are read by the story; they change only through the methods."""

    def __init__(self, *, kind: Kind, cluster: str, node: str, incident: str, reason: str) -> None:
        self.kind = kind
        self.cluster = cluster
        self.node = node
        self.incident = incident
        self.reason = reason
        self.cause = ""
        self.workloads: tuple[str, ...] = ()
        """What was seen to stand against the node when it was to be freed."""
        self.zone = ""
        self.started = workflow.now()
        self.phase = Phase.NEW
        self.step = ""
        self.doing = "begins"
        self.until: datetime | None = None
        self.problem = ""
        self.try_number = self.restarts = 0
        self.off_proof: OffProof | None = None
        self.restart_proof: RestartProof | None = None
        self.path_proofs: dict[str, PathProof] = {}
        self.kernel_dead: KernelDead | None = None
        self.added, self.freed = NOTHING_ADDED, False
        """What it has added to its node, for a mark that is gone. Whether pods may have been freed behind what stands cut: by a
        predecessor, or by an earlier step of a ladder."""
        self.permit = False
        self.queued = self.holder = self.requester = ""
        self.not_beyond: datetime | None = None
        """No rest lasts longer: at that moment the story has something else to do."""
        self.preserved_until: datetime | None = None
        self.vetoed_until: datetime | None = None
        """When the last veto ends by itself: somebody's lease of the node."""
        self.rung = ""
        """Which step of its ladder a remediation is at, for people; rung_until: when that has had its time."""
        self.rung_until: datetime | None = None
        self.machine = ""
        self.control_plane: bool | None = None
        """Of its node; None before that has been looked at."""
        self.owner, self.removes = "", False
        """What controls its Machine, and whether that is replaced."""
        self._target: Target | None = None
        self.publisher = Publisher(incident)
        self.record: list[RecordEntry] = []
        self.observation: Observation | None = None
        self.abort_asked: AbortRequest | None = None
        self.acknowledgement: Acknowledgement | None = None
        self._boot_of_word = ""
        self.held: PersonRequest | None = None
        self.resumed: PersonRequest | None = None
        self._news = self._heard = 0
        self._unseen = False
        """Whether the node has changed since it was last looked at."""
        self._moment = self.started

    @property
    def target(self) -> Target:
        """Whom every act is about; there is one once the target is pinned."""
        if self._target is None:
            raise RuntimeError("the target has not been pinned yet")
        return self._target

    @target.setter
    def target(self, target: Target) -> None:
        self._target = target

    def learns_of(self, added: Added | None) -> None:
        """What our mark tells of: it may be gone later, and what was added before us is ours to take away by now."""
        self.added |= added or NOTHING_ADDED

    def moment(self) -> datetime:
        """Now, and later than every moment handed out before. What was asked and answered is ordered by these: the clocks of the
        workers that did it may differ by minutes."""
        self._moment = max(workflow.now(), self._moment + timedelta(microseconds=1))
        return self._moment

    # What people see ------------------------------------------------------------------------------------------------

    def note(self, act: str, outcome: str, detail: str = "") -> None:
        """Add a line to the decision record; the oldest go when it is full, and a line says so."""
        if len(self.record) >= MAXIMUM_RECORD:
            del self.record[1 : len(self.record) - MAXIMUM_RECORD + 2]
        entry = RecordEntry(at=workflow.now(), step=self.step, act=act, outcome=outcome, detail=detail)
        self.record.append(entry)
        self.publisher.hear(entry)

    def enter(self, *, phase: Phase | None = None, step: Step | None = None, doing: str, until: datetime | None = None) -> None:
        """Say what the episode does now; kept true in the search attributes and on the workflow's page."""
        if phase is not None and phase is not self.phase:
            self.phase = phase
            self.note("phase", phase.value)
            measuring.entered(self.cluster, self.kind, phase)
            workflow.upsert_search_attributes([search.PHASE.value_set(phase.value)])
        if step is not None and step.value != self.step:
            self.step, self.try_number = step.value, 1
        self.doing = doing
        self.until = until
        self._show()
        if self._target is not None:
            self.publisher.show(self.status())

    def introduce(self, *, zone: str, reason: str) -> None:
        """Set the search attributes by which this episode is found, however it was started."""
        self.zone = zone
        self.reason = reason
        workflow.upsert_search_attributes(
            [
                search.CLUSTER.value_set(self.cluster),
                search.NODE.value_set(self.node),
                search.ZONE.value_set(zone),
                search.KIND.value_set(self.kind.value),
                search.PHASE.value_set(self.phase.value),
                search.REASON.value_set(reason[:REASON_LENGTH]),
            ]
        )
        self._show()

    def ended(self, outcome: Outcome, message: str) -> EpisodeResult:
        """The last line of the record, and the result, with what was proven on the way."""
        self.note("end", outcome.value, message)
        self.enter(phase=Phase.FINAL, doing=f"{outcome.value}: {message}")
        measuring.ended(self.cluster, self.kind, outcome, workflow.now() - self.started)
        return EpisodeResult(
            outcome=outcome,
            incident=self.incident,
            cluster=self.cluster,
            node=self.node,
            message=message,
            started=self.started,
            ended=workflow.now(),
            off_proof=self.off_proof,
            restart_proof=self.restart_proof,
            record=tuple(self.record),
            kernel_dead=self.kernel_dead,
        )

    def status(self) -> EpisodeStatus:
        """Answer of the `status` query."""
        return EpisodeStatus(
            incident=self.incident,
            cluster=self.cluster,
            node=self.node,
            kind=self.kind,
            phase=self.phase,
            step=self.step,
            doing=self.doing,
            reason=self.reason,
            started=self.started,
            zone=self.zone,
            try_number=self.try_number,
            restarts=self.restarts,
            problem=self.problem,
            off_proof=self.off_proof,
            restart_proof=self.restart_proof,
            path_proofs=tuple(self.path_proofs.values()),
            permit=self.permit,
            queued=self.queued,
            waiting_until=self.until,
            control_plane=self.control_plane,
            node_uid=self._target.pinned.uid if self._target else "",
            provider_id=self._target.pinned.provider_id if self._target else "",
            kernel_dead=self.kernel_dead,
            requester=self.requester,
            preserved_until=self.preserved_until,
            rung=self.rung,
            rung_until=self.rung_until,
            machine=self.machine,
        )

    def _show(self) -> None:
        lines = [
            f"**{self.kind.value} of `{self.node}`** ({self.cluster}, incident `{self.incident}`)",
            f"* phase **{self.phase.value}**, step {self.step or '-'}: {self.doing}",
            f"* reason: {self.reason or '-'}",
        ]
        if self.rung:
            lines.append(f"* step {self.rung} of its ladder")
        if self.until:
            lines.append(f"* until {self.until.isoformat(timespec='seconds')}")
        if self.off_proof:
            lines.append("* off proven")
        if self.problem:
            lines.append(f"* **problem: {self.problem}**")
        workflow.set_current_details("\n".join(lines))

    # What people and the scanner say --------------------------------------------------------------------------------

    def observe(self, observation: Observation) -> None:
        """The node changed (signal `observe` of the scanner). A level: the latest is all that counts."""
        self.observation = observation
        self._drop_a_word_about_another_boot(observation)
        self._unseen = True

    def _drop_a_word_about_another_boot(self, seen: Observation) -> None:
        """A person saw one boot of the machine off; of another one nobody has said anything (S6, S8)."""
        word = self.acknowledgement
        if word is None or not seen.present or seen.boot_id in {"", self._boot_of_word}:
            return
        self.acknowledgement = None
        self.note("acknowledge-off", "void", f"{word.who} saw boot {self._boot_of_word} off, and the node shows {seen.boot_id}")

    def take_abort(self, request: AbortRequest) -> str:
        """A person stops the episode; a repeated abort may still add `power_on`."""
        self.abort_asked = request
        self.note("abort", "asked", f"by {request.who}: {request.reason}" + (", power on" if request.power_on else ""))
        self._news += 1
        return f"abort of incident {self.incident} noted"

    def take_acknowledgement(self, request: AcknowledgeRequest) -> str:
        """A person vouches that the machine is off (S8)."""
        self.acknowledgement = Acknowledgement(who=request.who, why=request.reason, at=workflow.now())
        seen = self.observation
        self._boot_of_word = (seen.boot_id if seen is not None else "") or (self._target.pinned.boot_id if self._target else "")
        self.note("acknowledge-off", "given", f"by {request.who}: {request.reason}")
        self._news += 1
        return f"off of {self.node} acknowledged by {request.who}"

    def take_hold(self, request: PersonRequest) -> str:
        """Nothing destructive until `resume`."""
        self.held = request
        self.note("hold", "asked", f"by {request.who}: {request.reason}")
        self._news += 1
        return f"incident {self.incident} is held before its next destructive act"

    def take_resume(self, request: PersonRequest) -> str:
        """End a hold, or let a parked episode try again; a word for off that has not been used yet is taken back."""
        self.held = None
        if (word := self.acknowledgement) is not None:
            self.acknowledgement = None
            self.note("acknowledge-off", "taken back", f"{word.who}'s word, by {request.who}: {request.reason}")
        self.resumed = request
        self.note("resume", "asked", f"by {request.who}: {request.reason}")
        self._news += 1
        return f"incident {self.incident} goes on"

    def hear(self) -> None:
        """Something was said to the story itself: whoever rests looks again."""
        self._news += 1

    def hear_grant(self) -> None:
        """The scanner grants the permit that was queued for."""
        self.permit = True
        self._news += 1

    async def look(self, look: Callable[[], Awaitable[LookResult]]) -> LookResult:
        """A live look at the node: what the scanner has told of it before is no news any more."""
        self._unseen, unseen = False, self._unseen
        try:
            result = await look()
        except ActivityError:
            self._unseen = self._unseen or unseen
            raise
        self.observation = result.observation
        return result

    # Waiting --------------------------------------------------------------------------------------------------------

    async def rest(self, duration: timedelta | None, why: str) -> None:
        """A durable wait that any news (a person's word, a change of the node, a grant) ends early. None: without limit.

        News that came since the last rest ends this one at once: what is said while the story looks elsewhere is not lost.
        """
        self.publish()
        if self.not_beyond is not None:
            left = max(self.not_beyond - workflow.now(), timedelta(0))
            duration = left if duration is None else min(duration, left)
        with contextlib.suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._unseen or self._news != self._heard, timeout=duration, timeout_summary=why
            )
        self._heard, self._unseen = self._news, False

    async def pause(self, duration: timedelta, why: str) -> None:
        """A durable wait that nothing ends early."""
        self.publish()
        await workflow.sleep(duration, summary=why)

    def publish(self) -> None:
        """Have people told what is new, beside the story, instead of with its next act on the cluster."""
        if self._target is not None:
            self.publisher.publish(self._target)

    async def tell_the_rest(self) -> None:
        """Return once people are told all that is new, or can't be."""
        if self._target is not None:
            await self.publisher.finish(self._target)

    async def delay(self, duration: timedelta, doing: str, look: Callable[[], Awaitable[object]]) -> None:
        """Wait that long, looking again at every news: whoever comes back or is aborted meanwhile is not acted upon."""
        due = workflow.now() + duration
        while (remaining := due - workflow.now()) > timedelta(0):
            self.enter(doing=doing, until=due)
            await self.rest(remaining, doing)
            await look()

    @property
    def is_held(self) -> bool:
        """Whether a hold is to be obeyed; an abort ends it."""
        return self.held is not None and self.abort_asked is None

    async def wait_while_held(self) -> None:
        """A hold is obeyed after off too, before the next act."""
        while (held := self.held) is not None and self.is_held:
            self.enter(doing=f"held by {held.who}: {held.reason}")
            await self.rest(None, "held by a person")

    async def wait_out(self, act: str, what: str, error: ActivityError) -> bool:
        """Note a command that failed; `what` says in people's words what it was about. True: it may have been carried out all the
        same, and nothing of it is in flight any more, so that what is read next is what it has left (S34)."""
        unclear = is_unclear(error)
        self.note(act, "unclear" if unclear else "failed", told_of(what, error))
        if unclear:
            answered = error_type(error) is ErrorType.AMBIGUOUS  # its worker lives and has ended the act; else it may still begin
            await self.settle((timedelta(0) if answered else options.ACT_WINDOW) + options.IN_FLIGHT_MARGIN)
        return unclear

    async def settle(self, duration: timedelta) -> None:
        """Wait out an act that may still be in flight (S34). Nothing ends this early."""
        if duration > timedelta(0):
            await self.pause(duration, "waits out an act that may still be in flight")

    # The permit -----------------------------------------------------------------------------------------------------

    def permit_request(self, need: Need) -> PermitRequest:
        """What the scanner is asked for, once the target is pinned. What is not known of it is what guards it best (S15)."""
        pinned, seen = self.target.pinned, self.observation
        return PermitRequest(
            node=self.node,
            workflow_id=workflow.info().workflow_id,
            incident=self.incident,
            kind=self.kind,
            reason=need.reason,
            provider_id=pinned.provider_id,
            zone=pinned.zone,
            control_plane=self.control_plane is not False,
            node_uid=pinned.uid,
            owner=self.owner,
            removes=self.removes,
            ready=seen is None or seen.ready,
            by_person=need.kind is NeedKind.PERSON or self.has_a_persons_word,
        )

    @property
    def has_a_persons_word(self) -> bool:
        """Whether it waits for a person, and one has it go on."""
        asked = self.phase is Phase.NEEDS_HUMAN
        return asked and (self.resumed is not None or self.acknowledgement is not None)

    async def obtain_permit(self, request: PermitRequest, *, phase: Phase = Phase.QUEUED, gone: Callable[[], str] = str) -> str:
        """Ask the scanner for leave and wait in its queue. Returns "" once granted, else the refusal in a sentence.

        phase: as people see the episode meanwhile. gone: why nobody waits any more, "" while somebody does.
        """
        self.enter(phase=phase, doing="asks the scanner for a permit")
        pause = timedelta(minutes=1)
        while True:
            answer = await self._ask(request)
            self.queued = answer.reason if answer.decision is Decision.QUEUED else ""
            if answer.decision is Decision.REFUSED:
                return answer.reason
            if answer.decision is Decision.GRANTED:
                self.permit = True
            if not self.permit and self.abort_asked is None:
                self.enter(doing=f"waits for a permit: {answer.reason}")
                await self.rest(pause, "waits for a permit")
                pause = min(pause * 2, ASK_AGAIN_MAXIMUM)
            if self.permit:
                self.queued = ""
                return ""
            if self.abort_asked is not None:
                return "aborted while it waited for a permit"
            if reason := gone():
                return reason

    async def _ask(self, request: PermitRequest) -> PermitAnswer:
        """Ask once. Asking again keeps the place in the queue, and finds a scanner that has forgotten us."""
        try:
            answer: PermitAnswer = await workflow.execute_activity_method(
                EpisodeActivities.request_permit,
                AskPermit(cluster=self.cluster, permit=request),
                **(options.temporal_call() | {"summary": f"asks for a permit to disrupt {self.node}"}),
            )
        except ActivityError as error:
            answer = PermitAnswer(decision=Decision.REFUSED, reason=error_message(error))
        self.note("permit", answer.decision.value, answer.reason)
        self.holder = answer.holder or self.holder
        return answer

    async def give_back_permit(self, release: Release) -> None:
        """Tell the scanner, also that nobody waits for one any more; a failed signal is swallowed because the scanner also
        describes its holders."""
        self.permit, self.queued = False, ""
        uid = self._target.pinned.uid if self._target else ""
        release = replace(release, cause=self.cause, workloads=self.workloads, node_uid=uid, vetoed_until=self.vetoed_until)
        scanner = workflow.get_external_workflow_handle(scanner_id(self.cluster))
        try:
            await scanner.signal("release", release)
        except (ApplicationError, FailureError) as error:
            workflow.logger.warning("the scanner did not hear of the release: %s", error)
