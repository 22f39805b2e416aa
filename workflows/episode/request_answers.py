"""An episode answers the object that asked for it, from beginning to end; without such an object it answers nobody.

Telling how things go never holds the story up. The first word and the last are different: without the first whoever asked does
not know that his wish is in hand, and without the last the scanner would find a wish without an answer and fence the node again.
What each stage means is `policy/episode/fencing_requests.py`.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.target import AnswerRequest, AnswerResult, TargetActivities
from activities.errors import error_message
from policy.episode.fencing_requests import RequestAnswer, Stage, last_stage
from policy.episode.messages import Outcome
from policy.episode.needs import Need, NeedKind
from workflows.episode.episode import Episode
from workflows.episode.node_writes import Bookkeeping
from workflows.episode.state import FencingProgress
from workflows.kit import options
from workflows.kit.interrupts import NeedGone, as_interrupt

PAUSE = timedelta(seconds=5)


class Answering:
    """The conditions of one object, as far as this episode is their author."""

    def __init__(self, episode: Episode, need: Need, desk: Bookkeeping, progress: FencingProgress) -> None:
        self._episode = episode
        self._desk = desk
        self._about = need.check if need.kind is NeedKind.FOREIGN_OBJECT else None
        self._uid = need.object_uid
        self._progress = progress

    async def begin(self) -> None:
        """The wish is in hand. Raises the interrupt: an object that can't be answered is not acted upon."""
        if self._about is None:
            return
        with as_interrupt(f"{self._about.key} can't be answered"):
            result = await self._write(Stage.STARTED, f"nodewarden fences the node, incident {self._episode.state.incident}")
        if result.withdrawn:
            raise NeedGone(result.withdrawn)
        self._progress.answered = Stage.STARTED

    async def say(self, stage: Stage, message: str) -> None:
        """How far it has come. A success that was told is not taken back."""
        if self._about is None or self._progress.answered is Stage.FINISHED:
            return
        self._progress.answered = stage
        try:
            await self._write(stage, message, patiently=False)
        except ActivityError as error:
            self._episode.note("answer", "failed", error_message(error))

    async def finish(self, outcome: Outcome, message: str) -> None:
        """The last word, however long the API is away; rights that nobody will ever give end with a person's abort."""
        if self._about is None:
            return
        about, stage = self._about, last_stage(outcome, self._progress.answered)

        async def answer() -> None:
            with as_interrupt(f"{about.key} can't be answered"):
                result = await self._write(stage, message)
            self._episode.note("answer", result.withdrawn or stage.value, message)

        self._episode.enter(doing=f"answers {about.key}")
        await self._desk.insist("answer", answer, failing=f"{about.key} can't be answered", pause=PAUSE, abort_ends=True)

    async def _write(self, stage: Stage, message: str, *, patiently: bool = True) -> AnswerResult:
        assert self._about is not None, "somebody asks"
        cluster = self._episode.target.cluster
        answer = RequestAnswer(about=self._about, uid=self._uid, stage=stage, message=message)
        request = AnswerRequest(target=self._episode.target, answer=answer)
        config = options.cluster_write(cluster) if patiently else options.report(cluster)
        return await workflow.execute_activity_method(
            TargetActivities.answer_request, request, **(config | {"summary": f"answers {self._about.key}: {stage.value}"})
        )
