"""The Remediation workflow: the shell round `workflows/remediation/story.py`, or `workflows/remediation/disposal.py`."""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

from policy.episode.messages import EpisodeResult, Kind
from workflows.episode.conversation import EpisodeConversation, opened
from workflows.episode.state import RemediationHistory
from workflows.fencing.story import after_off
from workflows.kit.messages import AbortRequest
from workflows.remediation.disposal import GivingUpStory
from workflows.remediation.fencing_step import FencingStep
from workflows.remediation.story import RemediationStory


@workflow.defn(name="Remediation")
class Remediation(EpisodeConversation):
    """The workflow round the story. Cancelling it is an abort. A preservation goes on here with the deletion of its machine."""

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

    def stays_off(self) -> bool:
        """Once it takes back what its steps have left."""
        return isinstance(self._story, RemediationStory) and self._story.stays_off

    def what_abort_means(self, request: AbortRequest) -> str:
        """Of a step that switches power it is what it is of a fencing, and of the machine that an earlier one has left off. A
        deletion can't be taken back."""
        if not self._story.deletes:
            return self._what_it_means(request)
        goes = "the deletion of its machine was asked for and goes on"
        if isinstance(self._story, GivingUpStory):
            return f"{goes}, and the episode ends once it is gone"
        return f"{self._what_it_means(request)}; {goes}"

    def _what_it_means(self, request: AbortRequest) -> str:
        at, off = (self._story.at, self._story.left_off) if isinstance(self._story, RemediationStory) else (None, None)
        if isinstance(at, FencingStep) and (at.story.touched or off is None):
            return at.story.what_abort_means(request)
        return super().what_abort_means(request) if off is None else after_off(request, self.episode.state.node)
