"""What there is of a node or machine that steps of a remediation can be taken about, read once for people who ask.

A remediation finds the same when it begins (`remediating.py`); here nothing of it is pinned.
"""

from __future__ import annotations

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.machine_paths import in_management_cluster, machines_named, resource_of
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.live.owning import machine_of
from activities.cluster.objects.livenode import find_node
from activities.cluster.objects.machine_objects import controller_of, phase_of
from policy.checks.targets import MACHINE
from policy.remediation.ladder import Body
from policy.values.object_refs import ObjectRef


async def body_of(name: str, nodes: ClusterConnection, machines: ClusterConnection) -> Body | None:
    """Of a Node, or of a Machine named `machine/<namespace>/<name>`; None where there is neither. Errors: InvalidConfig where
    several Machines claim the Node."""
    node = None if name.startswith(MACHINE) else await find_node(nodes, name)
    refs = [await machine_of(node, nodes, machines)] if node is not None else [*_named(name)]
    for ref in refs:
        elsewhere = ref is not None and in_management_cluster(ref.api_version)
        document = await _read(ref, machines if elsewhere else nodes) if ref is not None else None
        if document is not None:
            return Body(has_node=node is not None, phase=phase_of(document), owner=controller_of(document))
    return Body(has_node=True) if node is not None else None


def _named(name: str) -> list[ObjectRef]:
    namespace, _, own = name.removeprefix(MACHINE).partition("/")
    return machines_named(namespace, own) if namespace and own else []


async def _read(ref: ObjectRef, connection: ClusterConnection) -> JsonObject | None:
    try:
        return await connection.get(resource_of(ref).path(ref.name, namespace=ref.namespace))
    except ObjectNotFound:
        return None
