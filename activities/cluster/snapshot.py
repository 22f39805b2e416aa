"""One reading of a live cluster, for people who ask: the objects that health checks are about, listed once.

A scanner never works from this; it follows (`following.py`). Kinds that the server does not know are passed over; what may not be
read is said.
"""

from __future__ import annotations

from datetime import datetime

from temporalio.exceptions import ApplicationError

from activities.cluster.conflicts import Conflicts
from activities.cluster.connection import ClusterConnection, JsonObject
from activities.cluster.decoding import NODE_DECODING
from activities.cluster.following import OLDER_VERSION, POLICY_KINDS
from activities.cluster.intake import SURROUNDING_KINDS
from activities.cluster.offline import Mistake, OfflineCluster
from activities.cluster.paths import CAPI_CLUSTERS, CAPI_MACHINES, LEASES, NODES, OPENSHIFT_MACHINES, Resource, in_version
from activities.cluster.refusals import ObjectNotFound
from policy.conflicts import LEADER_LEASES
from policy.healthcheck import Dialect, ObjectRef
from policy.overlaps import Overlap


async def take_snapshot(
    connection: ClusterConnection, *, machines: ClusterConnection | None, overlap: Overlap, takeover: bool, now: datetime
) -> OfflineCluster:
    """Everything at that moment. Raises what the API refuses where not even Nodes can be listed."""
    cluster = OfflineCluster(now, overlap=overlap, sees_all_nodes=False)
    async for page in connection.list_pages(NODES.path()):
        for item in NODE_DECODING.items(page.body):
            cluster.ledger.put_node(item.value, now)
    conflicts = Conflicts(cluster.ledger, takeover=takeover)
    elsewhere = machines or connection
    dialects = set()
    for resource, dialect in POLICY_KINDS.items():
        for obj in await _listed(cluster, elsewhere if dialect is Dialect.CLUSTER_API else connection, resource):
            dialects.add(dialect)
            cluster.put(obj, resource.plural)
            metadata = obj["metadata"]
            ref = ObjectRef(
                api_version=str(obj["apiVersion"]),
                kind=resource.kind,
                name=str(metadata["name"]),
                namespace=str(metadata.get("namespace") or ""),
            )
            conflicts.check_changed(dialect, ref, obj)
    wanted: list[tuple[ClusterConnection, Resource]] = [(connection, resource) for resource in SURROUNDING_KINDS if dialects]
    if Dialect.OPENSHIFT in dialects:
        wanted.append((connection, OPENSHIFT_MACHINES))
    if Dialect.CLUSTER_API in dialects:
        wanted += [(elsewhere, CAPI_MACHINES), (elsewhere, CAPI_CLUSTERS)]
    for source, resource in wanted:
        for obj in await _listed(cluster, source, resource):
            cluster.put(obj, resource.plural)
    for dialect in dialects:
        source = elsewhere if dialect is Dialect.CLUSTER_API else connection
        for lease in await _listed(cluster, source, LEASES, only=LEADER_LEASES[dialect]):
            metadata = lease["metadata"]
            conflicts.lease_changed(dialect, f"{metadata.get('namespace')}/{metadata['name']}", lease, now)
    conflicts.hold(now)
    cluster.finish()
    return cluster


async def _listed(
    cluster: OfflineCluster, connection: ClusterConnection, resource: Resource, *, only: str = ""
) -> list[JsonObject]:
    versions = [resource]
    if resource.api_version.startswith("cluster.x-k8s.io/"):
        versions.append(in_version(resource, OLDER_VERSION))
    for version in versions:
        try:
            found = await connection.list_objects(
                version.path(), query={"fieldSelector": f"metadata.name={only}"} if only else None
            )
        except ObjectNotFound:
            continue
        except ApplicationError as error:
            cluster.mistakes.append(Mistake(source=connection.url, message=f"{resource.plural}: {error.message}"))
            return []
        return [{"apiVersion": version.api_version, "kind": version.kind, **each} for each in found]
    return []
