"""The health check of an episode, and the Machines of its node, read live for a last look.

A Node says by annotation which Machine is its own; where it does not, or where that one gives no reason to act, the check's
namespace is listed, since a scan judges every Machine that refers to the node. A Machine's own `nodeRef` has the last word: an
annotation alone never makes a Machine somebody's. One without a `nodeRef` is tied as `policy/checks/inventory.py` ties it for a
scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.machine_paths import MACHINES, api_of, resource_of, versions_of
from activities.cluster.api.paths import (
    CAPI_CLUSTERS,
    CONFIG_MAPS,
    NODE_HEALTH_CHECKS,
    NODES,
    Resource,
    in_version,
)
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.objects.clusters_decoding import decode_cluster
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.machines_decoding import decode_machine, machine_decoding, read_machine
from activities.cluster.objects.reading import ApiReader, Readers
from activities.errors import ErrorType, failure
from policy.checks.healthcheck import HealthCheck
from policy.checks.inventory import (
    CAPI_MACHINE_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    OPENSHIFT_MACHINE_ANNOTATION,
    Inventory,
    of_one_cluster,
)
from policy.checks.targets import MACHINE, Target
from policy.dialects import parse
from policy.episode.needs import Need
from policy.objects.machines import MachineView, WorkloadCluster
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi
from policy.values.object_refs import Dialect, ObjectRef

PLURALS = {
    "NodeHealthCheck": NODE_HEALTH_CHECKS.plural,
    "MachineHealthCheck": "machinehealthchecks",
    CONFIG_MAPS.kind: CONFIG_MAPS.plural,
}

LONGEST_LABEL = 63
"""As the API server takes it."""

OF_NODES = (NODE_HEALTH_CHECKS.kind, CONFIG_MAPS.kind)
"""The kinds of health checks that know no Machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMachine:
    """A Machine as just read: what decisions use, and the whole object, since an edit must know what a view leaves out."""

    ref: ObjectRef
    view: MachineView
    document: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a check judges beside the Node. machines: those of the node; where no check of Machines asks, the one that the Node
    names, which is not judged then. whole: there are no others, False where only that one was asked for. kept_out: where no check
    of Machines asks, who keeps the Machine out."""

    of_machines: bool = False
    kept_out: str = ""
    machines: tuple[MachineView, ...] = ()
    whole: bool = True
    cluster: WorkloadCluster | None = None

    def targets(self, node: NodeView | None) -> list[Target]:
        """The targets as they are now; a Node of that name in another cluster is somebody else's."""
        if not self.of_machines:
            return [Target(node.name, node=node)] if node is not None else []
        found = []
        for machine in self.machines_of(node):
            target = Target(machine.key, node=node, machine=machine)
            target.cluster = self.cluster
            found.append(target)
        return found

    def machines_of(self, node: NodeView | None) -> list[MachineView]:
        """Without those whose Node of that name is in another cluster."""
        return [machine for machine in self.machines if node is None or of_one_cluster(machine, node)]


async def find_machine(connections: Readers, ref: ObjectRef) -> LiveMachine | None:
    """That Machine as it is now, None where there is none of that name. Errors: InvalidConfig for what is no Machine."""
    resource, api = resource_of(ref), api_of(ref)
    try:
        document = await connections.of(ref.api_version).get(resource.path(ref.name, namespace=ref.namespace))
    except ObjectNotFound:
        return None
    try:
        return LiveMachine(ref=ref, view=read_machine(document, api), document=document)
    except msgspec.MsgspecError as error:
        raise failure(ErrorType.INVALID_CONFIG, f"{ref.key}: {error}") from error


async def find_check(connections: Readers, need: Need | None) -> JsonObject | None:
    """The need's health check as it is now, None where it was deleted or none is asked for."""
    if need is None:
        return None
    if need.check is None:
        raise failure(ErrorType.INVALID_CONFIG, "the need is a health check's, but names none")
    resource, connection = _resource(need.check), connections.of(need.check.api_version)
    for version in versions_of(resource):
        try:
            return await connection.get(version.path(need.check.name, namespace=need.check.namespace))
        except ObjectNotFound:
            continue
    return None


async def read_subject(connections: Readers, need: Need | None, node: str, *, whole: bool = False) -> Subject:
    """The Machines of the node, for a check of Machines; for all else the one that the Node names, and whether people keep that
    out. whole: all of them, though the Node names one."""
    if need is None or need.check is None or need.check.kind in OF_NODES:
        if node.startswith(MACHINE):
            return Subject()
        named = await _named_by_annotation(connections, node)
        if named is None:
            return Subject(machines=await _labelled(connections.nodes, node))
        return Subject(kept_out=named.kept_out, machines=(named,))
    document = await find_check(connections, need)
    if document is None:
        return Subject(of_machines=True)
    try:
        check = parse(document)
    except PolicyError:
        return Subject(of_machines=True)  # the look says what is wrong with it
    if node.startswith(MACHINE):
        return await _alone(connections, check, node.removeprefix(MACHINE))
    machine = None if whole else await _named_by_the_node(connections, check, node)
    machines = (machine,) if machine is not None else tuple(await machines_of(connections, check, node))
    cluster = await cluster_of(connections, check) if check.dialect is Dialect.CLUSTER_API else None
    return Subject(of_machines=True, machines=machines, whole=machine is None, cluster=cluster)


async def _alone(connections: Readers, check: HealthCheck, name: str) -> Subject:
    """A Machine that has no Node, by its own name. One that has got a Node meanwhile is a case of that Node's."""
    namespace, _, own = name.partition("/")
    resource = _machines(check)
    cluster = await cluster_of(connections, check) if check.dialect is Dialect.CLUSTER_API else None
    try:
        body = await connections.of(resource.api_version).get_bytes(resource.path(own, namespace=namespace))
    except ObjectNotFound:
        return Subject(of_machines=True, cluster=cluster)
    machine = decode_machine(body, _api(check))
    found = (machine,) if _of_its_cluster(machine, check) and not machine.node_name else ()
    return Subject(of_machines=True, machines=found, cluster=cluster)


async def _named_by_the_node(connections: Readers, check: HealthCheck, node: str) -> MachineView | None:
    """The Machine that the Node says is its own, where that one refers to the Node as well."""
    try:
        document = await connections.nodes.get(NODES.path(node))
    except ObjectNotFound:
        return None
    annotations: dict[str, Any] = document["metadata"].get("annotations") or {}
    name = str(annotations.get(CAPI_MACHINE_ANNOTATION, ""))
    if check.dialect is Dialect.OPENSHIFT:
        namespace, _, name = str(annotations.get(OPENSHIFT_MACHINE_ANNOTATION, "")).partition("/")
        name = name if namespace == check.ref.namespace else ""
    if not name:
        return None
    resource = _machines(check)
    try:
        body = await connections.of(resource.api_version).get_bytes(resource.path(name, namespace=check.ref.namespace))
    except ObjectNotFound:
        return None
    machine = decode_machine(body, _api(check))
    return machine if machine.node_name == node and _of_its_cluster(machine, check) else None


async def _named_by_annotation(connections: Readers, node: str) -> MachineView | None:
    """The Machine that the Node says is its own, unless that one says something else. What people, or those who take it away, say
    on it holds whatever calls for the act."""
    try:
        document = await connections.nodes.get(NODES.path(node))
    except ObjectNotFound:
        return None
    annotations: dict[str, Any] = document["metadata"].get("annotations") or {}
    places = [(connections.machines, version, CLUSTER_API) for version in versions_of(MACHINES[CLUSTER_API])]
    name = str(annotations.get(CAPI_MACHINE_ANNOTATION, ""))
    namespace = str(annotations.get(CLUSTER_NAMESPACE_ANNOTATION, ""))
    if not (name and namespace):
        places = [(connections.nodes, MACHINES[OPENSHIFT], OPENSHIFT)]
        namespace, _, name = str(annotations.get(OPENSHIFT_MACHINE_ANNOTATION, "")).partition("/")
    if not (name and namespace):
        return None
    for reader, resource, api in places:
        try:
            machine = decode_machine(await reader.get_bytes(resource.path(name, namespace=namespace)), api)
        except ObjectNotFound:
            continue
        return machine if machine.node_name in {"", node} else None
    return None


async def _labelled(connection: ApiReader, node: str) -> tuple[MachineView, ...]:
    """Those of machine-controller-manager, which name their Node by a label."""
    if len(node) > LONGEST_LABEL:
        return ()  # no label can name it
    try:
        listed = await connection.list_objects(MACHINES[MCM].path(), label=(MCM.node_label, node))
    except ObjectNotFound:
        return ()  # the kind is not installed
    return tuple(read_machine(each, MCM) for each in listed)


async def machines_of(connections: Readers, check: HealthCheck, node: str) -> list[MachineView]:
    """All Machines of the node among those that the check may cover, found as a scan finds them."""
    resource = _machines(check)
    decoding, pages = machine_decoding(_api(check)), connections.of(resource.api_version)
    listed = [
        item.value
        async for page in pages.list_pages(resource.path(namespace=check.ref.namespace))
        for item in decoding.items(page.body)
        if _of_its_cluster(item.value, check)
    ]
    found = [machine for machine in listed if machine.node_name == node]
    unnamed = [machine for machine in listed if not machine.node_name]
    return [*found, *await _tied(connections.nodes, unnamed, node)] if unnamed else found


async def _tied(connection: ApiReader, unnamed: list[MachineView], node: str) -> list[MachineView]:
    """Those of the Machines that name no Node which are the node's all the same. All Nodes are asked for: where several answer to
    one Machine, nobody knows whose it is (S9)."""
    inventory = Inventory(sees_all_nodes=False)
    async for page in connection.list_pages(NODES.path()):
        for item in NODE_DECODING.items(page.body):
            inventory.put_node(item.value)
    for machine in unnamed:
        inventory.put_machine(machine)
    return [machine for machine in unnamed if inventory.machines[machine.key].node_name == node]


def _of_its_cluster(machine: MachineView, check: HealthCheck) -> bool:
    return not check.cluster_name or machine.cluster_name == check.cluster_name


async def cluster_of(connections: Readers, check: HealthCheck) -> WorkloadCluster | None:
    resource = in_version(CAPI_CLUSTERS, check.ref.api_version.rpartition("/")[2])
    try:
        return decode_cluster(
            await connections.machines.get_bytes(resource.path(check.cluster_name, namespace=check.ref.namespace))
        )
    except ObjectNotFound:
        return None


def _api(check: HealthCheck) -> MachineApi:
    return api_of(check.machine_ref("", ""))


def _machines(check: HealthCheck) -> Resource:
    return resource_of(check.machine_ref("", ""))


def _resource(ref: ObjectRef) -> Resource:
    plural = PLURALS.get(ref.kind)
    if plural is None:
        raise failure(ErrorType.NOT_SUPPORTED, f"{ref.key} of {ref.api_version} is no kind we judge by")
    return Resource(api_version=ref.api_version, kind=ref.kind, plural=plural, namespaced=bool(ref.namespace))
