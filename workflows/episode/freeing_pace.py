"""Not too many pods a minute: a portion is asked of the scanner right before pods are freed, and waited for where there is none.

Only where the cluster has such a limit, which what is left of a workload tells (`Workload.per_minute`); the activity that frees
looks at it live and frees none without a portion. The rule is `policy/episode/freeing_pace.py`, whoever keeps the portions
`workflows/scanner/permits.py`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import AskPortion, EpisodeActivities
from activities.contracts.target import FreeCutRequest, FreeDumpingRequest, FreeRequest, Workload
from activities.errors import error_message
from policy.episode.freeing_pace import PortionAnswer, PortionRequest
from workflows.episode.episode import Episode
from workflows.episode.state import PacingProgress
from workflows.kit import options
from workflows.kit.interrupts import Unlicensed

Request = TypeVar("Request", FreeRequest, FreeCutRequest, FreeDumpingRequest)


class Pacing:
    """The portions of one part of an episode."""

    def __init__(self, episode: Episode, part: str, progress: PacingProgress) -> None:
        self._episode = episode
        self._part = part
        self._progress = progress

    @property
    def waited(self) -> timedelta:
        """How long it has waited for portions in all, which is no fault of what it frees."""
        return self._progress.waited

    async def bounded(self, request: Request, left: Workload) -> Request | None:
        """The request, for no more pods than may go now. None: none may, and that has been waited out: look and read anew."""
        self._has_waited()
        limit, pods = left.per_minute, left.pods - left.forced
        if limit is None or pods <= 0:
            return request
        answer = await self._ask(pods, limit)
        if answer.until is not None:
            self._episode.note("portion", "ok", f"{answer.pods} of {pods} pods may be freed now, {limit} in a minute")
            return replace(request, at_most=answer.pods, not_after=min(request.not_after, answer.until))
        if answer.again is None:
            raise Unlicensed(f"how many pods may be freed now is not known: {answer.problem}")
        self._progress.waits_since = now = workflow.now()
        self._episode.enter(doing=f"waits: no more than {limit} pods may be freed in a minute", until=answer.again)
        await self._episode.rest(max(answer.again - now, timedelta(0)), "until more pods may be freed")
        self._has_waited()
        return None

    def _has_waited(self) -> None:
        """A wait is over, which may have begun in an earlier history."""
        if self._progress.waits_since is not None:
            self._progress.waited += workflow.now() - self._progress.waits_since
            self._progress.waits_since = None

    async def _ask(self, pods: int, limit: int) -> PortionAnswer:
        self._progress.asked += 1
        request = PortionRequest(
            node=self._episode.state.node,
            incident=f"{self._episode.state.incident}/{self._part}",
            number=self._progress.asked,
            pods=pods,
            per_minute=limit,
        )
        try:
            answer: PortionAnswer = await workflow.execute_activity_method(
                EpisodeActivities.ask_portion,
                AskPortion(cluster=self._episode.state.cluster, portion=request),
                **(options.temporal_call() | {"summary": f"{self._part}: asks how many pods may be freed now"}),
            )
        except ActivityError as error:
            return PortionAnswer(problem=error_message(error))
        return answer
