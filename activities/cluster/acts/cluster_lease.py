"""The cluster Lease: one scanner per cluster, whatever Temporal server it runs on (S38).

Taken and renewed by the scan, and only while something asks us to act: without a policy nothing is ever written to a cluster.
The holder is the scanner (its Temporal address and namespace), not this worker, so any worker may renew for it. Workers know
each other by its versions: one that scans learns that another one has taken its place, or that the scanner has given the Lease
back, when it can't renew what it has written last; the others learn that it is lost when nothing renews. What a Lease object
says is read in `api/lease_view.py`; that this one is held the last look checks in `live/cluster_lease.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.lease_view import (
    CLUSTER_LEASE_NAME,
    CLUSTER_LEASE_NAMESPACE,
    LeaseView,
    micro_time,
    read_lease,
)
from activities.cluster.api.paths import LEASES
from activities.cluster.api.refusals import ObjectConflict, ObjectNotFound, edit, unless_gone
from activities.errors import ErrorType, error_type
from policy.scan.scan_report import ClusterLease
from policy.values.times import written

log = logging.getLogger(__name__)

NOT_NEEDED = ClusterLease(held=False, needed=False)
RENEWALS = 7.5
"""So often it is renewed in the time that it lasts: every 4 s."""
LOST_AFTER, ABANDONED_AFTER = 1.5 / RENEWALS, 3
"""Where it stands still: so many times as long as it lasts. Then no scan runs where one ran; no scan can run anywhere."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A Lease that this process does not renew. seconds: since when we have seen that version, by our own clock."""

    version: str
    holder: str
    seconds: float


class NotAsWritten(Exception):  # noqa: N818 - what other workers do, not a mistake
    """Another worker has written the Lease since this one did, or it was given back."""


class ScannerLease:
    """Our side of the cluster Lease of one cluster, as this process sees it."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        namespace: str = CLUSTER_LEASE_NAMESPACE,
        name: str = CLUSTER_LEASE_NAME,
        duration: timedelta = timedelta(seconds=30),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.duration = duration
        self._connection = connection
        self._namespace, self._name = namespace, name
        self._path = LEASES.path(name, namespace=namespace)
        self._called = f"Lease {namespace}/{name}"
        self._clock = clock
        self._monotonic = monotonic
        self._held_until = float("-inf")
        self._held_for = ""
        self._written: JsonObject | None = None
        """As this process has written it last, None where another one has written since, or where that is not known."""
        self._foreign: tuple[LeaseView, str, float] | None = None
        self._seen = ("", 0.0)
        """What was seen of it last: its version, "" where none holds it, and since when that is so."""
        self._logged = ""

    @property
    def renewal(self) -> float:
        """Seconds between renewals."""
        return self.duration.total_seconds() / RENEWALS

    async def keep(self, holder: str, *, as_written: bool = False) -> ClusterLease:
        """Take, renew or take over the Lease for `holder`. Refusals and failures are in the answer, never raised.

        as_written: only renew what this process has written last. Raises NotAsWritten where that can't be.
        """
        began = self._monotonic()
        try:
            lease = await self._keep(holder, as_written=as_written)
        except NotAsWritten:
            self._held_until, self._held_for = float("-inf"), ""
            raise
        except ApplicationError as error:
            # What we renewed a moment ago is ours until it lapses, whether or not the API answers now.
            held = holder == self._held_for and began < self._held_until
            lease = ClusterLease(held=held, holder=holder if held else "", problem=f"cannot renew it: {error.message}")
        else:
            self._held_for = holder if lease.held else ""
            self._held_until = began + self.duration.total_seconds() if lease.held else float("-inf")
        self._log_change(lease)
        return lease

    def show(self, document: JsonObject | None) -> str:
        """What is seen of it, also by a watch: None, that there is none. The answer is its holder."""
        holder = read_lease(document).holder if document is not None else ""
        version = str(document["metadata"].get("resourceVersion", "")) if document is not None and holder else ""
        if version != self._seen[0]:
            self._seen = (version, self._monotonic())
        return holder

    async def standstill(self, *, watched: bool = False) -> Standstill | None:
        """As it stands. None where it is given back, names no holder, or can't be read. watched: `show` is called with each
        change, so that it is read only once it has stood still for a while; None before that."""
        version, since = self._seen
        if watched and (not version or self._monotonic() - since < LOST_AFTER * self.duration.total_seconds()):
            return None
        try:
            document = await unless_gone(self._connection.get(self._path))
        except ApplicationError:
            return None
        holder = self.show(document)
        return Standstill(self._seen[0], holder, self._monotonic() - self._seen[1]) if holder else None

    async def release(self, holder: str) -> None:
        """Give it back if it is ours; one that is missing or foreign is left alone."""
        self._held_until, self._held_for, self._written = float("-inf"), "", None

        async def once() -> None:
            document = await self._connection.get(self._path)
            if read_lease(document).holder == holder:
                metadata = document["metadata"]
                await self._connection.delete(self._path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])

        with suppress(ObjectNotFound):
            await edit(self._called, once)

    async def _keep(self, holder: str, *, as_written: bool) -> ClusterLease:
        async def once() -> ClusterLease:
            if as_written and self._written is None:
                raise NotAsWritten
            # What we have written last needs no reading: it is written in that version, or not at all.
            document = self._written or await unless_gone(self._connection.get(self._path))
            if document is not None:
                lease = read_lease(document)
                if lease.holder and lease.holder != holder and not self._lapsed(lease, document):
                    self._written = None
                    return self._refused(lease)
            now = micro_time(self._clock())
            try:
                self._written = await self._write(document, holder, now)
            except (ObjectConflict, ObjectNotFound):
                self._written = None
                raise
            except ApplicationError as error:
                if error_type(error) is not ErrorType.AMBIGUOUS or (arrived := await self._arrived(holder, now)) is None:
                    raise
                self._written = arrived
            self._foreign = None
            return ClusterLease(held=True, holder=holder)

        return await edit(self._called, once, may_vanish=True)

    def _lapsed(self, lease: LeaseView, document: JsonObject) -> bool:
        """Whether a foreign holder has let its Lease lapse, by our own clock alone: clocks of two machines may differ by more
        than a Lease lasts, so what counts is that it has not changed for its whole duration since we first saw it."""
        now = self._monotonic()
        version = str(document["metadata"].get("resourceVersion", ""))
        if self._foreign is None or self._foreign[1] != version:
            self._foreign = (lease, version, now)
        if lease.duration is None:
            return False  # it names no end, so it has none; a person may delete it
        return now - self._foreign[2] > lease.duration.total_seconds()

    def _refused(self, lease: LeaseView) -> ClusterLease:
        since = f" since {written(lease.acquired)}" if lease.acquired else ""
        return ClusterLease(
            held=False,
            holder=lease.holder,
            problem=f"{self._called} is held by {lease.holder!r}{since}: that scanner has this cluster",
        )

    async def _write(self, document: JsonObject | None, holder: str, now: str) -> JsonObject:
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self.duration.total_seconds())),
            "renewTime": now,
        }
        if document is None:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": {**spec, "acquireTime": now, "leaseTransitions": 0},
            }
            return await self._connection.create(LEASES.path(namespace=self._namespace), body)
        before = read_lease(document)
        if before.holder != holder:
            spec |= {"acquireTime": now, "leaseTransitions": before.transitions + 1}
        # The resourceVersion that was read travels along: of two takers one gets a conflict.
        return await self._connection.replace(self._path, {**document, "spec": {**(document.get("spec") or {}), **spec}})

    async def _arrived(self, holder: str, now: str) -> JsonObject | None:
        """What is there after the answer to that write was lost; None where it is not that."""
        document = await self._connection.get(self._path)
        spec = document.get("spec") or {}
        return document if (spec.get("holderIdentity"), spec.get("renewTime")) == (holder, now) else None

    def _log_change(self, lease: ClusterLease) -> None:
        state = lease.problem or f"held by {lease.holder!r}"
        if state != self._logged:
            log.log(logging.WARNING if lease.problem else logging.INFO, "cluster lease: %s", state)
            self._logged = state


class LeaseRenewal:
    """Renews beside the scans that need it, so that none waits for a renewal unless it has to."""

    def __init__(self, lease: ScannerLease, *, on_change: Callable[[], None]) -> None:
        self._lease = lease
        self._on_change = on_change
        self._known: ClusterLease | None = None
        self._holder = ""
        self._kept_at = float("-inf")
        self._keeping: asyncio.Task[None] | None = None

    async def current(self, holder: str, *, needed: bool) -> ClusterLease:
        """How the Lease stands. Taken now where it was not, renewed in the background where that is due."""
        if not needed:
            return NOT_NEEDED
        if self._age() > 2 * self._lease.renewal:
            # Not cancelled with the scan: a renewal that is under way is finished for the next one.
            await asyncio.shield(self._begin(holder))
        while self._known is None or holder != self._holder:
            await asyncio.shield(self._begin(holder))
        if self._age() >= self._lease.renewal:
            self._begin(holder)
        return self._known

    async def take(self, holder: str) -> ClusterLease:
        """Written now, by whichever worker it was written last."""
        self._kept_at = float("-inf")
        return await self.current(holder, needed=True)

    async def renew(self, holder: str) -> bool:
        """Renew it now. False where another worker has written it since this one did, or it was given back."""
        await asyncio.shield(self._begin(holder, as_written=True))
        return self._known is not None

    def known_to(self, holder: str) -> ClusterLease | None:
        """As it stands, where that holder has it; None else."""
        return self._known if self._known is not None and self._known.held and holder == self._holder else None

    def is_of_another(self, holder: str) -> bool:
        """Whether it was last seen in the hands of another scanner than that one."""
        return self._known is not None and not self._known.held and self._known.holder not in {"", holder}

    def seconds_left(self) -> float:
        """Until the next renewal is due."""
        return float("inf") if self._keeping is not None else max(self._lease.renewal - self._age(), 0.01)

    async def release(self, holder: str) -> None:
        """Give it back, after whatever renewal is under way."""
        await self.stop()
        self._known = None
        await self._lease.release(holder)

    async def stop(self) -> None:
        """Renew no more."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._kept_at

    def _begin(self, holder: str, *, as_written: bool = False) -> asyncio.Task[None]:
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(holder, as_written=as_written), name="cluster lease")
        return self._keeping

    async def _keep(self, holder: str, *, as_written: bool) -> None:
        before, began = self._known, asyncio.get_running_loop().time()
        try:
            self._known, self._holder = await self._lease.keep(holder, as_written=as_written), holder
            self._kept_at = began
        except NotAsWritten:
            self._known = None
        finally:
            self._keeping = None
        if self._known != before:
            self._on_change()
