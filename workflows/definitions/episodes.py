"""The workflows of episodes, each a shell round its story, and the workflow by which what was not repaired is recorded."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow

from policy.episode.messages import EpisodeResult, Kind, Phase, PreservationUpdate
from policy.episode.node_action import CIRCUIT_BREAKER, DEVICE_READS_ON, Verb, override_problem
from policy.history.spells import OBSERVATION, ObservationRecord
from policy.values.times import format_duration, written
from workflows.episode import commands
from workflows.episode.attestation import refused, require_name_and_reason
from workflows.episode.episode_workflow import NOT_ATTESTED, EpisodeWorkflow, opened
from workflows.episode.state import FencingHistory, PreservationHistory, PublisherState, RemediationHistory
from workflows.fencing.story import FencingStory, after_off
from workflows.kit.messages import AbortRequest, AcknowledgeRequest, ExtendRequest, PersonRequest, invalid_input
from workflows.preservation.story import PreservationStory
from workflows.remediation.after_preservation import GivingUpStory
from workflows.remediation.steps import FencingStep
from workflows.remediation.story import DELETION_GOES_ON, DELETION_MAY_GO_ON, RemediationStory


@workflow.defn(name="Fencing")
class Fencing(EpisodeWorkflow):
    """The workflow round `workflows/fencing/story.py`. Cancelling it is an abort."""

    @workflow.init
    def __init__(self, request: FencingHistory) -> None:
        reason = request.need.reason if request.need else request.reason
        shown = PublisherState(shows=True)
        super().__init__(opened(Kind.FENCING, request, reason=reason, permit=request.permit_granted, publisher_state=shown))
        self._story = FencingStory(replace(request, state=None), self.episode)

    @workflow.run
    async def run(self, request: FencingHistory) -> EpisodeResult:
        return await self.carry_out(self._story, request)

    def what_abort_means(self, request: AbortRequest) -> str:
        """Before power was touched, and after it."""
        return self._story.what_abort_means(request)

    def what_hold_stops(self) -> str:
        """Before power was touched, and after it."""
        return self._story.what_hold_stops

    def needs_permit(self) -> bool:
        """Not for what restores (S17)."""
        return not self._story.only_restores

    def stays_off(self) -> bool:
        """Once it gives back what it has added."""
        return self._story.stays_off

    def consequences(self) -> dict[Verb, str]:
        """A person may vouch that the machine is off."""
        comes, on = "has its pods started elsewhere (if it runs, data is corrupted)", self.episode.devices_on
        if on:
            comes = f"is refused while {on[0].endpoint} says on; with `--override {DEVICE_READS_ON}` it {comes}"
        found = {**super().consequences(), Verb.ACK_OFF: comes}
        if self.episode.is_held and self._story.wants_acknowledgement():
            found[Verb.RESUME] += "; `ack-off`, if you saw it off, is taken once no hold is left"
        return found

    def why_not(self, verb: Verb) -> str:
        """A person's word for off is of use while it waits for a person, and off has yet to be proven."""
        said, state = super().why_not(verb), self.episode.state
        if said or verb is not Verb.ACK_OFF or (self._story.wants_acknowledgement() and state.abort_asked is None):
            return said
        asks = state.phase is Phase.NEEDS_HUMAN and state.abort_asked is None
        this_one = f"asks about something else: {state.problem}" if asks else f"goes on by itself: {state.doing}"
        this_one = f"was {state.abort_asked}" if state.abort_asked is not None else this_one
        return f"{verb.value}: expected an episode that needs a person because off is not proven; this one {this_one}"

    @workflow.update(description="Say that you saw the machine off: it stands for the proof, so be sure that it is this one.")
    async def acknowledge_off(self, request: AcknowledgeRequest) -> str:
        """A person saw the machine off; stands for the proof (S8)."""
        said = {"question": request.question, "override": request.override}
        request = await self._verified(Verb.ACK_OFF, request, self._check_acknowledge_off, **said)
        if CIRCUIT_BREAKER in request.override and request.sealed is None:
            raise refused(NOT_ATTESTED)
        return commands.take_acknowledgement(self.episode, request)

    @acknowledge_off.validator
    def _check_acknowledge_off(self, request: AcknowledgeRequest) -> None:
        require_name_and_reason(request)
        if problem := override_problem(request.override, Verb.ACK_OFF):
            raise ValueError(f"override: {problem}")
        self.check(Verb.ACK_OFF, request.question)
        episode = self.episode
        if DEVICE_READS_ON not in request.override and episode.devices_on:
            on = episode.devices_on[0]
            read = format_duration(timedelta(seconds=(workflow.now() - on.at) // timedelta(seconds=1)))
            raise ValueError(
                f"ack-off: {on.endpoint} says on, read {read} ago: switch the machine off there or pull its plug, then "
                f"`nodewarden resume {episode.state.node} --question {episode.state.question}` reads it again; if the device is "
                f"wrong, or was read before you saw the machine off, add `--override {DEVICE_READS_ON}`"
            )


@workflow.defn(name="Remediation")
class Remediation(EpisodeWorkflow):
    """The workflow round `workflows/remediation/story.py`. Cancelling it is an abort. A preservation goes on here with the
    deletion of its machine (`workflows/remediation/after_preservation.py`)."""

    @workflow.init
    def __init__(self, request: RemediationHistory) -> None:
        reason = request.need.reason if request.need is not None else request.reason
        super().__init__(opened(Kind.REMEDIATION, request, reason=reason, permit=request.permit_granted))
        was_kept = self.episode.state.preservation is not None
        self._story = (
            GivingUpStory(replace(request, state=None), self.episode)
            if was_kept
            else RemediationStory(replace(request, state=None), self.episode)
        )

    @workflow.run
    async def run(self, request: RemediationHistory) -> EpisodeResult:
        return await self.carry_out(self._story, request)

    def what_hold_stops(self) -> str:
        """Of a step that switches power it is what it is of a fencing; after it others may come."""
        at = self._story.at if isinstance(self._story, RemediationStory) else None
        return (at.story.what_hold_stops if isinstance(at, FencingStep) else "") or super().what_hold_stops()

    def needs_permit(self) -> bool:
        """Not to have a machine switched on that a step has left off (S17)."""
        return not (isinstance(self._story, RemediationStory) and self._story.only_restores)

    def stays_off(self) -> bool:
        """Once it takes back what its steps have left."""
        return isinstance(self._story, RemediationStory) and self._story.stays_off

    def what_abort_means(self, request: AbortRequest) -> str:
        """Of a step that switches power it is what it is of a fencing, and of the machine that an earlier one has left off. A
        deletion can't be taken back."""
        if not self._story.deletes:
            means = self._what_it_means(request)
            return f"{means}; {DELETION_MAY_GO_ON}" if self._story.may_delete else means
        goes = DELETION_GOES_ON
        if isinstance(self._story, GivingUpStory):
            return f"{goes}, and the episode ends once it is gone"
        return f"{self._what_it_means(request)}; {goes}"

    def _what_it_means(self, request: AbortRequest) -> str:
        at, off = (self._story.at, self._story.left_off) if isinstance(self._story, RemediationStory) else (None, None)
        if isinstance(at, FencingStep) and (at.story.touched or off is None):
            return at.story.what_abort_means(request)
        if off is None:
            return super().what_abort_means(request)
        # One that a reset took back knows nothing of its machine.
        return off.story.what_abort_means(request) if off.story.touched else after_off(request, self.episode.state.node)


@workflow.defn(name="Preservation")
class Preservation(EpisodeWorkflow):
    @workflow.init
    def __init__(self, request: PreservationHistory) -> None:
        super().__init__(opened(Kind.PRESERVATION, request))
        self._story = PreservationStory(replace(request, state=None), self.episode)

    @workflow.run
    async def run(self, request: PreservationHistory) -> EpisodeResult:
        return await self.carry_out(self._story, request)

    def only_a_person_ends(self) -> str:
        """A machine that is kept is not given up by a program's word (S21)."""
        ends = "a cancellation is no person's word, and the machine stays kept"
        return f"{ends}: `nodewarden release {self.episode.state.node} --reason …` ends that"

    def what_abort_means(self, request: AbortRequest) -> str:  # noqa: ARG002
        """It ends as any episode does, which may be another thing than was meant."""
        return f"the preservation of {self.episode.state.node} ends, and nothing keeps its machine any longer"

    def consequences(self) -> dict[Verb, str]:
        """Nothing is kept for ever."""
        return {
            Verb.RELEASE: "ends it now; a machine that has failed is then replaced or repaired",
            Verb.EXTEND: "lets it end later",
            Verb.ISOLATE: "cuts the machine off from its volumes and its network once it has failed",
            **super().consequences(),
        }

    def why_not(self, verb: Verb) -> str:
        """Its end can't be moved once it ends."""
        said = super().why_not(verb)
        if not said and verb in {Verb.EXTEND, Verb.ISOLATE} and (why := self._story.ending):
            return f"{verb.value}: expected a preservation that goes on; this one ends: {why}"
        return said

    @workflow.signal(description="The scanner saw the objects change.")
    def look_again(self, update: PreservationUpdate) -> None:
        """The scanner says that the objects differ from what was last written."""
        self._story.take_update(update)

    @workflow.update(description="End the preservation now.")
    async def release(self, request: PersonRequest) -> str:
        """End the preservation now."""
        return self._story.take_release(await self._verified(Verb.RELEASE, request, self._check_release))

    @release.validator
    def _check_release(self, request: PersonRequest) -> None:
        require_name_and_reason(request)
        self.check(Verb.RELEASE)

    @workflow.update(description="Have it cut off from its volumes and its network while it is kept as failed.")
    async def isolate(self, request: PersonRequest) -> str:
        """Cut it off from its volumes and its network while it is kept as failed."""
        return self._story.take_isolation(await self._verified(Verb.ISOLATE, request, self._check_isolate))

    @isolate.validator
    def _check_isolate(self, request: PersonRequest) -> None:
        require_name_and_reason(request)
        self.check(Verb.ISOLATE)

    @workflow.update(description="Let it end later: so much later, or at a moment.")
    async def extend(self, request: ExtendRequest) -> str:
        """Let it end later: so much later, or at a moment."""
        said = {"until": request.until, "hold": request.hold, "shorten": request.shorten}
        request = await self._verified(Verb.EXTEND, request, self._check_extend, **said)
        return self._story.take_extension(request)

    @extend.validator
    def _check_extend(self, request: ExtendRequest) -> None:
        require_name_and_reason(request)
        self.check(Verb.EXTEND)
        if (request.until is None) is (request.hold is None):
            raise ValueError("extend: expected exactly one of until (a moment) and hold (a duration)")
        if request.hold is not None and request.hold <= timedelta(0):
            raise ValueError(f"hold: expected a duration above 0, got {format_duration(request.hold)}")
        until = self._story.extended_to(request)
        if until.tzinfo is None:
            raise ValueError("until: expected a moment with its time zone, such as 2026-11-24T09:30:00Z")
        if until <= workflow.now():
            raise ValueError(f"extend: expected a moment that is still to come, got {written(until)}")
        if why := self._story.why_not_extended(request):
            raise ValueError(f"extend: {why}")


@workflow.defn(name=OBSERVATION)
class RecordedObservation:
    """The workflow `Observation`, which ends in its first task: it returns the record that it is started with, if it bears the
    record's own id: by that no record is made twice."""

    @workflow.run
    async def run(self, record: ObservationRecord) -> ObservationRecord:
        try:
            expected = record.workflow_id
        except ValueError as error:
            expected, problem = "", str(error)
        else:
            problem = f"expected the workflow id {expected!r}"
        if workflow.info().workflow_id != expected:
            raise invalid_input(problem)
        return record
