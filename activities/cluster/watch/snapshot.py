"""One reading of a live cluster, for people who ask: the objects that health checks are about, listed once.

A scanner never works from this; it follows (`watches.py`). Discovery that the server does not know are passed over; what may
not be read is said.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.leases import NODE_LEASE_NAMESPACE
from activities.cluster.api.paths import (
    CAPI_CLUSTERS,
    CONFIG_MAPS,
    KUBEADM_CONTROL_PLANES,
    LEASES,
    MACHINES,
    NODES,
    Resource,
    ref_of,
)
from activities.cluster.api.served_cluster import Connections, Discovery, as_served
from activities.cluster.live.templates import see_templates
from activities.cluster.objects.clusters_decoding import CLUSTER_DECODING, remediation_decoding
from activities.cluster.objects.conflicts import Conflicts
from activities.cluster.objects.decoding import NODE_DECODING, Decoding
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.objects.object_reader import read_views
from activities.cluster.watch.intake import SURROUNDING_KINDS
from activities.cluster.watch.kinds import made_for
from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
from activities.cluster.watch.watches import POLICY_KINDS
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import Overlap
from policy.checks.retries import RetryRules
from policy.checks.rival_controllers import LEADER_LEASES
from policy.dialects.node_fencing import is_cluster_config, is_fence_policy
from policy.objects.belonging import cluster_named_by
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.remediation.memory import DEFAULT_RETRIES, OWNERS_OWN
from policy.remediation.remediation_objects import REMEDIATORS, Remediator
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
from policy.values.object_refs import Dialect

T = TypeVar("T")


async def take_snapshot(
    connection: ClusterConnection,
    *,
    machines: ClusterConnection | None,
    overlap: Overlap,
    takeover: bool,
    now: datetime | None = None,
    source: PolicySource = DEFAULT_SOURCE,
    retries: RetryRules = DEFAULT_RETRIES,
    leased: bool = True,
    remediators: tuple[Remediator, ...] = REMEDIATORS,
) -> ClusterSnapshot:
    """Everything at one moment: by default that of the API server's clock, by which the scanner judges too. What can't be read
    is a mistake. leased: also whom others hold by their node lease, which workers may not list. Raises what the API refuses where
    not even Nodes can be listed."""
    nodes = await read_views(connection, NODES, NODE_DECODING)
    now = now or connection.now()  # the server's clock is known by its first answer
    cluster = ClusterSnapshot(now, overlap=overlap, sees_all_nodes=False, policies=source, retries=retries)
    for node in nodes:
        _note_unreadable(cluster, NODES, node)
        cluster.ledger.put_node(node, now)
    conflicts = Conflicts(cluster.ledger, takeover=takeover)
    elsewhere = machines or connection
    dialects = set()
    for resource, dialect in POLICY_KINDS.items():
        for obj in await _listed(cluster, elsewhere if dialect is Dialect.CLUSTER_API else connection, resource):
            dialects.add(dialect)
            cluster.put(obj, resource.plural)
            conflicts.check_changed(dialect, ref_of(obj), obj)
    for obj in await _listed(cluster, connection, CONFIG_MAPS, namespace=source.namespace):
        if is_cluster_config(obj) or is_fence_policy(obj):
            cluster.put(obj, CONFIG_MAPS.plural)
            dialects.add(Dialect.NODE_FENCING)
    for resource in SURROUNDING_KINDS if dialects else ():
        for obj in await _listed(cluster, connection, resource):
            cluster.put(obj, resource.plural)
    owned = False
    for api, holder in ((OPENSHIFT, connection), (CLUSTER_API, elsewhere)):
        resource = MACHINES[api]
        for machine in await _tried(cluster, holder, resource, machine_decoding(api)) if dialects else ():
            _note_unreadable(cluster, resource, machine)
            cluster.ledger.put_machine(machine, now)
            owned |= machine.controller.startswith(f"{OWNERS_OWN}/")
    for control_plane in await _listed(cluster, elsewhere, KUBEADM_CONTROL_PLANES) if owned else ():
        cluster.put(control_plane, KUBEADM_CONTROL_PLANES.plural)
    named = bool(dialects) or any(map(cluster_named_by, nodes))
    for each in await _tried(cluster, elsewhere, CAPI_CLUSTERS, CLUSTER_DECODING) if named else ():
        cluster.ledger.put_cluster(each, now)
    made = {key: (check.dialect, resources) for check in cluster.checks for key, resources in made_for(check).items()}
    for dialect, resources in made.values():
        for resource in resources:
            there = elsewhere if dialect is Dialect.CLUSTER_API else connection
            decoding = remediation_decoding(resource.api_version, resource.kind, remediators)
            for found in await _tried(cluster, there, resource, decoding):
                cluster.ledger.put_remediation(found, now)
    for lease in await _listed(cluster, connection, LEASES, namespace=NODE_LEASE_NAMESPACE) if dialects and leased else ():
        cluster.put(lease, LEASES.plural)
    for dialect in dialects & LEADER_LEASES.keys():
        leader = elsewhere if dialect is Dialect.CLUSTER_API else connection
        for lease in await _listed(cluster, leader, LEASES, only=LEADER_LEASES[dialect]):
            metadata = lease["metadata"]
            conflicts.lease_changed(dialect, f"{metadata.get('namespace')}/{metadata['name']}", lease, now)
    connections = Connections(nodes=connection, machines=elsewhere)
    kinds = Connections(nodes=Discovery(connection), machines=Discovery(elsewhere))
    for check in cluster.checks:
        cluster.templates[check.ref.key] = await see_templates(check, connections, kinds)
    cluster.judge_templates()
    conflicts.hold(now)
    cluster.finish()
    return cluster


def _note_unreadable(cluster: ClusterSnapshot, resource: Resource, view: NodeView | MachineView) -> None:
    """It counts all the same, as it does for the scanner."""
    if view.unreadable:
        namespace = view.namespace if isinstance(view, MachineView) else ""
        ref = resource.ref(view.name, namespace)
        message = f"expected a {resource.kind}: {view.unreadable}"
        cluster.mistakes.append(ManifestMistake(source=resource.plural, ref=ref, message=message))


async def _tried(cluster: ClusterSnapshot, connection: ClusterConnection, resource: Resource, decoding: Decoding[T]) -> list[T]:
    """The same for a kind without which there is still something to tell."""
    try:
        return await as_served(resource, lambda version: read_views(connection, version, decoding)) or []
    except ApplicationError as error:
        cluster.mistakes.append(ManifestMistake(source=connection.url, message=f"{resource.plural}: {error.message}"))
        return []


async def _listed(
    cluster: ClusterSnapshot, connection: ClusterConnection, resource: Resource, *, only: str = "", namespace: str = ""
) -> list[JsonObject]:
    query = {"fieldSelector": f"metadata.name={only}"} if only else None

    async def listed(version: Resource) -> list[JsonObject]:
        return [version.whole(each) for each in await connection.list_objects(version.path(namespace=namespace), query=query)]

    try:
        return await as_served(resource, listed) or []
    except ApplicationError as error:
        cluster.mistakes.append(ManifestMistake(source=connection.url, message=f"{resource.plural}: {error.message}"))
        return []
