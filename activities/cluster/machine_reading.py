"""The health check of an episode, and the Machine of its node, read live for a last look.

A Node says by annotation which Machine is its own; where it does not, the check's namespace is listed. Either way the Machine's
own `nodeRef` has the last word: an annotation alone never makes a Machine somebody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from activities.cluster.connection import ClusterConnection, JsonObject
from activities.cluster.machines_decoding import decode_cluster, decode_machine
from activities.cluster.paths import (
    CAPI_CLUSTERS,
    CAPI_MACHINES,
    NODE_HEALTH_CHECKS,
    NODES,
    OPENSHIFT_MACHINES,
    Resource,
    in_version,
)
from activities.cluster.refusals import ObjectNotFound
from activities.errors import ErrorType, failure
from policy.dialects import parse
from policy.episodes import Need
from policy.errors import PolicyError
from policy.healthcheck import Dialect, HealthCheck, ObjectRef
from policy.inventory import CAPI_MACHINE_ANNOTATION, OPENSHIFT_MACHINE_ANNOTATION, of_one_cluster
from policy.machines import MachineView, WorkloadCluster
from policy.nodes import NodeView
from policy.targets import Target

CAPI_GROUP = "cluster.x-k8s.io"
CAPI_VERSIONS = ("v1beta2", "v1beta1")

PLURALS = {"NodeHealthCheck": NODE_HEALTH_CHECKS.plural, "MachineHealthCheck": "machinehealthchecks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Where nodes live, and where Cluster API's objects do."""

    nodes: ClusterConnection
    machines: ClusterConnection

    def of(self, api_version: str) -> ClusterConnection:
        """The connection by which objects of that version are read."""
        return self.machines if api_version.startswith("cluster.x-k8s.io/") else self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a check judges beside the Node. `machine` None for a check of Nodes, and where no Machine refers to the node."""

    of_machines: bool = False
    machine: MachineView | None = None
    cluster: WorkloadCluster | None = None

    def target(self, node: NodeView | None) -> Target | None:
        """The target as it is now, None where the check has none; a Node of that name in another cluster is somebody else's."""
        if not self.of_machines:
            return Target(node.name, node=node) if node is not None else None
        if self.machine is None or (node is not None and not of_one_cluster(self.machine, node)):
            return None
        target = Target(self.machine.key, node=node, machine=self.machine)
        target.cluster = self.cluster
        return target


async def find_check(connections: Connections, need: Need | None) -> JsonObject | None:
    """The need's health check as it is now, None where it was deleted or none is asked for."""
    if need is None:
        return None
    if need.check is None:
        raise failure(ErrorType.INVALID_CONFIG, "the need is a health check's, but names none")
    resource, connection = _resource(need.check), connections.of(need.check.api_version)
    versions = [resource]
    if need.check.api_version.startswith(f"{CAPI_GROUP}/"):
        # A version that is served no more is no deletion.
        versions += [in_version(resource, each) for each in CAPI_VERSIONS if not need.check.api_version.endswith(f"/{each}")]
    for version in versions:
        try:
            return await connection.get(version.path(need.check.name, namespace=need.check.namespace))
        except ObjectNotFound:
            continue
    return None


async def read_subject(connections: Connections, need: Need | None, node: str) -> Subject:
    """The Machine that refers to the node, for a check of Machines."""
    if need is None or need.check is None or need.check.kind == NODE_HEALTH_CHECKS.kind:
        return Subject()
    document = await find_check(connections, need)
    if document is None:
        return Subject(of_machines=True)
    try:
        check = parse(document)
    except PolicyError:
        return Subject(of_machines=True)  # the look says what is wrong with it
    machine = await _machine_of(connections, check, node)
    cluster = await _cluster_of(connections, check) if check.dialect is Dialect.CLUSTER_API else None
    return Subject(of_machines=True, machine=machine, cluster=cluster)


async def _machine_of(connections: Connections, check: HealthCheck, node: str) -> MachineView | None:
    resource = _machines(check)
    connection = connections.of(resource.api_version)
    name, provider_id = await _said_by_the_node(connections.nodes, check, node)
    unnamed: MachineView | None = None
    if name:
        try:
            machine = decode_machine(
                await connection.get_bytes(resource.path(name, namespace=check.ref.namespace)), check.dialect
            )
        except ObjectNotFound:
            machine = None
        mine = machine is not None and (not check.cluster_name or machine.cluster_name == check.cluster_name)
        if machine is not None and mine and machine.node_name == node:
            return machine
        if machine is not None and mine and not machine.node_name:
            unnamed = machine
    for document in await connection.list_objects(resource.path(namespace=check.ref.namespace)):
        machine = decode_machine(orjson.dumps(document), check.dialect)
        if check.cluster_name and machine.cluster_name != check.cluster_name:
            continue
        if machine.node_name == node:
            return machine
        if unnamed is None and not machine.node_name and provider_id and machine.provider_id == provider_id:
            unnamed = machine
    return unnamed


async def _said_by_the_node(connection: ClusterConnection, check: HealthCheck, node: str) -> tuple[str, str]:
    """The Machine that the Node says it is of, "" where it does not, and its providerID."""
    try:
        document = await connection.get(NODES.path(node))
    except ObjectNotFound:
        return "", ""
    annotations: dict[str, Any] = document["metadata"].get("annotations") or {}
    provider_id = str((document.get("spec") or {}).get("providerID") or "")
    if check.dialect is Dialect.CLUSTER_API:
        return str(annotations.get(CAPI_MACHINE_ANNOTATION, "")), provider_id
    namespace, _, name = str(annotations.get(OPENSHIFT_MACHINE_ANNOTATION, "")).partition("/")
    return (name if namespace == check.ref.namespace else ""), provider_id


async def _cluster_of(connections: Connections, check: HealthCheck) -> WorkloadCluster | None:
    resource = in_version(CAPI_CLUSTERS, check.ref.api_version.rpartition("/")[2])
    try:
        return decode_cluster(
            await connections.machines.get_bytes(resource.path(check.cluster_name, namespace=check.ref.namespace))
        )
    except ObjectNotFound:
        return None


def _machines(check: HealthCheck) -> Resource:
    if check.dialect is Dialect.OPENSHIFT:
        return OPENSHIFT_MACHINES
    return in_version(CAPI_MACHINES, check.ref.api_version.rpartition("/")[2])


def _resource(ref: ObjectRef) -> Resource:
    plural = PLURALS.get(ref.kind)
    if plural is None:
        raise failure(ErrorType.NOT_SUPPORTED, f"{ref.key} of {ref.api_version} is no kind we judge by")
    return Resource(api_version=ref.api_version, kind=ref.kind, plural=plural, namespaced=bool(ref.namespace))
