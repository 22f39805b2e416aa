"""How long an episode waits for what passes by itself, before a person is asked."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from workflows.episode.episode import Episode
from workflows.episode.state import Undertaking
from workflows.kit.interrupts import Interrupt, Unlicensed


class Patience:
    """What was waited within one undertaking. Each kind of waiting has its own patience: a minute of refusals takes nothing from
    the half hour for the cluster Lease."""

    def __init__(self, episode: Episode, under: Undertaking) -> None:
        self._episode = episode
        self._under = under
        self._has_waited()

    def is_over(self, interrupt: Unlicensed) -> bool:
        """Whether this kind has been waited for as long as it may."""
        return self._under.waited.get(type(interrupt).__name__, timedelta(0)) >= interrupt.patience

    async def rest(self, interrupt: Interrupt, duration: timedelta, why: str) -> None:
        """A rest of the episode, which counts as waiting of this kind for as long as it took."""
        self._under.waits_for, self._under.waits_since = type(interrupt).__name__, workflow.now()
        await self._episode.rest(duration, why)
        self._has_waited()

    def _has_waited(self) -> None:
        """A rest is over, which may have begun in an earlier history."""
        under = self._under
        if under.waits_since is not None:
            before = under.waited.get(under.waits_for, timedelta(0))
            under.waited[under.waits_for] = before + workflow.now() - under.waits_since
            under.waits_since = None
