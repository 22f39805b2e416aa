"""From bytes to what `policy` knows of Machines, Clusters, remediation objects, and of what goes on around them.

Beside `decoding.py`, which has Nodes and the general shape of lists and watches. One spelling for all versions: what v1beta1 of
Cluster API keeps in one place and v1beta2 in another is read from both, the newer one first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from activities.cluster.api.connection import JsonObject
from activities.cluster.objects.decoding import Decoding, Fragments, Item, WireCondition, conditions_of, decoding_of
from policy.dialects.head import DEFAULT_NAMESPACE
from policy.objects.machines import CLUSTER_NAME_LABEL, PAUSED_ANNOTATION, MachineView, WorkloadCluster
from policy.objects.nodes import Condition
from policy.objects.remediations import HEALTHY_DELAY_ANNOTATION, NODE_NAME_ANNOTATION, Owner, Remediation
from policy.remediation.following import TIMED_OUT_ANNOTATION
from policy.remediation.objects import TEMPLATE_NAME_ANNOTATION
from policy.values.moments import moment_of
from policy.values.object_refs import Dialect, ObjectRef

CONTROL_PLANE_LABEL = "cluster.x-k8s.io/control-plane"
MACHINE_ROLE_LABEL = "machine.openshift.io/cluster-api-machine-role"
MASTER_ROLE = "master"
NODE_LABEL = "node"
"""On a Machine of machine-controller-manager: its Node's name."""

CONTROL_PLANE_INITIALIZED = "ControlPlaneInitialized"
INFRASTRUCTURE_READY = "InfrastructureReady"


class _Owner(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    creation_timestamp: Any = None
    deletion_timestamp: str | None = None


class _Name(msgspec.Struct):
    name: str = ""


class _Conditions(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _Failure(msgspec.Struct, rename="camel"):
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[WireCondition] | None = None


class _Deprecated(msgspec.Struct):
    v1beta1: _Failure | None = None


class _Initialization(msgspec.Struct, rename="camel"):
    infrastructure_provisioned: bool | None = None
    control_plane_initialized: bool | None = None


class _MachineSpec(msgspec.Struct, rename="camel"):
    provider_id: str | None = msgspec.field(name="providerID", default=None)
    cluster_name: str | None = None


class _MachineStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    node_ref: _Name | None = None
    last_updated: Any = None
    conditions: list[WireCondition] | None = None
    v1beta2: _Conditions | None = None
    deprecated: _Deprecated | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    error_reason: str | None = None
    error_message: str | None = None


class _Machine(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    api_version: str = ""
    spec: _MachineSpec | None = None
    status: _MachineStatus | None = None


class _Topology(msgspec.Struct):
    version: str | None = None


class _ClusterSpec(msgspec.Struct):
    paused: bool | None = None
    topology: _Topology | None = None


class _ClusterStatus(msgspec.Struct, rename="camel"):
    conditions: list[WireCondition] | None = None
    v1beta2: _Conditions | None = None
    deprecated: _Deprecated | None = None
    infrastructure_ready: bool | None = None
    initialization: _Initialization | None = None


class _Cluster(msgspec.Struct):
    metadata: _Metadata
    spec: _ClusterSpec | None = None
    status: _ClusterStatus | None = None


class _RemediationStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _Remediation(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    api_version: str = ""
    kind: str = ""
    status: _RemediationStatus | None = None


_machine = msgspec.json.Decoder(_Machine)
_cluster = msgspec.json.Decoder(_Cluster)
_remediation = msgspec.json.Decoder(_Remediation)


def decode_machine(body: bytes, dialect: Dialect) -> MachineView:
    """One Machine of either group. Raises msgspec.DecodeError for anything else."""
    return _machine_view(_machine.decode(body), dialect)


def labelled_machine(document: JsonObject) -> MachineView:
    """One Machine of machine-controller-manager, which no health check judges: it refers to its Node by a label. Raises
    msgspec.DecodeError for anything else."""
    machine = _machine_view(msgspec.convert(document, _Machine), Dialect.OPENSHIFT)
    return replace(machine, node_name=machine.labels.get(NODE_LABEL, ""))


def decode_cluster(body: bytes) -> WorkloadCluster:
    """One Cluster API Cluster. Raises msgspec.DecodeError for anything else."""
    return _cluster_view(_cluster.decode(body))


def decode_remediation(body: bytes) -> Remediation:
    """One remediation object of whatever kind. Raises msgspec.DecodeError for anything else."""
    found = _remediation.decode(body)
    return _remediation_view(found, found.api_version, found.kind)


def _remediation_view(found: _Remediation, api_version: str, kind: str) -> Remediation:
    metadata = found.metadata
    conditions = {each.type: each.status for each in (found.status.conditions if found.status else None) or ()}
    annotations = metadata.annotations or {}
    return Remediation(
        ref=ObjectRef(api_version=api_version, kind=kind, name=metadata.name, namespace=metadata.namespace or DEFAULT_NAMESPACE),
        target=annotations.get(NODE_NAME_ANNOTATION) or metadata.name,
        uid=metadata.uid,
        created=moment_of(metadata.creation_timestamp),
        template=annotations.get(TEMPLATE_NAME_ANNOTATION, ""),
        timed_out=moment_of(annotations.get(TIMED_OUT_ANNOTATION, "")),
        owners=tuple(Owner(kind=owner.kind, name=owner.name, uid=owner.uid) for owner in metadata.owner_references or ()),
        deleting=metadata.deletion_timestamp is not None,
        succeeded=conditions.get("Succeeded", ""),
        permanent_node_deletion_expected=conditions.get("PermanentNodeDeletionExpected", ""),
        well_since=moment_of(annotations.get(HEALTHY_DELAY_ANNOTATION, "")),
    )


def _machine_view(machine: _Machine, dialect: Dialect) -> MachineView:
    metadata, spec, status = machine.metadata, machine.spec or _MachineSpec(), machine.status or _MachineStatus()
    labels = metadata.labels or {}
    old = (status.deprecated.v1beta1 if status.deprecated else None) or _Failure()
    return MachineView(
        dialect=dialect,
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=labels,
        annotations=metadata.annotations or {},
        conditions=_merged(status.v1beta2.conditions if status.v1beta2 else None, status.conditions, old.conditions),
        phase=sys.intern(status.phase or ""),
        failure=_failure(status, old),
        deleting=metadata.deletion_timestamp is not None,
        created=moment_of(metadata.creation_timestamp),
        last_updated=moment_of(status.last_updated),
        node_name=status.node_ref.name if status.node_ref else "",
        provider_id=spec.provider_id or "",
        cluster_name=spec.cluster_name or labels.get(CLUSTER_NAME_LABEL, ""),
        controller=next((f"{owner.kind}/{owner.name}" for owner in metadata.owner_references or () if owner.controller), ""),
        control_plane=_of_control_plane(labels, dialect),
    )


def _of_control_plane(labels: Mapping[str, str], dialect: Dialect) -> bool:
    return CONTROL_PLANE_LABEL in labels if dialect is Dialect.CLUSTER_API else labels.get(MACHINE_ROLE_LABEL) == MASTER_ROLE


def _failure(status: _MachineStatus, old: _Failure) -> str:
    words = (
        status.failure_reason or old.failure_reason or status.error_reason,
        status.failure_message or old.failure_message or status.error_message,
    )
    return ": ".join(word for word in words if word)


def _cluster_view(cluster: _Cluster) -> WorkloadCluster:
    metadata, spec, status = cluster.metadata, cluster.spec or _ClusterSpec(), cluster.status or _ClusterStatus()
    old = (status.deprecated.v1beta1 if status.deprecated else None) or _Failure()
    conditions = {
        each.type: each
        for each in _merged(status.v1beta2.conditions if status.v1beta2 else None, status.conditions, old.conditions)
    }
    initialization = status.initialization or _Initialization()
    initialized = _said(conditions, CONTROL_PLANE_INITIALIZED)
    provisioned = _said(conditions, INFRASTRUCTURE_READY)
    paused = ""
    if spec.paused:
        paused = f"spec.paused of Cluster {metadata.name} is true"
    elif PAUSED_ANNOTATION in (metadata.annotations or {}):
        paused = f"Cluster {metadata.name} carries the annotation {PAUSED_ANNOTATION}"
    return WorkloadCluster(
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name,
        paused=paused,
        control_plane_initialized=bool(
            initialized or (CONTROL_PLANE_INITIALIZED not in conditions and initialization.control_plane_initialized)
        ),
        control_plane_initialized_since=initialized.since if initialized else None,
        infrastructure_ready=bool(
            provisioned
            or (
                INFRASTRUCTURE_READY not in conditions
                and (status.infrastructure_ready or initialization.infrastructure_provisioned)
            )
        ),
        infrastructure_ready_since=provisioned.since if provisioned else None,
        version=(spec.topology.version if spec.topology else None) or "",
    )


def _said(conditions: dict[str, Condition], kind: str) -> Condition | None:
    found = conditions.get(kind)
    return found if found is not None and found.status == "True" else None


def _merged(*lists: list[WireCondition] | None) -> tuple[Condition, ...]:
    """Conditions of several places, each type from the first that has it."""
    found: dict[str, Condition] = {}
    for each in lists:
        for condition in conditions_of(each):
            found.setdefault(condition.type, condition)
    return tuple(found.values())


def machine_decoding(dialect: Dialect) -> Decoding[MachineView]:
    """How Machines of that group are read."""

    def item(raw: msgspec.Raw) -> Item[MachineView]:
        view = _machine_view(_machine.decode(raw), dialect)
        return Item(f"{view.namespace}/{view.name}", view.resource_version, view)

    def stand_in(rest: Fragments, problem: str) -> MachineView:
        labels = rest.texts("metadata", "labels")
        return MachineView(
            dialect=dialect,
            namespace=rest.namespace or DEFAULT_NAMESPACE,
            name=rest.name,
            uid=rest.text("metadata", "uid"),
            resource_version=rest.resource_version,
            labels=labels,
            annotations=rest.texts("metadata", "annotations"),
            node_name=rest.text("status", "nodeRef", "name"),
            provider_id=rest.text("spec", "providerID"),
            cluster_name=rest.text("spec", "clusterName") or labels.get(CLUSTER_NAME_LABEL, ""),
            control_plane=_of_control_plane(labels, dialect),
            unreadable=problem,
        )

    return decoding_of("Machine", item, stand_in)


def _cluster_item(raw: msgspec.Raw) -> Item[WorkloadCluster]:
    found = _cluster.decode(raw)
    view = _cluster_view(found)
    return Item(view.key, found.metadata.resource_version, view)


def _unread_cluster(rest: Fragments, problem: str) -> WorkloadCluster:
    """As one that is paused: whatever it would have said of its Machines, nothing is done to them."""
    paused = f"Cluster {rest.name} can't be read: {problem}"
    return WorkloadCluster(namespace=rest.namespace or DEFAULT_NAMESPACE, name=rest.name, paused=paused)


CLUSTER_DECODING: Decoding[WorkloadCluster] = decoding_of("Cluster", _cluster_item, _unread_cluster)


def remediation_decoding(api_version: str, kind: str) -> Decoding[Remediation]:
    """How remediation objects of that kind are read; whose one is that can't be read, nobody knows."""

    def item(raw: msgspec.Raw) -> Item[Remediation]:
        found = _remediation.decode(raw)
        view = _remediation_view(found, api_version, kind)
        return Item(f"{view.ref.namespace}/{view.ref.name}", found.metadata.resource_version, view)

    def stand_in(rest: Fragments, _problem: str) -> Remediation:
        ref = ObjectRef(api_version=api_version, kind=kind, name=rest.name, namespace=rest.namespace or DEFAULT_NAMESPACE)
        return Remediation(ref=ref, target=rest.text("metadata", "annotations", NODE_NAME_ANNOTATION) or rest.name)

    return decoding_of(kind, item, stand_in)
