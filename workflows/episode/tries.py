"""How long an episode waits for what passes by itself before it asks a person (`Patience`), how often a step is tried, and what
does not count as a try (`Tries`).

The plan says how often; the story decides what happens once the tries are used up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow

from policy.fence.config import FenceStep
from policy.fence.plan import FencingPlan
from workflows.episode.episode import Episode
from workflows.episode.state import Undertaking
from workflows.kit.interrupts import Interrupt, LicenceMissing, NonRetryable, ProofLost, StepFailed, Unlicensed


class Patience:
    """What was waited within one undertaking. Each kind of waiting has its own patience: a minute of refusals takes nothing from
    the half hour for the cluster Lease."""

    def __init__(self, episode: Episode, under: Undertaking) -> None:
        self._episode = episode
        self._under = under
        self._end_wait()

    def is_over(self, interrupt: Unlicensed) -> bool:
        """Whether this kind has been waited for as long as it may."""
        return self._under.waited.get(type(interrupt).__name__, timedelta(0)) >= interrupt.patience

    @property
    def waited(self) -> timedelta:
        """How long was waited, of every kind."""
        return sum(self._under.waited.values(), timedelta(0))

    async def rest(self, interrupt: Interrupt, duration: timedelta, why: str) -> None:
        """A rest of the episode, which counts as waiting of this kind for as long as it took."""
        self._episode.new_standstill(self._under)  # what was before is not taken off
        self._under.begin_wait(type(interrupt).__name__, workflow.now())
        await self._episode.rest(duration, why)
        self._end_wait()

    def _end_wait(self) -> None:
        """How long no worker carried us out is no waiting: the refusal may be over since (S37)."""
        self._under.end_wait(workflow.now() - self._episode.new_standstill(self._under))


class Tries:
    """Carries out steps as often as the plan allows. `before_next` is asked before every further try, and may raise an
    interrupt."""

    def __init__(self, episode: Episode, plan: FencingPlan, *, before_next: Callable[[], Awaitable[None]]) -> None:
        self._episode = episode
        self._plan = plan
        self._before_next = before_next

    async def carry_out(
        self, step: FenceStep, act: Callable[[], Awaitable[None]], *, tries: int | None = None, restores: bool = False
    ) -> None:
        """The last failure is the step's. tries: None, as often as the plan says for every step. restores: it is what an abort
        may have asked for, so that this abort ends no try.

        Waiting for the cluster Lease, or for an API that refuses us, uses up patience, not tries."""
        tries = tries or self._plan.tries
        with self._episode.undertaking(f"tries of {step.value}") as under:
            patience = Patience(self._episode, under)
            while True:
                number = under.failures + 1
                self._episode.state.step, self._episode.state.try_number, self._episode.state.tries = step.value, number, tries
                try:
                    await act()
                except Unlicensed as interrupt:
                    if patience.is_over(interrupt):
                        missing = LicenceMissing if type(interrupt) is Unlicensed else NonRetryable
                        raise missing(interrupt.reason) from interrupt
                    self._episode.enter(doing=f"{interrupt.waits}: {interrupt.reason}")
                    await patience.rest(interrupt, interrupt.pause, "until the licence is looked at again")
                except StepFailed as failed:
                    self._episode.state.problem = failed.reason
                    self._episode.note(
                        step.value, "failed", f"try {number} of {tries}: {failed.reason}", numbers={"try": number, "tries": tries}
                    )
                    if number == tries or isinstance(failed, ProofLost):
                        raise
                    under.failures = number
                    self._episode.enter(doing=f"will try again: {failed.reason}")
                    await self._episode.rest(self._plan.retry_interval, f"before try {number + 1} of {step.value}")
                    abort = self._episode.state.abort_asked
                    if not (restores and abort is not None and abort.power_on):
                        await self._before_next()
                else:
                    self._episode.state.problem, self._episode.state.tries = "", 0
                    return
