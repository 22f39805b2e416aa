"""What is new of an episode for people with kubectl: its NodeFence, Events, the note that its node is off.

It is collected here, of the states only the latest. The next act on the cluster publishes it; where the story waits instead, or
what is new must be seen at once, a task beside it publishes it alone. Nothing waits for that but the end of the episode, which
gives up what can't be published then. What it says is `policy/episode/nodefence.py` and `policy/episode/events.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.target import (
    EpisodeSnapshot,
    OffNote,
    Publication,
    PublishedEvent,
    PublishRequest,
    Target,
    TargetActivities,
)
from activities.errors import error_message
from policy.episode.events import event_of, events_between, without_repetition
from policy.episode.messages import EpisodeStatus, RecordEntry
from policy.episode.nodefence import MAXIMUM_JOBS, job_of, shown_status, transition
from policy.fence.config import FenceStep
from workflows.episode.state import PublisherState
from workflows.kit import options

MAXIMUM_EVENTS = 20
MAXIMUM_ENTRIES = 500
Result = TypeVar("Result")


class Publisher:
    """Collects what is new of one episode, and publishes it."""

    def __init__(self, incident: str, state: PublisherState) -> None:
        self._incident = incident
        self._state = state
        self._publishing: asyncio.Task[None] | None = None

    def add_entry(self, entry: RecordEntry) -> None:
        """A line of the decision record. It has no publication of its own: it goes along with the next one, if there is a
        decision stream."""
        if self._state.streams is not False:
            self._state.entries = [*self._state.entries, entry][-MAXIMUM_ENTRIES:]
        if not self._state.shows:
            return
        if job := job_of(entry, self._incident, self._state.runs.get(entry.act, 0)):
            self._state.runs[entry.act] = self._state.runs.get(entry.act, 0) + 1
            self._state.jobs = [*self._state.jobs, job][-MAXIMUM_JOBS:]
        if (event := event_of(entry)) is not None:
            self.add_event(PublishedEvent(reason=event.reason, message=event.message, warning=event.warning))
        if entry.outcome == "failed" and entry.act in set(FenceStep):
            self._state.failure = entry.detail
        if entry.act == "end":
            self._state.outcome, self._state.message = entry.outcome, entry.detail

    def learn_of_stream(self, streams: bool | None) -> None:
        """Whether the cluster has a decision stream, None where its worker does not say. If not, no line of the record waits or
        travels."""
        if streams is None:
            return
        self._state.streams = streams
        if not streams:
            self._state.entries = []

    def show(self, status: EpisodeStatus) -> None:
        """The episode has entered a state; one that looks the same from outside is not published."""
        if not self._state.shows:
            return
        if self._state.shown is None or transition(self._state.shown) != transition(status):
            for event in events_between(self._state.shown, status, self._state.failure):
                self.add_event(PublishedEvent(reason=event.reason, message=event.message, warning=event.warning))
            self._state.entered = workflow.now()
        self._state.shown = status

    def add_event(self, event: PublishedEvent) -> None:
        self._state.events = [*self._state.events, event][-MAXIMUM_EVENTS:]

    def note_off(self, off_proven: datetime | None) -> None:
        """Since when the node is proven off, None for no longer."""
        self._state.off = OffNote(off_proven=off_proven, not_after=workflow.now() + options.PUBLISHED_WITHIN)

    async def publish_with(self, act: Callable[[Publication | None], Awaitable[Result]]) -> Result:
        """Carry out an act that takes along what is new. Where it fails that is to be published again."""
        publication = self._take()
        try:
            return await act(publication)
        except ActivityError:
            self._put_back(publication)
            raise

    def publish(self, target: Target) -> None:
        """Have what is new published alone, beside the story."""
        if self._publishing is None and self._has_changes:
            self._publishing = asyncio.create_task(self._publish(target))

    async def finish(self, target: Target) -> None:
        """Return once all is published, or can't be."""
        self.publish(target)
        if self._publishing is not None:
            await self._publishing

    async def finish_record(self, target: Target) -> None:
        """At the end of the episode: lines of the record that nothing has taken along go by themselves."""
        if self._state.entries:
            entries, self._state.entries = tuple(self._state.entries), []
            await self._carry(target, Publication(entries=entries))

    @property
    def _has_changes(self) -> bool:
        return self._state.entered is not None or bool(self._state.events) or self._state.off is not None

    def _take(self) -> Publication | None:
        if not (self._has_changes or self._state.entries):
            return None
        shown = None
        if self._state.shown is not None and self._state.entered is not None:
            self._state.sequence += 1
            shown = EpisodeSnapshot(
                status=shown_status(self._state.shown),
                sequence=self._state.sequence,
                at=self._state.entered,
                jobs=tuple(self._state.jobs),
                outcome=self._state.outcome,
                message=self._state.message,
            )
        state = self._state
        events = tuple(without_repetition(state.events))
        publication = Publication(shown=shown, events=events, off=state.off, entries=tuple(state.entries))
        state.entered, state.events, state.off, state.entries = None, [], None, []
        return publication

    def _put_back(self, publication: Publication | None) -> None:
        """What came meanwhile is newer."""
        if publication is None:
            return
        self._state.events = [*publication.events, *self._state.events][-MAXIMUM_EVENTS:]
        if self._state.streams is not False:
            self._state.entries = [*publication.entries, *self._state.entries][-MAXIMUM_ENTRIES:]
        self._state.off = self._state.off or publication.off
        if publication.shown is not None:
            self._state.entered = self._state.entered or publication.shown.at

    async def _publish(self, target: Target) -> None:
        publication = self._take()
        while publication is not None and await self._carry(target, publication):
            publication = self._take() if self._has_changes else None
        self._publishing = None

    async def _carry(self, target: Target, publication: Publication) -> bool:
        try:
            await options.execute(
                TargetActivities.publish,
                PublishRequest(target=target.without_devices, publication=publication),
                options.publication(target.cluster),
                f"publishes: {_headline(publication)}",
            )
        except ActivityError as error:
            workflow.logger.warning("this is not published yet: %s", error_message(error))
            self._put_back(publication)
            return False
        return True


def _headline(publication: Publication) -> str:
    if publication.shown is not None:
        return publication.shown.status.phase.value
    return ", ".join(event.reason for event in publication.events) or (
        "whether the node is proven off" if publication.off else "its record"
    )
