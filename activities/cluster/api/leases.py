"""What a coordination.k8s.io Lease says: who holds it, until when, and whether that can be relied on.

Reading only. The node lease that medik8s operators and we share is taken in `nodelease.py`; the cluster Lease that makes one
scanner the only one is renewed by the scan and merely checked here (S38).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import LEASES
from activities.cluster.api.refusals import ObjectNotFound
from policy.values.moments import later

CLUSTER_LEASE_NAMESPACE = "kube-system"
CLUSTER_LEASE_NAME = "nodewarden"
CLUSTER_LEASE = LEASES.path(CLUSTER_LEASE_NAME, namespace=CLUSTER_LEASE_NAMESPACE)

STALE_AFTER_DURATIONS = 2
"""How many lease durations without a renewal end our trust: clocks of API clients differ by seconds, not by durations."""
LONGEST_SECONDS = 2**31 - 1
"""What the API takes."""


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
        return None if self.renewed is None or self.duration is None else later(self.renewed, self.duration)

    def live(self, now: datetime) -> bool:
        """Whether somebody holds it. One that names a holder but no end counts as held: its owner meant something by it."""
        return bool(self.holder) and (self.until is None or now <= self.until)


def read_lease(document: JsonObject) -> LeaseView:
    """The fields of a Lease object."""
    spec = document.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    return LeaseView(
        holder=str(spec.get("holderIdentity") or ""),
        renewed=_moment(spec.get("renewTime")),
        duration=timedelta(seconds=min(seconds, LONGEST_SECONDS)) if isinstance(seconds, int) and seconds > 0 else None,
        acquired=_moment(spec.get("acquireTime")),
        transitions=transitions if isinstance(transitions, int) else 0,
    )


async def cluster_lease_problem(connection: ClusterConnection, holder: str, now: datetime, *, restores: bool = False) -> str:
    """Why the cluster Lease is not provably held by `holder` at this moment (live read); "" when it is.

    restores: what is to be done only gives back, so that it is enough that nobody else may hold it. One that was renewed in a
    future moment is nobody's proof, and may be somebody's all the same.
    """
    lease_of = f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME}"
    try:
        lease = read_lease(await connection.get(CLUSTER_LEASE))
    except ObjectNotFound:
        return "" if restores else f"{lease_of} does not exist: no scanner holds this cluster"
    age = now - lease.renewed if lease.renewed is not None else None
    longest = STALE_AFTER_DURATIONS * lease.duration if lease.duration is not None else None
    if restores and (lease.holder in ("", holder) or (age is not None and longest is not None and age > longest)):
        return ""
    if not holder or lease.holder != holder:
        return f"{lease_of} is held by {lease.holder or 'nobody'!r}, not by {holder or 'a named scanner'!r}"
    if age is None or longest is None:
        return f"{lease_of} does not say when it was renewed and for how long"
    if abs(age) > longest:
        too_long = f"too long for a duration of {longest.total_seconds() / STALE_AFTER_DURATIONS:.0f} s"
        return f"{lease_of} was last renewed {age.total_seconds():.0f} s ago, {too_long}"
    return ""


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
