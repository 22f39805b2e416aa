"""One open watch: what a client has asked to be told, from which moment on, and how it ends.

Events are handed over in the same step as the write that caused them, already encoded; the loop in `stream` only sends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import orjson

from simulator.api import errors
from simulator.api.storage.kinds import Resource
from simulator.api.storage.selectors import Selection
from simulator.api.storage.store import ADDED, DELETED, MODIFIED, Change, Collection, Record, Store
from simulator.api.wire.views import View, frame, with_revision

# Sent in one piece at most; small, because clients split what they read line by line.
_CHUNK = 32 * 1024
# A client that is so far behind is cut off, as a real server does.
_BACKLOG = 50_000
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Ending(StrEnum):
    """Why a watch is over."""

    TIMEOUT = "timeout"
    CUT = "cut"
    EXPIRED = "expired"
    TOO_SLOW = "too-slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What was asked for."""

    resource: Resource
    namespace: str
    selection: Selection
    revision: int | None  # None: from now, with or without the present state
    initial_events: bool
    initial_events_end: bool
    bookmarks: bool
    timeout_seconds: float


class Watch:
    """Collects the events of one watch until they can be sent."""

    def __init__(
        self, store: Store, collection: Collection, request: WatchRequest, view: View, *, bookmark_seconds: float
    ) -> None:
        self._store = store
        self._collection = collection
        self._request = request
        self._view = view
        self._bookmark_seconds = bookmark_seconds
        self._pending: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None
        self._ending: Ending | None = None
        self._silent = False
        # Nothing up to here is told: a client may know more than a restored server does.
        self._told = request.revision or 0

    def begin(self, present: Callable[[], list[Record]]) -> None:
        """Queue what has happened already and from here on hear of everything; one step, so nothing is missed."""
        request = self._request
        if request.revision is not None and not request.initial_events:
            if request.revision < self._collection.floor:
                told = f"too old resource version: {request.revision} ({self._collection.floor})"
                self.fail(errors.expired(told))
                return
            for change in self._collection.since(request.revision):
                self.offer(change)
        if request.initial_events:
            self._pending.extend(self._view.event(ADDED, record) for record in present())
            self._told = self._store.revision
            if request.initial_events_end:
                self._bookmark({INITIAL_EVENTS_END: "true"})
        self._collection.watchers.add(self)

    def end(self) -> None:
        self._collection.watchers.discard(self)

    def fail(self, error: errors.ApiError) -> None:
        """Tell an error as an event, the only way once the answer has begun, and end."""
        self._pending.append(frame("ERROR", error.body()))
        self._ending = Ending.EXPIRED

    def cut(self) -> None:
        """The connection is to be dropped, whatever was still to be sent."""
        self._ending = Ending.CUT
        self._pending.clear()
        self._rouse()

    def silence(self) -> None:
        """Half-open from now on: nothing is sent and nothing ends, until the client leaves."""
        self._silent = True
        self._pending.clear()
        self._rouse()

    def offer(self, change: Change) -> None:
        request = self._request
        if self._silent or self._ending or change.revision <= self._told:
            return
        if request.namespace and change.record.namespace != request.namespace:
            return
        if request.selection.everything:
            self._push(self._view.event(change.type, change.record, change))
            return
        matched = change.previous is not None and request.selection.matches(change.previous)
        matches = change.type != DELETED and request.selection.matches(change.record)
        if matches:
            self._push(self._view.event(MODIFIED if matched else ADDED, change.record, change))
        elif matched and change.type == DELETED:
            self._push(self._view.event(DELETED, change.record, change))
        elif matched and change.previous is not None:
            self._push(self._view.event(DELETED, with_revision(change.previous, change.revision)))

    async def stream(self, write: Callable[[bytes], Awaitable[None]]) -> Ending:
        """Send until the watch is over; the answer says why it is."""
        deadline = self._loop.time() + self._request.timeout_seconds
        bookmark = self._next_bookmark(deadline)
        while True:
            if self._silent:
                await self._sleep_until(None)
            elif self._pending:
                await write(self._take())
                continue
            if self._ending:
                return self._ending
            now = self._loop.time()
            if not self._silent and now >= deadline:
                return Ending.TIMEOUT
            if not self._silent and bookmark is not None and now >= bookmark:
                self._bookmark()
                bookmark = self._next_bookmark(deadline)
                continue
            if not self._silent:
                await self._sleep_until(deadline if bookmark is None else min(deadline, bookmark))

    def _take(self) -> bytes:
        first = self._pending.popleft()
        if not self._pending or len(first) + len(self._pending[0]) > _CHUNK:
            return first
        taken, size = [first], len(first)
        while self._pending and size + len(self._pending[0]) <= _CHUNK:
            taken.append(self._pending.popleft())
            size += len(taken[-1])
        return b"".join(taken)

    def _push(self, event: bytes) -> None:
        self._pending.append(event)
        if len(self._pending) > _BACKLOG:
            self._ending = Ending.TOO_SLOW
            self._pending.clear()
        self._rouse()

    def _bookmark(self, annotations: dict[str, str] | None = None) -> None:
        # A client that has asked from a later moment than we know must not be told to go back.
        revision = self._store.revision
        if revision < self._told:
            return
        metadata: dict[str, object] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._request.resource
        document = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        self._pending.append(frame("BOOKMARK", orjson.dumps(document)))

    def _next_bookmark(self, deadline: float) -> float | None:
        """Every so often, and once more two seconds before the end, so that the next watch begins fresh."""
        if not self._request.bookmarks:
            return None
        now = self._loop.time()
        regular, last = now + self._bookmark_seconds, deadline - 2
        return min(regular, last) if last > now else regular

    async def _sleep_until(self, moment: float | None) -> None:
        self._wake = self._loop.create_future()
        timer = self._loop.call_at(moment, self._rouse) if moment is not None else None
        try:
            await self._wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
