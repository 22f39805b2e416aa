"""The Remediation workflow: the shell round `workflows/remediation/story.py` and `workflows/remediation/giving_up.py`."""

from __future__ import annotations

import asyncio

from temporalio import workflow

from policy.episode.messages import EpisodeResult, Kind, PreservationInput, RemediationInput
from workflows.episode.conversation import EpisodeConversation
from workflows.fencing.endings import after_off
from workflows.kit import handing_over
from workflows.kit.messages import AbortRequest
from workflows.remediation.fencing_step import FencingStep
from workflows.remediation.giving_up import GivingUpStory
from workflows.remediation.story import RemediationStory


@workflow.defn(name="Remediation")
class Remediation(EpisodeConversation):
    """The workflow round the story. Cancelling it is an abort."""

    @workflow.init
    def __init__(self, request: RemediationInput) -> None:
        handed_over = bool(request.machine_uid) and request.ladder is None and request.need is None
        self._story = GivingUpStory(request, request.machine_uid) if handed_over else RemediationStory(request)
        super().__init__(self._story.episode)

    @workflow.run
    async def run(self, request: RemediationInput) -> EpisodeResult:
        self.check_identity(request.cluster, request.node)
        result = await self._to_the_end()
        if isinstance(result, EpisodeResult):
            return result
        kind = Kind.REMEDIATION if isinstance(result, RemediationInput) else Kind.PRESERVATION
        raise handing_over.go_on_as(kind, result, incident=self.episode.incident)

    def what_abort_means(self, request: AbortRequest) -> str:
        """Of a step that switches power it is what it is of a fencing, and of the machine that an earlier one has left off."""
        at, off = (self._story.at, self._story.left_off) if isinstance(self._story, RemediationStory) else (None, None)
        if isinstance(at, FencingStep) and (at.touched or off is None):
            return at.what_abort_means(request)
        return super().what_abort_means(request) if off is None else after_off(request, self.episode.node)

    async def _to_the_end(self) -> EpisodeResult | PreservationInput | RemediationInput:
        story = asyncio.create_task(self._until_all_is_said())
        while not story.done():
            try:
                await asyncio.shield(story)
            except asyncio.CancelledError:  # however often it comes: what was set going is taken back before the end (S35)
                self.episode.take_abort(AbortRequest(who="Temporal", reason="the workflow was cancelled"))
        return story.result()

    async def _until_all_is_said(self) -> EpisodeResult | PreservationInput | RemediationInput:
        result = await self._story.run()
        await self.all_is_said()
        return result
