"""The Preservation workflow: the shell round `workflows/preservation/story.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow

from policy.episode.messages import EpisodeResult, Kind, PreservationUpdate
from policy.episode.operator_commands import Verb
from policy.values.times import format_duration, written
from workflows.episode.attestation import require_name_and_reason
from workflows.episode.conversation import EpisodeConversation, opened
from workflows.episode.state import PreservationHistory
from workflows.kit.messages import AbortRequest, ExtendRequest, PersonRequest
from workflows.preservation.story import PreservationStory


@workflow.defn(name="Preservation")
class Preservation(EpisodeConversation):
    """The workflow round the story. Cancelling it is a release."""

    @workflow.init
    def __init__(self, request: PreservationHistory) -> None:
        super().__init__(opened(Kind.PRESERVATION, request))
        self._story = PreservationStory(replace(request, state=None), self.episode)

    @workflow.run
    async def run(self, request: PreservationHistory) -> EpisodeResult:
        return await self.carry_out(self._story, request)

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

    def why_not(self, word: Verb) -> str:
        """Its end can't be moved once it ends."""
        said = super().why_not(word)
        if not said and word in {Verb.EXTEND, Verb.ISOLATE} and (why := self._story.ending):
            return f"{word.value}: expected a preservation that goes on; this one ends: {why}"
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
        if (ends := self._story.ends) is not None and until < ends and not request.shorten:
            raise ValueError(
                f"extend: expected a moment after {written(ends)}, when it ends now, got {written(until)}; "
                "to end it earlier say so (shorten, --shorten)"
            )
