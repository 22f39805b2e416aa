"""A copy of one collection of the API, kept by list and watch for as long as it runs, and honest about its age.

The official client's informer does not notice a half-open connection, floods the log while the server is down and stays wrong
for ever after etcd was restored; this one is written round those three. It keeps only the keys: values go to `on_change` (the
ledger of `view.py`) at once. One asyncio task, no threads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import Resource
from activities.cluster.api.refusals import (
    ObjectNotFound,
    Unconnected,
    VersionExpired,
    VersionUnknown,
    refusal_of_status,
    typed,
)
from activities.cluster.api.responses import Status
from activities.cluster.objects.decoding import Decoding, EventType, WatchLine
from activities.errors import ErrorType

log = logging.getLogger(__name__)
_jitter = random.Random()  # noqa: S311 - spreads load, guards nothing

T = TypeVar("T")

WORTH_RESUMING_SECONDS = 1.0
"""A stream that was open for less counts as a failure, so that a server which hangs up at once is not asked in a tight loop."""


HOPEFUL_SECONDS = 30.0
"""For so long after the definition of a kind has changed it is looked for often: a server comes to serve it somewhat later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """Times of a reflector, in seconds.

    silence: bookmarks come about once a minute, so a stream that says nothing for longer is taken for half-open. absence: how
    often at least to look for a kind that the server does not know, where nothing tells that it has come.
    logged_after: how long a kind must be out of reach before a line in the log says so. vanished: how long a kind that had
    objects must be unknown to be believed gone, as with an inventory that has suddenly halved.
    """

    shortest_watch: float = 240.0
    longest_watch: float = 300.0
    silence: float = 70.0
    first_pause: float = 0.1
    longest_pause: float = 10.0
    absence: float = 300.0
    logged_after: float = 5.0
    vanished: float = 300.0
    page_size: int = 500


class Reflector(Generic[T]):
    """List, then watch, then resume, from `start` to `stop`.

    on_change gets a key and its object, or None for one that is gone; at a re-list it gets every object again and each key that
    vanished meanwhile. on_state is called when `synced`, `problem` or `absent` may have changed. only: the objects of that
    name, in whatever namespace; namespace: those of that one.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        resource: Resource,
        decoding: Decoding[T],
        *,
        on_change: Callable[[str, T | None], None],
        on_state: Callable[[], None] = lambda: None,
        optional: bool = False,
        alternatives: Sequence[Resource] = (),
        only: str = "",
        namespace: str = "",
        metadata_only: bool = False,
        limits: WatchLimits | None = None,
    ) -> None:
        self.resource = resource
        """What is followed now: where the server does not know that, the next of the alternatives (older versions)."""
        self.synced = False
        """A list has been taken in and nothing has shown since that it was of another history. A cut does not change that."""
        self.absent = False
        """The server does not know this kind (only where `optional`); then the collection is empty, and in sync."""
        self.problem = ""
        """Why the copy is not being kept just now, "" while it is."""
        self.keys: set[str] = set()
        self.resource_version = ""
        """How far we have followed the server's history."""
        self.newest_change = 0
        """The newest resourceVersion seen on an object: what another copy must have reached to be as good as this one."""
        self.lists = 0
        """How many whole lists were taken in: one, and one more for each time that resuming would not have done."""
        self._connection = connection
        self._spellings = (resource, *alternatives)
        self._query = {"fieldSelector": f"metadata.name={only}"} if only else {}
        self._namespace = namespace
        self._metadata_only = metadata_only
        self._path = resource.path(namespace=namespace)
        self._decoding = decoding
        self._on_change = on_change
        self._on_state = on_state
        self._optional = optional
        self._limits = limits or WatchLimits()
        self._last_contact = float("-inf")
        self._opened_at: float | None = None
        self._closed_at = float("-inf")
        self._received = False
        self._doubtful = False
        self._refused = 0
        self._vanished_at: float | None = None
        self._troubled_at: float | None = None
        self._logged = False
        self._woken_at = float("-inf")
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def streaming(self) -> bool:
        """Whether changes reach us just now, as far as one can know (see `silent_for`)."""
        return self._opened_at is not None or (self.absent and not self.problem)

    def lacks(self, key: str) -> bool:
        """Whether there is known to be no such object at this moment."""
        return self._opened_at is not None and self.silent_for() < self._limits.silence and key not in self.keys

    def silent_for(self) -> float:
        """Seconds since the server last said anything about this collection: a list, an event, a bookmark, an opened watch."""
        return asyncio.get_running_loop().time() - self._last_contact

    def unknown_for(self) -> float:
        """Seconds for which the server has not known this kind; 0 where it does, or was not asked."""
        return 0.0 if self._vanished_at is None else asyncio.get_running_loop().time() - self._vanished_at

    def follows(self, server: ClusterConnection, definition: str) -> bool:
        """Whether the definition of that name, on that server, defines the kind that this copy follows."""
        return server is self._connection and definition == self.resource.definition

    def start(self) -> None:
        """Begin; does nothing where it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"reflector of {self._path}")

    async def stop(self) -> None:
        """End, and wait until it has ended. What was learnt stays."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._opened_at = None

    def wake(self) -> None:
        """Try again now, and often for a while: there is reason to think that it would help, or soon."""
        self._woken_at = asyncio.get_running_loop().time()
        self._woken.set()

    def retry(self, server: ClusterConnection) -> None:
        """That server answers again: try again now, or right after the try that is under way, where it did not answer us."""
        if self.problem and server is self._connection:
            self._woken.set()

    async def relist(self) -> None:
        """Take a new list now, although nothing seems wrong with the watch."""
        await self.stop()
        self.resource_version = ""
        self.start()

    async def _run(self) -> None:
        failures = 0
        while True:
            at_least = 0.0
            try:
                if not self.resource_version or self._away_for_long():
                    await self._list()
                elif self._doubtful:
                    await self._compare_histories()
                await self._watch()
                # A stream on which nothing was said, not even a bookmark, may be one that waits for a version yet to come.
                self._doubtful = not self._received
            except VersionExpired:
                self.resource_version = ""
            except VersionUnknown as error:
                # The server's history is not the one we followed: nothing we hold is certain until it has been listed again.
                log.warning("%s: %s", self._path, error.message)
                self.resource_version, self.synced = "", False
            except ObjectNotFound as error:
                self._missing(error)
            except ApplicationError as error:
                self._doubtful, self._refused = True, 0
                self._troubled(error.message, logged_elsewhere=isinstance(error, Unconnected))
                at_least = error.next_retry_delay.total_seconds() if error.next_retry_delay else 0.0
            except Exception as error:
                # A defect of ours must show as a stale view, never as a silent death.
                log.exception("%s", self._path)
                self.resource_version, self.synced = "", False
                self._close_stream()
                self._troubled(f"{type(error).__name__}: {error}")
            lasted = self._close_stream()
            failures = 1 if lasted >= WORTH_RESUMING_SECONDS else failures + 1
            if await self._pause(failures, at_least):
                failures = 0

    async def _list(self) -> None:
        fresh: dict[str, T] = {}
        newest, version = 0, ""
        pages_of = self._connection.list_pages(
            self._path, limit=self._limits.page_size, query=self._query, metadata_only=self._metadata_only
        )
        async with aclosing(pages_of) as pages:
            async for page in pages:
                self._last_contact = asyncio.get_running_loop().time()
                for item in self._decoding.items(page.body):
                    fresh[item.key] = item.value
                    newest = max(newest, version_number(item.resource_version))
                version = page.resource_version
        if version_number(version) < self.newest_change:
            log.warning("%s: the server went back in time, from %d to %s", self._path, self.newest_change, version)
        # One moment for all of it: half of an inventory must never be seen.
        for key in self.keys - fresh.keys():
            self._on_change(key, None)
        for key, value in fresh.items():
            self._on_change(key, value)
        self.keys = set(fresh)
        self.resource_version, self.newest_change = version, newest
        self.synced, self.absent = True, False
        self._refused, self._vanished_at = 0, None
        self.lists += 1
        self._on_state()

    async def _compare_histories(self) -> None:
        """Whether the server is still at least where we are. One that was restored from a backup takes a watch from a version
        which it has yet to reach without a word, and leaves out everything up to there."""
        async with aclosing(self._connection.list_pages(self._path, limit=1, query=self._query)) as pages:
            async for page in pages:
                if version_number(page.resource_version) < version_number(self.resource_version):
                    message = f"the server is at {page.resource_version}, we were at {self.resource_version}"
                    raise typed(VersionUnknown, ErrorType.TRANSIENT, f"LIST {self._path}: {message}: it went back in time")
                return

    def _away_for_long(self) -> bool:
        """Whether resuming is not worth the doubt: a restored server may by now have caught up with the version we know."""
        return self._doubtful and asyncio.get_running_loop().time() - self._closed_at > self._limits.silence

    async def _watch(self) -> None:
        lines = self._connection.watch(
            self._path,
            resource_version=self.resource_version,
            seconds=max(1, round(_jitter.uniform(self._limits.shortest_watch, self._limits.longest_watch))),
            silence=self._limits.silence,
            on_open=self._opened,
            query=self._query,
            metadata_only=self._metadata_only,
        )
        async with aclosing(lines):
            async for body in lines:
                self._received = True
                self._last_contact = asyncio.get_running_loop().time()
                self._take(self._decoding.line(body))

    def _take(self, line: WatchLine[T]) -> None:
        if line.type is EventType.ERROR:
            status = line.status or Status()
            raise refusal_of_status(status.code or 500, status, f"WATCH {self._path}", writing=False)
        if version_number(line.resource_version) < version_number(self.resource_version):
            message = f"an event of version {line.resource_version} after {self.resource_version}: the server went back in time"
            raise typed(VersionUnknown, ErrorType.TRANSIENT, f"WATCH {self._path}: {message}")
        self.resource_version = line.resource_version
        if line.item is None:
            return
        self.newest_change = max(self.newest_change, version_number(line.resource_version))
        if line.type is EventType.DELETED:
            self.keys.discard(line.item.key)
            self._on_change(line.item.key, None)
        else:
            self.keys.add(line.item.key)
            self._on_change(line.item.key, line.item.value)

    def _opened(self) -> None:
        self._opened_at = self._last_contact = asyncio.get_running_loop().time()
        self._received = self._doubtful = False
        self._well_again("followed again")
        self._on_state()

    def _close_stream(self) -> float:
        """How long the stream that has just ended was open."""
        opened, self._opened_at = self._opened_at, None
        if opened is None:
            return 0.0
        self._closed_at = asyncio.get_running_loop().time()
        self._on_state()
        return self._closed_at - opened

    def _missing(self, error: ObjectNotFound) -> None:
        self.resource_version = ""
        if not self._optional:
            self._troubled(error.message)
            return
        now = self._last_contact = asyncio.get_running_loop().time()
        self.resource = self._spellings[(self._spellings.index(self.resource) + 1) % len(self._spellings)]
        self._path = self.resource.path(namespace=self._namespace)
        self._refused += 1
        if self._turning:
            return
        self._refused = 0
        self._vanished_at = now if self._vanished_at is None else self._vanished_at
        if self.keys and now - self._vanished_at < self._limits.vanished:
            # While the served versions change, or behind a server that lost its definitions. What we know still counts.
            self._troubled(f"{error.message}: it is taken for gone once that has lasted {self._limits.vanished:g} s")
        elif not self.absent or self.problem:
            self._gone()

    @property
    def _turning(self) -> bool:
        """Whether one version has just been refused and another has yet to be asked for: that says nothing of the kind."""
        return 0 < self._refused < len(self._spellings)

    def _gone(self) -> None:
        log.debug("%s: not known to the server", self._path)
        self.absent, self.synced = True, True
        self._well_again("not known to the server any more")
        for key in self.keys:
            self._on_change(key, None)
        self.keys = set()
        self._on_state()

    def _well_again(self, line: str) -> None:
        if self._logged:
            log.info("%s: %s", self._path, line)
        self.problem, self._troubled_at, self._logged = "", None, False

    def _troubled(self, problem: str, *, logged_elsewhere: bool = False) -> None:
        if self._opened_at is not None:
            # Streams end in many ways, and mostly go on at once. It is a problem when that fails.
            log.debug("%s: the stream broke: %s", self._path, problem)
            return
        now = asyncio.get_running_loop().time()
        self._troubled_at = now if self._troubled_at is None else self._troubled_at
        if not (self._logged or logged_elsewhere) and now - self._troubled_at >= self._limits.logged_after:
            # Once per outage, and not where it is over soon: a server that was just started refuses every kind for a moment.
            log.warning("%s: not followed: %s", self._path, problem)
            self._logged = True
        if not self.problem:
            self.problem = problem
            self._on_state()

    async def _pause(self, failures: int, at_least: float) -> bool:
        """Whether `wake` or `retry` has cut it short. at_least: seconds that the server has asked for."""
        away = self.absent and not self.problem  # after a try that has failed it is not known whether the kind is served by now
        hopeful = not away or asyncio.get_running_loop().time() - self._woken_at < HOPEFUL_SECONDS
        longest = self._limits.absence if away else self._limits.longest_pause
        pause = min(self._limits.first_pause * 2.0 ** min(failures - 1, 30), longest) if hopeful else longest
        pause *= _jitter.uniform(0.5, 1.0)
        if self._turning:
            pause = 0.0  # another version may be served: ask for that at once
        await asyncio.sleep(at_least)
        try:
            async with asyncio.timeout(max(pause - at_least, 0.0)):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


def version_number(resource_version: str) -> int:
    """A resourceVersion as the ever-growing number it is with every server we know; 0 where it is none."""
    return int(resource_version) if resource_version.isdecimal() else 0
