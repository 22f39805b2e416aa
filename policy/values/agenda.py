"""One due moment for each key; the first is found at once, however many keys there are."""

from __future__ import annotations

from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

SPARE = 1024
"""How many dead heap entries may remain, beside four for each key, before the heap is cleaned."""

Key = TypeVar("Key")


class Agenda(Generic[Key]):
    """A flapping key moves or drops its moment again and again and leaves a dead heap entry each time; the heap is cleaned
    before these pile up."""

    def __init__(self) -> None:
        self._due: dict[Key, datetime] = {}
        self._heap: list[tuple[datetime, Key]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    @property
    def first(self) -> datetime | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def put(self, key: Key, moment: datetime | None) -> None:
        """Set the key's moment, in place of an earlier one; None: it is not due at all."""
        if moment is None:
            self.drop(key)
            return
        self._due[key] = moment
        heappush(self._heap, (moment, key))
        if len(self._heap) > SPARE + 4 * len(self._due):
            self._heap = [(due, each) for each, due in self._due.items()]
            heapify(self._heap)

    def drop(self, key: Key) -> None:
        self._due.pop(key, None)

    def take(self, now: datetime) -> Key | None:
        """Remove and return the key that came due first, None if none has come due."""
        first = self.first
        if first is None or first > now:
            return None
        _, key = heappop(self._heap)
        del self._due[key]
        return key
