"""The Fencing workflow: the shell round `workflows/fencing/story.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow

from policy.episode.messages import EpisodeResult, Kind
from policy.episode.operator_commands import CIRCUIT_BREAKER, DEVICE_READS_ON, Verb, override_problem
from policy.values.times import format_duration
from workflows.episode.attestation import refused, require_name_and_reason
from workflows.episode.conversation import NOT_ATTESTED, EpisodeConversation, opened
from workflows.episode.state import FencingHistory, PublisherState
from workflows.fencing.story import FencingStory
from workflows.kit.messages import AbortRequest, AcknowledgeRequest


@workflow.defn(name="Fencing")
class Fencing(EpisodeConversation):
    """The workflow round the story. Cancelling it is an abort."""

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

    def stays_off(self) -> bool:
        """Once it gives back what it has added."""
        return self._story.stays_off

    def consequences(self) -> dict[Verb, str]:
        """A person may vouch that the machine is off."""
        comes, on = "has its pods started elsewhere (if it runs, data is corrupted)", self.episode.devices_on
        if on:
            comes = f"is refused while {on[0].endpoint} says on; with `--override {DEVICE_READS_ON}` it {comes}"
        return {**super().consequences(), Verb.ACK_OFF: comes}

    def why_not(self, word: Verb) -> str:
        """A person's word for off is of use while it waits for a person, and off has yet to be proven."""
        if word is not Verb.ACK_OFF or self.episode.is_held:
            return super().why_not(word)
        if self._story.wants_acknowledgement() and self.episode.state.abort_asked is None:
            return ""
        doing = f"{self.episode.state.phase.value}, {self.episode.state.doing}"
        return f"{word.value}: expected an episode that needs a person because off is not proven; this one: {doing}"

    @workflow.update(description="Say that you saw the machine off: it stands for the proof, so be sure that it is this one.")
    async def acknowledge_off(self, request: AcknowledgeRequest) -> str:
        """A person saw the machine off; stands for the proof (S8)."""
        said = {"question": request.question, "override": request.override}
        request = await self._verified(Verb.ACK_OFF, request, self._check_acknowledge_off, **said)
        if CIRCUIT_BREAKER in request.override and request.sealed is None:
            raise refused(NOT_ATTESTED)
        return self.episode.take_acknowledgement(request)

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
