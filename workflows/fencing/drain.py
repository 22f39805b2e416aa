"""Draining a node that still answers: rounds of evictions, until nothing is left to go or its time is over.

Eviction is asked for and never forced (S30); what a budget blocks is asked for again, what must wait for the proof of off is
left to `workflows/fencing/consequences.py`. Which pods go is `policy/episode/drain.py`, one round is
`activities/cluster/acts/drain.py`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow

from activities.contracts.target import DrainRequest, DrainResult, IsolationActivities
from policy.episode.drain import drain_options
from policy.fence.plan import PlannedMethod
from workflows.episode.episode import Episode
from workflows.episode.preflight import Licence, Preflight
from workflows.fencing.device_commands import longer
from workflows.kit import options
from workflows.kit.interrupts import Hopeless, StepFailed, as_interrupt

PATIENCE = timedelta(minutes=5)
"""Of a drain that was given no time-out: fencing is what follows it, so it may not wait for ever."""

POLL_INTERVAL = timedelta(seconds=5)


class Draining:
    """The drain of one episode's node."""

    def __init__(self, episode: Episode, preflight: Preflight) -> None:
        self._episode = episode
        self._preflight = preflight

    async def carry_out(self, method: PlannedMethod) -> None:
        """Rounds until done; when its time is over what is left is said, and fencing goes on. StepFailed where a filter refuses a
        pod: then nothing at all was evicted (S29)."""
        with self._episode.undertaking("drains the node") as under:
            result, evicted = await self._until_done(method, under.began + (method.timeout or PATIENCE))
        for warning in result.warnings:
            self._episode.note("drain", "warning", warning)
        if result.mounting:  # nothing is taken from under a pod that has to stay (S30)
            raise Hopeless(f"nothing is detached: {'; '.join(result.blocked)}")
        left = "; ".join((*result.blocked, *result.withheld, *(() if result.done else result.names)))
        told = f"{evicted} pods evicted{f'; left: {left}' if left else ''}"
        self._episode.note("drain", "ok" if result.done else "incomplete", told)

    async def _until_done(self, method: PlannedMethod, deadline: datetime) -> tuple[DrainResult, int]:
        pause, evicted = POLL_INTERVAL, 0
        while True:
            licence = await self._preflight.before_destruction()
            self._episode.enter(doing="drains the node", until=deadline)
            result = await self._round(method, deadline, licence)
            if result.errors:
                raise StepFailed(f"nothing was evicted: {'; '.join(result.errors)}")
            evicted += result.evicted
            if result.done or workflow.now() >= deadline:
                return result, evicted
            await self._episode.rest(pause, "until the drain is looked at again")
            pause = longer(pause)

    async def _round(self, method: PlannedMethod, deadline: datetime, licence: Licence) -> DrainResult:
        """Evictions are asked for while the look holds that licensed them; once, too, where the drain's time is over by then."""
        try:
            request = DrainRequest(
                target=self._episode.target,
                options=drain_options(method.parameters),
                only=method.only,
                not_after=min(deadline, licence.until) if deadline > workflow.now() else licence.until,
                holder=self._episode.state.holder,
            )
        except ValueError as error:
            raise Hopeless(f"{method.name}: {error}") from error
        with as_interrupt("the node can't be drained"):
            return await workflow.execute_activity_method(
                IsolationActivities.drain,
                request,
                **(options.consequence(self._episode.state.cluster) | {"summary": "isolation: asks for evictions"}),
            )
