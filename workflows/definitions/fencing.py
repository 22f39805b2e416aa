"""The Fencing workflow: the shell round `workflows/fencing/story.py`."""

from __future__ import annotations

import asyncio

from temporalio import workflow

from policy.episode.messages import EpisodeResult, FencingInput
from workflows.episode.conversation import EpisodeConversation, by_a_person
from workflows.fencing.story import FencingStory
from workflows.kit.messages import AbortRequest, AcknowledgeRequest


@workflow.defn(name="Fencing")
class Fencing(EpisodeConversation):
    """The workflow round the story. Cancelling it is an abort: it undoes what it did, and ends as `aborted`."""

    @workflow.init
    def __init__(self, request: FencingInput) -> None:
        self._story = FencingStory(request)
        super().__init__(self._story.episode)

    @workflow.run
    async def run(self, request: FencingInput) -> EpisodeResult:
        self.check_identity(request.cluster, request.node)
        story = asyncio.create_task(self._to_the_end())
        while not story.done():
            try:
                await asyncio.shield(story)
            except asyncio.CancelledError:  # however often it comes: what was done is undone before the end (S35)
                self.episode.take_abort(AbortRequest(who="Temporal", reason="the workflow was cancelled"))
        return story.result()

    async def _to_the_end(self) -> EpisodeResult:
        result = await self._story.run()
        await self.all_is_said()
        return result

    def what_abort_means(self, request: AbortRequest) -> str:
        """Before power was touched, and after it."""
        return self._story.what_abort_means(request)

    @workflow.update
    def acknowledge_off(self, request: AcknowledgeRequest) -> str:
        """A person saw the machine off; stands for the proof (S8)."""
        return self.episode.take_acknowledgement(request)

    @acknowledge_off.validator
    def _check_acknowledge_off(self, request: AcknowledgeRequest) -> None:
        by_a_person(request.who, request.reason)
        if not self._story.wants_acknowledgement():
            doing = f"{self.episode.phase.value}, {self.episode.doing}"
            raise ValueError(
                f"acknowledge_off: expected an episode that needs a person because off is not proven; this one: {doing}"
            )
