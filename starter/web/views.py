"""What the page shows, asked for once however many look at it, and only while it is looked at.

Nothing is kept beyond that: several processes may serve the same page, and one that is started anew knows as much as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from fastapi import Request

from activities.cluster.watch.offline import ClusterSnapshot
from activities.contracts.episode_start import TemporalUi
from policy.checks.fence_policies import PolicySource
from policy.episode.messages import Phase
from policy.fence.device_check import DeviceReport, acted_on
from policy.history.offenders import OffenderRules
from policy.scan import obstacles
from policy.scan.explanation import Explanation, explain
from starter import wording
from starter.client import Nodewarden
from starter.errors import MissingError, RequestError, SilentError
from starter.handles.status import ClusterStatus, PreservedNodes
from starter.output.display import look, until_next
from starter.output.encoding import to_json
from starter.output.explanation import NodeExplanation
from starter.web.fleet import FleetAnswer, fleet

# An answer that many pages want and one question gets: kept for seconds, and asked for only where it is wanted.

FAILED_SECONDS = 1.0
"""How long it is remembered that there was no answer, however long that took."""

T = TypeVar("T")


class Shared(Generic[T]):
    """Asks when it is wanted and what is known is too old; all who come meanwhile wait for the same answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]], *, fresh: timedelta, times_as_long: int = 0) -> None:
        """fresh: how long an answer is good for; times_as_long: or so many times as long as it has taken, where that is longer,
        so that what is dear is not asked for as often as what is cheap."""
        self._ask = ask
        self._fresh = fresh.total_seconds()
        self._times_as_long = times_as_long
        self._asking: asyncio.Task[T] | None = None
        self._good_until = float("-inf")

    async def get(self) -> T:
        """As old as it may be. Raises what asking raises, kept for a second: who does not answer is not asked by each page."""
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now >= self._good_until):
            self._asking = asyncio.create_task(self._asked())
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _asked(self) -> T:
        clock = asyncio.get_running_loop().time
        began, good_for = clock(), min(self._fresh, FAILED_SECONDS)
        try:
            answer = await self._ask()
            good_for = max(self._fresh, (clock() - began) * self._times_as_long)
            return answer
        finally:
            self._good_until = clock() + good_for


LINGERS = timedelta(seconds=10)
"""How long a cluster is asked about after the last one has looked: a page that is loaded anew finds its view."""
FRESH = timedelta(seconds=1)
"""How old an answer may be that is given to a caller who asks only once."""
READ_FRESH = timedelta(seconds=5)
"""How old a reading of a whole cluster may be that a page shows."""
REST = 50
"""And so many times as long as it took: pages get a fiftieth of the time for it, however large the cluster is."""
TRY_PAUSE, TRY_REST = timedelta(seconds=5), 10
"""Between two readings that one person has made anew: so long at least, and so many times as long as the last one took."""
NO_PERSONS = "which nodes need a person is not known"
MOST_DRAWN = 64
"""Of one reading: fleets by other labels and explanations of other nodes, and anybody may name one."""

Reading = Callable[[str], Awaitable[ClusterSnapshot]]
"""Reads a cluster as its API shows it now. Raises SilentError."""


class DrawnUp:
    """What was drawn up from one reading, as long as that is the last one."""

    def __init__(self) -> None:
        self._of: ClusterSnapshot | None = None
        self.fleets: dict[tuple[object, ...], FleetAnswer] = {}
        self.explanations: dict[str, Explanation] = {}

    def of(self, found: ClusterSnapshot) -> DrawnUp:
        """The same, empty where it was of another reading, or has become too much."""
        if self._of is not found or len(self.fleets) + len(self.explanations) >= MOST_DRAWN:
            self._of, self.fleets, self.explanations = found, {}, {}
        return self


class WatchedCluster:
    """One cluster's status, kept new while it is watched."""

    def __init__(self, warden: Nodewarden, cluster: str, reading: Reading | None) -> None:
        self.cluster = cluster
        self.read = Shared(lambda: read(reading, cluster), fresh=READ_FRESH, times_as_long=REST)
        """The cluster's objects, by the rights of this process. Raises SilentError."""
        # Each of them is asked for itself, which takes as long as there are many.
        self.kept: Shared[PreservedNodes] = Shared(lambda: warden.preserved(cluster), fresh=FRESH, times_as_long=10)
        self.devices: Shared[DeviceReport | None] = Shared(lambda: warden.device_check(cluster).last_report(), fresh=READ_FRESH)
        self._warden = warden
        self._devices_of: dict[str, Shared[DeviceReport]] = {}
        self._status: ClusterStatus | None = None
        self._asking: asyncio.Task[ClusterStatus] | None = None
        self._following: asyncio.Task[None] | None = None
        self._watchers = 0
        self._changed = asyncio.Condition()
        self._encoded: tuple[ClusterStatus | None, dict[str, tuple[bytes, str]]] = (None, {})
        self._drawn = DrawnUp()

    async def status(self) -> ClusterStatus:
        """What is known now: at most a second old, or as new as the watchers have it. Never raises: who does not answer is named
        in it."""
        known = self._status
        if known is not None and (self._following is not None or datetime.now(UTC) - known.at < FRESH):
            return known
        return await self._ask()

    async def renewed(self) -> ClusterStatus:
        """After a command: what was asked before that does not know of it."""
        if self._asking is not None:
            await asyncio.gather(asyncio.shield(self._asking), return_exceptions=True)
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

    async def fence_devices(self) -> DeviceReport | None:
        """As the last check has found them, and open episodes since; None before the first check. Raises RequestError."""
        report, status = await asyncio.gather(self.devices.get(), self.status())
        return acted_on(report, wording.failing(status.episodes)) if report is not None else None

    async def devices_of(self, node: str) -> DeviceReport:
        """What the devices of one node say, read at most once in some seconds however many look: each reading is a login to a
        BMC, and readers of the page may ask for it. Raises RequestError."""
        if node not in self._devices_of:
            self._devices_of[node] = Shared(lambda: self._warden.check_devices(self.cluster, node), fresh=READ_FRESH)
        return await self._devices_of[node].get()

    async def fleet(self, by: str) -> FleetAnswer:
        """All nodes, drawn up once for each reading and those that need a person then. Raises SilentError, UnreadableError."""
        found, status = await asyncio.gather(self.read.get(), self.status())
        persons = {each.node: each.problem or each.doing for each in status.episodes if each.phase is Phase.NEEDS_HUMAN}
        fleets, of = self._drawn.of(found).fleets, (by, *sorted(persons.items()))
        if of not in fleets:
            fleets[of] = fleet(self.cluster, found, by, persons)
        if status.unanswered:
            return replace(fleets[of], unread=(f"{NO_PERSONS}: {status.problem}", *fleets[of].unread))
        return fleets[of]

    async def explanation(self, node: str) -> tuple[ClusterSnapshot, Explanation]:
        """What all checks say of a node, found once for each reading. Raises SilentError."""
        found = await self.read.get()
        explanations, scanner = self._drawn.of(found).explanations, (await self.status()).scanner
        if scanner is not None and found.ledger.modes != scanner.modes:
            found.ledger.put_modes(scanner.modes)
            explanations.clear()
        if node not in explanations:
            explanations[node] = explain(found.ledger.known(found.now), node, found.owners, found.leased)
        return found, explanations[node]

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
        await asyncio.gather(*(each.close() for each in (self.read, self.kept, self.devices, *self._devices_of.values())))

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

    def __init__(
        self,
        warden: Nodewarden,
        clusters: tuple[str, ...],
        *,
        source: PolicySource | None = None,
        reading: Reading | None = None,
        temporal: TemporalUi | None = None,
        docs: str = "",
        offenders: OffenderRules | None = None,
    ) -> None:
        """source: which of two fence configurations holds, as the workers have it; None: what fencing would do is not shown.
        reading: by which a cluster's objects are read; None: they are not shown. temporal: where Temporal's own pages are; None:
        nothing leads there. docs: where our documentation is, "" for no links. offenders: as the workers have it."""
        self.temporal, self.docs = temporal, docs.rstrip("/")
        self.clusters = clusters
        self.offenders = offenders or OffenderRules()
        self.source = source
        self.warden = warden
        self._reading = reading
        self._anew = asyncio.Semaphore(1)
        self._rests: dict[str, float] = {}
        """Until when each person who has had a cluster read anew waits for the next one; without end while that lasts."""
        self._of = {name: WatchedCluster(warden, name, reading) for name in clusters}

    def of(self, cluster: str) -> WatchedCluster | None:
        """None of a cluster that the settings do not name."""
        return self._of.get(cluster)

    def known(self, cluster: str) -> WatchedCluster:
        """Raises MissingError, naming those that there are."""
        view = self.of(cluster)
        if view is None:
            raise MissingError(f"there is no cluster {cluster!r} among those known here: {', '.join(self.clusters) or 'none'}")
        return view

    @asynccontextmanager
    async def read_anew(self, cluster: str, who: str) -> AsyncIterator[ClusterSnapshot]:
        """A reading for a caller that changes it: one at a time, as each is a whole cluster's, and a person's next one after a
        pause. Raises SilentError."""
        view, clock = self.known(cluster), asyncio.get_running_loop().time
        self._rests = {name: until for name, until in self._rests.items() if until > clock()}
        if until := self._rests.get(who):
            how = "the last one of yours is not over yet" if until == math.inf else f"try again in {until - clock():.0f} s"
            raise SilentError(f"each try reads the whole cluster, so they wait for one another: {how}")
        self._rests[who], began = math.inf, clock()
        try:
            async with self._anew:
                began = clock()
                yield await read(self._reading, view.cluster)
        finally:
            self._rests[who] = clock() + max(TRY_PAUSE.total_seconds(), (clock() - began) * TRY_REST)

    async def close(self) -> None:
        """Ask no more."""
        await asyncio.gather(*(view.close() for view in self._of.values()))


def views_of(request: Request) -> Views:
    """Those that the application serves."""
    views: Views = request.app.state.views
    return views


async def read(reading: Reading | None, cluster: str) -> ClusterSnapshot:
    """Raises SilentError, also where nothing is read here."""
    if reading is None:
        raise SilentError("the cluster's objects are not read here: `nodewarden explain` reads them")
    return await reading(cluster)


async def explained(views: Views, cluster: str, node: str) -> NodeExplanation:
    """Why a node is, or is not, touched. Who does not answer is named. Raises SilentError where Temporal does not."""
    view = views.known(cluster)
    status = await view.status()
    episodes, observed = await asyncio.gather(
        views.warden.of_node(cluster, node),
        views.warden.observations.last_spells(cluster, node, lasting=status.scanner is not None),
    )
    problems, found, explanation = [status.problem] if status.problem else [], None, None
    try:
        found, explanation = await view.explanation(node)
    except RequestError as error:
        problems.insert(0, str(error))
    return NodeExplanation(
        node=node,
        at=found.now if found is not None else status.at,
        explanation=explanation,
        scanner=status.scanner,
        episodes=episodes,
        observed=observed,
        mistakes=found.mistakes if found is not None else (),
        problems=tuple(problems),
        unread=found is None,
        halted=_halted(status),
        scanner_silent=status.scanner is None and status.unanswered,
    )


def _halted(status: ClusterStatus) -> str:
    if status.scanner is not None:
        return obstacles.halted(status.scanner.report, status.scanner.pauses)
    return "" if status.unanswered else status.problem
