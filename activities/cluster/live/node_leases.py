"""Leases of nodes, by which medik8s operators, node maintenance and we keep out of each other's way.

`medik8s-leases/node-<name>`, one holder at a time, taken by create or by an update on the resourceVersion that was read, so
that of two takers one loses. Ours is ownerless on purpose: a lease owned by its Node would vanish with a Node that is deleted in
mid-episode.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.lease_view import (
    IDENTITY,
    NODE_LEASE_NAMESPACE,
    LeaseView,
    micro_time,
    node_lease_holder,
    read_lease,
)
from activities.cluster.api.paths import LEASES, NAMESPACES
from activities.cluster.api.refusals import ObjectExists, ObjectNotFound, edit, unless_gone
from activities.cluster.live.cluster_lease import cluster_lease_problem
from activities.contracts.target import ReleaseRequest, Target
from activities.worker_clock import Clock, utc_now
from policy.remediation.remediation_objects import INCIDENT_ANNOTATION

JUST_RENEWED = timedelta(seconds=10)
"""Of the minute by which a lease outlasts its step (`lease_duration`), so much may be over before it is renewed."""


def node_lease_path(node: str) -> str:
    return LEASES.path(f"node-{node}", namespace=NODE_LEASE_NAMESPACE)


async def foreign_lease(connection: ClusterConnection, node: str, holder: str, now: datetime) -> LeaseView | None:
    """The node's lease, if another owner holds it at this moment (live read). holder: who we are in the cluster Lease."""
    document = await unless_gone(connection.get(node_lease_path(node)))
    lease = read_lease(document) if document is not None else None
    return lease if lease is not None and await _is_foreign(connection, lease, holder, now) else None


async def take_node_lease(
    connection: ClusterConnection,
    target: Target,
    holder: str,
    duration: timedelta,
    *,
    not_after: datetime | None = None,
    clock: Clock = utc_now,
) -> LeaseView | None:
    """Take, renew or take over (once lapsed) the node's lease. Answers the lease of another holder, None where it is ours now.
    One that is taken too late would be held for its whole duration and given back by none. holder: who we are in the cluster
    Lease, which is asked right before."""
    path = node_lease_path(target.pinned.node)

    async def once() -> LeaseView | None:
        document = await unless_gone(connection.get(path))
        now = clock()  # after the reading: the worker may have stood still meanwhile
        seconds = int(duration.total_seconds())
        taken = {"holderIdentity": node_lease_holder(holder), "leaseDurationSeconds": seconds, "renewTime": micro_time(now)}
        if document is None:
            await _create(connection, target, taken | {"acquireTime": taken["renewTime"], "leaseTransitions": 0}, not_after)
            return None
        lease = read_lease(document)
        if await _is_foreign(connection, lease, holder, now):
            return lease
        if not (not_after and now > not_after) and _is_just_taken(document, target, taken, lease.renewed, now):
            return None
        if not _is_ours(lease, holder):
            taken |= {"acquireTime": taken["renewTime"], "leaseTransitions": lease.transitions + 1}
        await connection.replace(path, _taken(document, target, taken), not_after=not_after)
        return None

    return await edit(f"the lease of Node/{target.pinned.node}", once, may_vanish=True)


async def release_node_lease(connection: ClusterConnection, request: ReleaseRequest, clock: Clock = utc_now) -> None:
    """Delete the node's lease if this episode took it, or its predecessor of which it adopted the marks; not where another
    deployment has the cluster by now (S38): it lapses by itself then."""
    path = node_lease_path(request.target.pinned.node)
    if await cluster_lease_problem(connection, request.holder, clock(), restores=True):
        return

    async def once() -> None:
        document = await connection.get(path)
        metadata = document["metadata"]
        taken_by = (metadata.get("annotations") or {}).get(INCIDENT_ANNOTATION, "")
        if _is_ours(read_lease(document), request.holder) and taken_by in ("", request.target.incident, request.adopted):
            await connection.delete(path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])

    with suppress(ObjectNotFound):
        await edit(f"the lease of Node/{request.target.pinned.node}", once)


async def _create(connection: ClusterConnection, target: Target, spec: JsonObject, not_after: datetime | None) -> None:
    collection = LEASES.path(namespace=NODE_LEASE_NAMESPACE)
    metadata = {
        "name": f"node-{target.pinned.node}",
        "namespace": NODE_LEASE_NAMESPACE,
        "annotations": {INCIDENT_ANNOTATION: target.incident},
    }
    lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
    try:
        await connection.create(collection, lease, not_after=not_after)
    except ObjectNotFound:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_LEASE_NAMESPACE}}
        with suppress(ObjectExists):  # another taker was faster
            await connection.create(NAMESPACES.path(), namespace)
        raise  # and anew


def _taken(document: JsonObject, target: Target, taken: JsonObject) -> JsonObject:
    """The lease as read, in our name; its resourceVersion makes the PUT fail if another taker was faster."""
    metadata = dict(document["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), INCIDENT_ANNOTATION: target.incident}
    metadata.pop("ownerReferences", None)
    return {**document, "metadata": metadata, "spec": {**(document.get("spec") or {}), **taken}}


def _is_just_taken(document: JsonObject, target: Target, taken: JsonObject, renewed: datetime | None, now: datetime) -> bool:
    """Whether a look of this episode has taken it for as long, moments ago."""
    if renewed is None or not timedelta(0) <= now - renewed <= JUST_RENEWED:
        return False
    return document == _taken(document, target, taken | {"renewTime": document["spec"]["renewTime"]})


async def _is_foreign(connection: ClusterConnection, lease: LeaseView, holder: str, now: datetime) -> bool:
    """Whether another owner holds it at that moment. While the cluster Lease is ours, another deployment of nodewarden acts no
    more, and what it has left is ours to take (S38)."""
    if _is_ours(lease, holder) or not lease.live(now):
        return False
    of_a_deployment = lease.holder.startswith(f"{IDENTITY}/")
    return not of_a_deployment or bool(await cluster_lease_problem(connection, holder, now))


def _is_ours(lease: LeaseView, holder: str) -> bool:
    """Earlier builds did not say which deployment it was."""
    return lease.holder in (IDENTITY, node_lease_holder(holder))
