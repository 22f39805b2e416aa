"""How a simulated controller works: a queue of keys, a `reconcile` per key, and another look when it asks for one.

The pattern of Kubernetes' own controllers: events only say *where* to look, the decision reads the cache anew, a
failed attempt comes again later. So a lost event, a conflict or an API that is away for a while costs time and
nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from simulator.client import ApiClient, ApiError, ApiUnreachableError
from simulator.informer import ClusterView, Informer
from simulator.objects import JsonObject, controller_of, key_of, namespace_of

log = logging.getLogger(__name__)


class WorkQueue:
    """Keys to look at: each at most once in the queue and never in two hands at once."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._in_hand: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str) -> None:
        if key in self._in_hand:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Of two moments asked for one key the earlier holds."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    async def take(self) -> str:
        key = await self._ready.get()
        self._waiting.discard(key)
        self._in_hand.add(key)
        return key

    def done(self, key: str) -> None:
        self._in_hand.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)


class Controller:
    """One control loop. A subclass says which changes concern which keys, and implements `reconcile`."""

    workers = 1

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        self.client = client
        self.view = view
        self.queue = WorkQueue()
        self._failures: dict[str, int] = {}

    @property
    def name(self) -> str:
        return type(self).__name__

    async def reconcile(self, key: str) -> float | None:
        """Bring one object where it should be; the answer is when to look again without an event, in seconds."""
        raise NotImplementedError

    def look_on(self, informer: Informer, keys: Callable[[JsonObject], Iterable[str]]) -> None:
        """Look at these keys whenever such an object appears, changes (as it was and as it is) or vanishes."""

        def changed(before: JsonObject | None, after: JsonObject | None) -> None:
            for obj in (before, after):
                for key in keys(obj) if obj is not None else ():
                    self.queue.add(key)

        informer.subscribe(changed)

    async def report(self, informer: Informer, obj: JsonObject, status: JsonObject) -> None:
        """Write what has changed of the object's status. A 0 that was never written has not."""
        known = obj.get("status") or {}
        if any(known.get(field, 0) != value for field, value in status.items()):
            path = informer.resource.path_of_key(key_of(obj), subresource="status")
            informer.remember(await self.client.patch(path, {"status": status}))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.workers):
                group.create_task(self._work(), name=f"{self.name} {number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.take()
            try:
                look_again = await self.reconcile(key)
            except (ApiError, ApiUnreachableError) as error:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                log.info("%s: %s: %s", self.name, key, error)
                self.queue.add_after(key, min(0.02 * 2**failures, 5.0) * random.uniform(0.5, 1.5))
            else:
                self._failures.pop(key, None)
                if look_again is not None:
                    self.queue.add_after(key, look_again)
            finally:
                self.queue.done(key)


def own_key(obj: JsonObject) -> list[str]:
    return [key_of(obj)]


def owner_key(kind: str) -> Callable[[JsonObject], list[str]]:
    """The key of the controller of that kind that owns the object, if one does."""

    def keys(obj: JsonObject) -> list[str]:
        owner = controller_of(obj)
        return [f"{namespace_of(obj)}/{owner['name']}"] if owner and owner["kind"] == kind else []

    return keys
