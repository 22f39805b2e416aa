"""What a coordination.k8s.io Lease says: who holds it, until when, and whether that can be relied on.

Reading only. The node lease that medik8s operators and we share is taken in `nodelease.py`; the cluster Lease that makes one
scanner the only one is renewed by the scan and merely checked here (S38).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.cluster.connection import ClusterConnection, JsonObject
from activities.cluster.paths import LEASES
from activities.cluster.refusals import ObjectNotFound

CLUSTER_LEASE_NAMESPACE = "kube-system"
CLUSTER_LEASE_NAME = "nodewarden"
CLUSTER_LEASE = LEASES.path(CLUSTER_LEASE_NAME, namespace=CLUSTER_LEASE_NAMESPACE)

STALE_AFTER_DURATIONS = 2
"""How many lease durations without a renewal end our trust: clocks of API clients differ by seconds, not by durations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A Lease as it stands. `renewed` and `duration` are None where it does not say, or not readably."""

    holder: str
    renewed: datetime | None
    duration: timedelta | None
    acquired: datetime | None = None
    transitions: int = 0

    @property
    def until(self) -> datetime | None:
        """When it lapses unless renewed."""
        return None if self.renewed is None or self.duration is None else self.renewed + self.duration

    def live(self, now: datetime) -> bool:
        """Whether somebody holds it. One that names a holder but no end counts as held: its owner meant something by it."""
        return bool(self.holder) and (self.until is None or now <= self.until)


def read_lease(document: JsonObject) -> LeaseView:
    """The fields of a Lease object."""
    spec = document.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    return LeaseView(
        holder=str(spec.get("holderIdentity") or ""),
        renewed=_moment(spec.get("renewTime")),
        duration=timedelta(seconds=seconds) if isinstance(seconds, int) and seconds > 0 else None,
        acquired=_moment(spec.get("acquireTime")),
        transitions=int(spec.get("leaseTransitions") or 0),
    )


async def cluster_lease_problem(connection: ClusterConnection, holder: str, now: datetime) -> str:
    """Why the cluster Lease is not provably held by `holder` at this moment (live read); "" when it is."""
    try:
        lease = read_lease(await connection.get(CLUSTER_LEASE))
    except ObjectNotFound:
        return f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME} does not exist: no scanner holds this cluster"
    if not holder or lease.holder != holder:
        return (
            f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME} is held by {lease.holder or 'nobody'!r},"
            f" not by {holder or 'a named scanner'!r}"
        )
    if lease.renewed is None or lease.duration is None:
        return f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME} does not say when it was renewed and for how long"
    age = now - lease.renewed
    if abs(age) > STALE_AFTER_DURATIONS * lease.duration:
        return (
            f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME} was last renewed"
            f" {age.total_seconds():.0f} s ago, too long for a duration of {lease.duration.total_seconds():.0f} s"
        )
    return ""


async def cluster_lease_taken(connection: ClusterConnection, holder: str, now: datetime) -> str:
    """Who else than `holder` may hold the cluster Lease at this moment (live read), in a sentence; "" where nobody does."""
    try:
        lease = read_lease(await connection.get(CLUSTER_LEASE))
    except ObjectNotFound:
        return ""
    lapsed = (
        lease.renewed is not None and lease.duration is not None and now - lease.renewed > STALE_AFTER_DURATIONS * lease.duration
    )
    if lapsed or lease.holder in ("", holder):
        return ""
    us = repr(holder or "a named scanner")
    return f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME} is held by {lease.holder!r}, not by {us}"


def micro_time(moment: datetime) -> str:
    """A moment as Leases and Events write it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
