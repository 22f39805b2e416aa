"""How long an episode waits for what passes by itself, before a person is asked."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from temporalio import workflow

from workflows.episode.episode import Episode
from workflows.kit.interrupts import Interrupt, Unlicensed


class Patience:
    """What was waited within one undertaking. Each kind of waiting has its own patience: a minute of refusals takes nothing from
    the half hour for the cluster Lease."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._waited: defaultdict[type[Interrupt], timedelta] = defaultdict(timedelta)

    def is_over(self, interrupt: Unlicensed) -> bool:
        """Whether this kind has been waited for as long as it may."""
        return self._waited[type(interrupt)] >= interrupt.patience

    async def rest(self, interrupt: Interrupt, duration: timedelta, why: str) -> None:
        """A rest of the episode, which counts as waiting of this kind for as long as it took."""
        began = workflow.now()
        await self._episode.rest(duration, why)
        self._waited[type(interrupt)] += workflow.now() - began
