"""A control plane as it stands at this moment, read live before one of its members is taken (S15).

The second half of a last look (`last_look.py`), and only of one at a member: an act on a worker costs no request of this. What
the Nodes and the static pods of etcd and of the API servers say is asked of every cluster; beside it what a KubeadmControlPlane
knows of its Machines, and OpenShift's own guard of etcd, where there are such. Each of them is enough to keep a member. The
rules are `policy/remediation/control_plane.py` and `policy/objects/nodes.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import msgspec

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import DISRUPTION_BUDGETS, KUBEADM_CONTROL_PLANES, MACHINES, NODES, PODS, Resource
from activities.cluster.api.served_cluster import as_served
from activities.cluster.objects.decoding import NODE_DECODING, PlainMetadata, WireCondition
from activities.cluster.objects.live_machines import read_cluster
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.objects.workload import MIRROR_ANNOTATION
from activities.errors import ErrorType, failure
from policy.objects.machines import CLUSTER_NAME_LABEL, MachineView, WorkloadCluster, cluster_named_by, cluster_of
from policy.objects.nodes import CONTROL_PLANE_LABELS, ETCD_NAMESPACE, EtcdGuard, NodeView, is_guard
from policy.remediation.control_plane import (
    BlockingRule,
    Component,
    ControlPlaneObjection,
    MemberFate,
    StaticPod,
    component_of,
    is_of_openshift,
    members_from_machines,
    members_from_nodes,
    objection_to,
)
from policy.values.fields import Fields
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT

PLACES = (
    ("kube-system", "component in (etcd,kube-apiserver)"),
    (ETCD_NAMESPACE, ""),
    ("openshift-kube-apiserver", "app=openshift-kube-apiserver"),
)
"""Where the pods of a control plane are, and by which labels they are asked for. OpenShift's guards stand beside its etcd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenMember:
    """The member that is taken: its Node, its Machine, or both. cluster: its Cluster API Cluster, where that was read already."""

    node: NodeView | None
    machine: MachineView | None
    cluster: WorkloadCluster | None = None


async def objection_now(
    nodes: ClusterConnection, machines: ClusterConnection, member: TakenMember, taking: MemberFate
) -> ControlPlaneObjection | None:
    """Why that member may not be taken at this moment, None where it may. What can't be read is raised, never taken for well."""
    (seen, pods, listed), (owner, cluster) = await asyncio.gather(
        asyncio.gather(_nodes(nodes), _pods(nodes), _machines(nodes, machines, member.machine)),
        asyncio.gather(_of_owner(machines, member.machine), _cluster(machines, member)),
    )
    initialized = cluster is None or cluster.control_plane_initialized
    # A Machine goes by its Node also where that is gone, and one that names none by its own name: each may vote in etcd.
    lost = {each.node_name for each in listed if each.control_plane and each.node_name}
    name = member.node.name if member.node is not None else ""
    if member.node is None and member.machine is not None:
        lost.add(name := member.machine.node_name or member.machine.name)
    lost -= {each.name for each in seen}
    planes = [(replace(members_from_nodes(seen, _static(pods), lost), initialized=initialized), name)]
    if owner is not None and member.machine is not None:
        subject = f"{KUBEADM_CONTROL_PLANES.kind}/{member.machine.namespace}/{owner['metadata']['name']}"
        knows = members_from_machines(
            listed,
            Fields(owner.get("spec") or {}, subject=subject, path="spec"),
            owner["metadata"].get("annotations") or {},
            initialized=initialized,
            version=cluster.version if cluster is not None else "",
            upgrade_step=cluster.upgrade_step if cluster is not None else "",
            subject=subject,
        )
        if knows is not None:
            planes = [(knows, member.machine.name), (replace(planes[0][0], managed_etcd=knows.managed_etcd), name)]
    for plane, called in planes:
        # What takes the target itself away has been asked already (`policy/episode/gate.py`), and is no matter of quorum.
        members = tuple(replace(each, deleting=False) if each.name == called else each for each in plane.members)
        if objection := objection_to(replace(plane, members=members), called, taking):
            return objection
    return await _of_openshift(nodes, pods, member, name) if initialized else None


# Nodes and pods -------------------------------------------------------------------------------------------------------


async def _nodes(connection: ClusterConnection) -> list[NodeView]:
    """All members: those with the label of today, and with that of old."""
    found: dict[str, NodeView] = {}

    async def read(label: str) -> None:
        async for page in connection.list_pages(NODES.path(), query={"labelSelector": label}):
            found.update((item.value.name, item.value) for item in NODE_DECODING.items(page.body))

    await asyncio.gather(*(read(label) for label in CONTROL_PLANE_LABELS))
    return list(found.values())


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _Pod(msgspec.Struct):
    metadata: PlainMetadata
    spec: _Spec | None = None
    status: _Status | None = None


class _Pods(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


_list, _pod = msgspec.json.Decoder(_Pods), msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberPod:
    """What is used of one. Any kubelet may have any number of its own there, each of a megabyte (S41). ready: the status of its
    condition; component: None for all but static pods of members."""

    namespace: str
    node: str
    ready: str
    deleting: bool
    component: Component | None
    guard: bool


async def _pods(connection: ClusterConnection) -> list[_MemberPod]:
    async def listed(namespace: str, labels: str) -> list[_MemberPod]:
        pages = connection.list_pages(PODS.path(namespace=namespace), query={"labelSelector": labels} if labels else None)
        try:
            return [_member_pod(_pod.decode(each)) async for page in pages for each in _list.decode(page.body).items or ()]
        except msgspec.DecodeError as error:
            raise failure(ErrorType.TRANSIENT, f"the API server's list of pods cannot be read: {error}") from error

    found = await asyncio.gather(*(listed(namespace, labels) for namespace, labels in PLACES))
    return [pod for pods in found for pod in pods]


def _member_pod(pod: _Pod) -> _MemberPod:
    metadata, labels, namespace = pod.metadata, pod.metadata.labels or {}, pod.metadata.namespace or ""
    static = MIRROR_ANNOTATION in (metadata.annotations or {})
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return _MemberPod(
        namespace=namespace,
        node=pod.spec.node_name if pod.spec is not None else "",
        ready=next((each.status for each in conditions if each.type == "Ready"), ""),
        deleting=metadata.deletion_timestamp is not None,
        component=component_of(namespace, labels) if static else None,
        guard=is_guard({"metadata": {"name": metadata.name, "namespace": namespace, "labels": labels}}),
    )


def _static(pods: list[_MemberPod]) -> list[StaticPod]:
    return [
        StaticPod(component=pod.component, node=pod.node, ready=pod.ready == "True" and not pod.deleting)
        for pod in pods
        if pod.component is not None and pod.node
    ]


async def _of_openshift(
    connection: ClusterConnection, pods: list[_MemberPod], member: TakenMember, name: str
) -> ControlPlaneObjection | None:
    """The rule of the NodeHealthCheck operator, wherever this is OpenShift: what can't be seen guards nothing. A Node that is
    gone took its guard pod with it: nothing says then that the member is unwell."""
    of_openshift = member.node is not None and is_of_openshift(member.node)
    of_openshift |= member.machine is not None and member.machine.api is OPENSHIFT
    if not of_openshift and not any(pod.namespace.startswith("openshift-") for pod in pods):
        return None
    budgets = await connection.list_objects(DISRUPTION_BUDGETS.path(namespace=ETCD_NAMESPACE))
    allowances = tuple(int((budget.get("status") or {}).get("disruptionsAllowed") or 0) for budget in budgets)
    guards = {pod.node: pod.ready for pod in pods if pod.namespace == ETCD_NAMESPACE and pod.guard}
    if member.node is None:
        guards = {name: "Unknown"} | guards
    guard = EtcdGuard(known=True, disruptions_allowed=allowances, guards=guards)
    why = guard.objection(name)
    return ControlPlaneObjection(rule=BlockingRule.QUORUM, why=why) if why else None


# Cluster API ----------------------------------------------------------------------------------------------------------


async def _of_owner(connection: ClusterConnection, machine: MachineView | None) -> JsonObject | None:
    """Its KubeadmControlPlane. None for a Machine that none looks after, and where that owner is gone."""
    if machine is None or machine.api is not CLUSTER_API:
        return None
    kind, _, name = machine.controller.partition("/")
    if kind != KUBEADM_CONTROL_PLANES.kind:
        return None
    return await as_served(
        KUBEADM_CONTROL_PLANES, lambda version: connection.get(version.path(name, namespace=machine.namespace))
    )


async def _machines(
    nodes: ClusterConnection, machines: ClusterConnection, machine: MachineView | None
) -> tuple[MachineView, ...]:
    if machine is None:
        return ()
    api, connection = machine.api, machines if machine.api.in_management_cluster else nodes
    # Of several labels any one makes a member: they can't be asked for together.
    asked = api.member_labels if len(api.member_labels) == 1 else {}
    labels = [key if value is None else f"{key}={value}" for key, value in asked.items()]
    labels += [f"{CLUSTER_NAME_LABEL}={machine.cluster_name}"] if api is CLUSTER_API else []
    decoding = machine_decoding(api)

    async def read(version: Resource) -> tuple[MachineView, ...]:
        pages = connection.list_pages(version.path(namespace=machine.namespace), query={"labelSelector": ",".join(labels)})
        return tuple([item.value async for page in pages for item in decoding.items(page.body)])

    return await as_served(MACHINES[api], read) or ()


async def _cluster(connection: ClusterConnection, member: TakenMember) -> WorkloadCluster | None:
    if member.cluster is not None:
        return member.cluster
    says = (cluster_of(member.machine) if member.machine is not None else "") or cluster_named_by(member.node)
    return await read_cluster(connection, says)
