"""What the page shows, asked for once however many look at it, and only while somebody does.

Nothing is kept beyond that: several processes may serve the same page, and one that is started anew knows as much as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from policy.checks.fence_policies import PolicySource
from starter import wording
from starter.client import Nodewarden
from starter.errors import MissingError
from starter.handles.status import ClusterStatus
from starter.output.encoding import to_json
from starter.output.explanation_output import NodeExplanation
from starter.output.watching import look, until_next

LINGERS = timedelta(seconds=10)
"""How long a cluster is asked about after the last one has looked: a page that is loaded anew finds its view."""
FRESH = timedelta(seconds=1)
"""How old an answer may be that is given to somebody who only asks once."""


class WatchedCluster:
    """One cluster's status, kept new while somebody watches."""

    def __init__(self, warden: Nodewarden, cluster: str) -> None:
        self.cluster = cluster
        self._warden = warden
        self._status: ClusterStatus | None = None
        self._asking: asyncio.Task[ClusterStatus] | None = None
        self._following: asyncio.Task[None] | None = None
        self._watchers = 0
        self._changed = asyncio.Condition()
        self._encoded: tuple[ClusterStatus | None, dict[str, tuple[bytes, str]]] = (None, {})

    async def status(self) -> ClusterStatus:
        """What is known now: at most a second old, or as new as the watchers have it. Never raises: who does not answer is named
        in it."""
        known = self._status
        if known is not None and (self._following is not None or datetime.now(UTC) - known.at < FRESH):
            return known
        return await self._ask()

    async def encoded(self, part: str, make: Callable[[ClusterStatus], object]) -> tuple[bytes, str]:
        """A part of the status as JSON, and its ETag: made once for each status, however many ask. part: which it is."""
        status = await self.status()
        if self._encoded[0] is not status:
            self._encoded = (status, {})
        known = self._encoded[1]
        if part not in known:
            body = to_json(make(status)).encode()
            known[part] = (body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
        return known[part]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, it is asked again whenever there may be something new."""
        self._watchers += 1
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._watchers -= 1

    async def next(self, seen: ClusterStatus | None, *, within: float) -> ClusterStatus | None:
        """The first status that is another one than `seen`; None where none came within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(lambda: self._status is not None and self._status is not seen)
                return self._status
        return None

    async def close(self) -> None:
        """Ask no more."""
        for task in (self._following, self._asking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._following = self._asking = None

    async def _ask(self) -> ClusterStatus:
        """All who ask meanwhile wait for the same answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(look(self._warden, self.cluster, self._status))
        self._status = await asyncio.shield(self._asking)
        async with self._changed:
            self._changed.notify_all()
        return self._status

    async def _follow(self) -> None:
        try:
            alone_since: datetime | None = None
            while True:
                status = await self._ask()
                await asyncio.sleep(until_next(status).total_seconds())
                alone_since = None if self._watchers else alone_since or datetime.now(UTC)
                if alone_since is not None and datetime.now(UTC) - alone_since >= LINGERS:
                    return
        finally:
            self._following = None


class Views:
    """Those of all clusters that the settings name."""

    def __init__(self, warden: Nodewarden, clusters: tuple[str, ...], *, source: PolicySource | None = None) -> None:
        """source: which of two fence configurations holds, as the workers have it; None: what fencing would do is not shown."""
        self.clusters = clusters
        self.source = source
        self.warden = warden
        self._of = {name: WatchedCluster(warden, name) for name in clusters}

    def of(self, cluster: str) -> WatchedCluster | None:
        """None of a cluster that the settings do not name."""
        return self._of.get(cluster)

    def known(self, cluster: str) -> WatchedCluster:
        """Raises MissingError, naming those that there are."""
        view = self.of(cluster)
        if view is None:
            raise MissingError(f"there is no cluster {cluster!r} among those known here: {', '.join(self.clusters) or 'none'}")
        return view

    async def close(self) -> None:
        """Ask no more."""
        await asyncio.gather(*(view.close() for view in self._of.values()))


async def explained(views: Views, cluster: str, node: str) -> NodeExplanation:
    """Why a node is, or is not, touched, as far as the scanner and its episodes say; the cluster's own API is not asked."""
    status = await views.known(cluster).status()
    episodes = await views.warden.of_node(cluster, node)
    problems = ("the cluster's objects are not read here: `nodewarden explain` reads them", *filter(None, (status.problem,)))
    return NodeExplanation(
        node=node, at=status.at, scanner=status.scanner, episodes=episodes, problems=problems, unread=True, halted=_halted(status)
    )


def _halted(status: ClusterStatus) -> str:
    if status.scanner is not None:
        return wording.halted(status.scanner)
    return "" if status.unanswered else status.problem
