"""What is due when: of each key one moment, the first of which is at hand however many there are."""

from __future__ import annotations

from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

SPARE = 1024
"""So many places that were left behind may wait to be cleared away, beside four for each key."""

Key = TypeVar("Key")


class Agenda(Generic[Key]):
    """Whoever flaps moves or drops a moment again and again, and leaves a place behind each time; they do not pile up until they
    would be due."""

    def __init__(self) -> None:
        self._due: dict[Key, datetime] = {}
        self._heap: list[tuple[datetime, Key]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    @property
    def first(self) -> datetime | None:
        """The first moment, None where nothing is due."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def put(self, key: Key, moment: datetime | None) -> None:
        """It is due then, and no longer when it was before; None: not at all."""
        if moment is None:
            self.drop(key)
            return
        self._due[key] = moment
        heappush(self._heap, (moment, key))
        if len(self._heap) > SPARE + 4 * len(self._due):
            self._heap = [(due, each) for each, due in self._due.items()]
            heapify(self._heap)

    def drop(self, key: Key) -> None:
        """It is not due any more."""
        self._due.pop(key, None)

    def take(self, now: datetime) -> Key | None:
        """What came due first and is due no more from now on, None where nothing has come due."""
        first = self.first
        if first is None or first > now:
            return None
        _, key = heappop(self._heap)
        del self._due[key]
        return key
