"""Which Machine a Node is of, where nobody has said so: a person who has a machine kept names its Node.

The Node says it by annotation where OpenShift or Cluster API made it; machine-controller-manager labels its Machines with their
Node's name. The Machine's own `nodeRef` has the last word: an annotation alone never makes a Machine somebody's (S9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.machine_paths import MACHINES, ref_in, versions_of
from activities.cluster.api.paths import Resource
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.objects.livenode import LiveNode
from activities.cluster.objects.machines_decoding import decode_machine
from activities.errors import ErrorType, failure
from policy.checks.inventory import CAPI_MACHINE_ANNOTATION, CLUSTER_NAMESPACE_ANNOTATION, OPENSHIFT_MACHINE_ANNOTATION
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a Machine would be that an annotation names."""

    connection: ClusterConnection
    resource: Resource
    api: MachineApi
    namespace: str
    name: str


async def machine_of(node: LiveNode, nodes: ClusterConnection, machines: ClusterConnection) -> ObjectRef | None:
    """The Machine of that Node, None for a Node that belongs to none. InvalidConfig where several claim it."""
    for place in _named(node.annotations, nodes, machines):
        if await _refers_to(place, node.view.name):
            return ref_in(place.resource, place.namespace, place.name)
    return await _labelled(node.view.name, nodes)


def _named(annotations: Mapping[str, str], nodes: ClusterConnection, machines: ClusterConnection) -> list[_Place]:
    places = []
    namespace, _, name = annotations.get(OPENSHIFT_MACHINE_ANNOTATION, "").partition("/")
    if namespace and name:
        places.append(_Place(nodes, MACHINES[OPENSHIFT], OPENSHIFT, namespace, name))
    namespace, name = annotations.get(CLUSTER_NAMESPACE_ANNOTATION, ""), annotations.get(CAPI_MACHINE_ANNOTATION, "")
    if namespace and name:
        versions = versions_of(MACHINES[CLUSTER_API])
        places += [_Place(machines, resource, CLUSTER_API, namespace, name) for resource in versions]
    return places


async def _refers_to(place: _Place, node: str) -> bool:
    path = place.resource.path(place.name, namespace=place.namespace)
    try:
        machine = decode_machine(await place.connection.get_bytes(path), place.api)
    except ObjectNotFound:
        return False
    except (msgspec.MsgspecError, ValueError) as error:
        raise failure(ErrorType.INVALID_CONFIG, f"Machine/{place.namespace}/{place.name}: {error}") from error
    return machine.node_name == node


async def _labelled(node: str, nodes: ClusterConnection) -> ObjectRef | None:
    """One that is being deleted gives way to its successor of the same name."""
    try:
        found = await nodes.list_objects(MACHINES[MCM].path(), label=(MCM.node_label, node))
    except ObjectNotFound:
        return None  # the kind is not installed
    stay = [document["metadata"] for document in found if not document["metadata"].get("deletionTimestamp")]
    chosen: list[JsonObject] = stay or [document["metadata"] for document in found]
    if len(chosen) > 1:
        names = ", ".join(sorted(f"{metadata['namespace']}/{metadata['name']}" for metadata in chosen))
        raise failure(ErrorType.INVALID_CONFIG, f"Node/{node}: several Machines say that it is theirs: {names}; expected one")
    return ref_in(MACHINES[MCM], chosen[0]["namespace"], chosen[0]["name"]) if chosen else None
