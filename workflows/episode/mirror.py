"""An episode as people with kubectl see it: its NodeFence, and its steps as Events. Written beside the story, never in its way.

The episode shows each state that it enters; a task of its own writes one after the other. A write that fails costs those waiting
behind it but for the latest, so that an API server that is away holds up the end of an episode for two writes at most and nothing
else at all. What is written is `policy/episode/nodefence.py` and `policy/episode/events.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.mirror import MirrorActivities, MirrorRequest
from activities.contracts.target import Target
from activities.errors import error_message
from policy.episode.events import EpisodeEvent, event_of, events_between
from policy.episode.messages import EpisodeStatus, RecordEntry, Step
from policy.episode.nodefence import MAXIMUM_JOBS, job_of, transition
from workflows.kit import options

MAXIMUM_WAITING = 8
"""States that wait to be written; the oldest go first. Events wait with them."""
MAXIMUM_EVENTS = 20


class Mirror:
    """What is shown of one episode."""

    def __init__(self, incident: str) -> None:
        self._incident = incident
        self._shown: EpisodeStatus | None = None
        self._sequence = 0
        self._runs: Counter[str] = Counter()
        self._jobs: list[str] = []
        self._events: list[EpisodeEvent] = []
        self._failure = ""
        self._outcome = self._message = ""
        self._waiting: list[MirrorRequest] = []
        self._writing: asyncio.Task[None] | None = None

    def hear(self, entry: RecordEntry) -> None:
        """A line of the decision record."""
        if job := job_of(entry, self._incident, self._runs[entry.act]):
            self._runs[entry.act] += 1
            self._jobs = [*self._jobs, job][-MAXIMUM_JOBS:]
        if (event := event_of(entry)) is not None:
            self._events.append(event)
        if entry.outcome == "failed" and entry.act in set(Step):
            self._failure = entry.detail
        if entry.act == "end":
            self._outcome, self._message = entry.outcome, entry.detail

    def show(self, status: EpisodeStatus, target: Target) -> None:
        """The episode has entered a state; one that is the same to whoever looks on is not written again."""
        if self._shown is not None and transition(self._shown) == transition(status):
            return
        self._events += events_between(self._shown, status, self._failure)
        self._shown = status
        self._sequence += 1
        request = MirrorRequest(
            target=target,
            status=status,
            sequence=self._sequence,
            at=workflow.now(),
            jobs=tuple(self._jobs),
            outcome=self._outcome,
            message=self._message,
            events=tuple(self._events[-MAXIMUM_EVENTS:]),
        )
        self._events.clear()
        self._waiting.append(request)
        if len(self._waiting) > MAXIMUM_WAITING:
            self._pass_over(1)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def finish(self) -> None:
        """Return once the last state is written, or can't be."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._waiting:
            request = self._waiting.pop(0)
            try:
                await workflow.execute_activity_method(
                    MirrorActivities.mirror,
                    request,
                    **(options.report(request.target.cluster) | {"summary": f"shows people: {request.status.phase.value}"}),
                )
            except ActivityError as error:
                workflow.logger.warning("the NodeFence can't be written: %s", error_message(error))
                self._pass_over(len(self._waiting) - 1)
        self._writing = None

    def _pass_over(self, count: int) -> None:
        """Leave the oldest states out; what they had to tell goes with the next that is written."""
        for _ in range(count):
            first, second = self._waiting[:2]
            events = (*first.events, *second.events)[-MAXIMUM_EVENTS:]
            self._waiting[:2] = [replace(second, events=events)]
