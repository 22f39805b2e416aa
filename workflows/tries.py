"""How often a step is tried, and what does not count as a try.

The story says what a step does; the plan says how often. What happens once the tries are used up is the story's decision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow

from policy.episodes import Step
from policy.plan import FencingPlan
from workflows.episode import Episode
from workflows.turns import Hopeless, ProofLost, StepFailed, Unlicensed


class Tries:
    """Carries out steps as often as the plan allows. `before_next` is asked before every further try, and may raise a turn."""

    def __init__(self, episode: Episode, plan: FencingPlan, *, before_next: Callable[[], Awaitable[None]]) -> None:
        self._episode = episode
        self._plan = plan
        self._before_next = before_next

    async def carry_out(
        self, step: Step, act: Callable[[], Awaitable[None]], *, tries: int | None = None, restores: bool = False
    ) -> None:
        """The last failure is the step's. tries: None, as often as the plan says for every step. restores: it is what an abort
        may have asked for, so that this abort ends no try.

        Waiting for the cluster Lease, or for an API that refuses us, uses up patience, not tries."""
        tries = tries or self._plan.tries
        number = 1
        waited: defaultdict[type[Unlicensed], timedelta] = defaultdict(timedelta)  # each kind of waiting has its own patience
        while True:
            self._episode.step, self._episode.try_number = step.value, number
            try:
                await act()
            except Unlicensed as turn:
                if waited[type(turn)] >= turn.patience:
                    raise Hopeless(turn.reason) from turn
                self._episode.enter(doing=f"{turn.waits}: {turn.reason}")
                began = workflow.now()
                await self._episode.rest(turn.pause, "until the licence is looked at again")
                waited[type(turn)] += workflow.now() - began
            except StepFailed as failed:
                self._episode.problem = failed.reason
                self._episode.note(step.value, "failed", f"try {number} of {tries}: {failed.reason}")
                if number == tries or isinstance(failed, ProofLost):
                    raise
                self._episode.enter(doing=f"will try again: {failed.reason}")
                await self._episode.rest(self._plan.retry_interval, f"before try {number + 1} of {step.value}")
                number += 1
                abort = self._episode.abort_asked
                if not (restores and abort is not None and abort.power_on):
                    await self._before_next()
            else:
                self._episode.problem = ""
                return
