"""Whether the cluster Lease, which makes one scanner the only one, is provably ours at this moment (S38)."""

from __future__ import annotations

from datetime import datetime

from activities.cluster.api.lease_view import CLUSTER_LEASE, CLUSTER_LEASE_NAME, CLUSTER_LEASE_NAMESPACE, read_lease
from activities.cluster.api.refusals import unless_gone
from activities.cluster.objects.object_reader import ApiReader

STALE_AFTER_DURATIONS = 2
"""How many lease durations without a renewal end our trust: clocks of API clients differ by seconds, not by durations."""


async def cluster_lease_problem(connection: ApiReader, holder: str, now: datetime, *, restores: bool = False) -> str:
    """Why the cluster Lease is not provably held by `holder` at this moment (live read); "" when it is.

    restores: what is to be done only gives back, so that it is enough that no other scanner may hold it. One that was renewed
    in a future moment proves no holder, and may have one all the same.
    """
    lease_of = f"Lease {CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME}"
    document = await unless_gone(connection.get(CLUSTER_LEASE))
    if document is None:
        return "" if restores else f"{lease_of} does not exist: no scanner holds this cluster"
    lease = read_lease(document)
    age = now - lease.renewed if lease.renewed is not None else None
    longest = STALE_AFTER_DURATIONS * lease.duration if lease.duration is not None else None
    if restores and (lease.holder in ("", holder) or (age is not None and longest is not None and age > longest)):
        return ""
    if not holder or lease.holder != holder:
        return f"{lease_of} is held by {lease.holder or 'no scanner'!r}, not by {holder or 'a named scanner'!r}"
    if age is None or longest is None:
        return f"{lease_of} does not say when it was renewed and for how long"
    if abs(age) > longest:
        too_long = f"too long for a duration of {longest.total_seconds() / STALE_AFTER_DURATIONS:.0f} s"
        return f"{lease_of} was last renewed {age.total_seconds():.0f} s ago, {too_long}"
    return ""
