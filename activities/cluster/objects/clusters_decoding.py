"""From bytes to what `policy` knows of Clusters of Cluster API and of remediation objects, of whatever kind those are."""

from __future__ import annotations

import msgspec

from activities.cluster.objects.decoding import Decoding, Fragments, Item, WireCondition, decoding_of
from activities.cluster.objects.machines_decoding import WireConditions, WireDeprecated, WireMetadata, merged
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.objects.machines import PAUSED_ANNOTATION, UPGRADE_STEP_ANNOTATION, WorkloadCluster
from policy.objects.nodes import Condition
from policy.objects.remediations import HEALTHY_DELAY_ANNOTATION, NODE_NAME_ANNOTATION, Owner, RemediationObject
from policy.remediation.remediation_objects import (
    REMEDIATORS,
    TEMPLATE_NAME_ANNOTATION,
    TIMED_OUT_ANNOTATION,
    Remediator,
    remediator_of,
)
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of

CONTROL_PLANE_INITIALIZED = "ControlPlaneInitialized"
INFRASTRUCTURE_READY = "InfrastructureReady"


class _Initialization(msgspec.Struct, rename="camel"):
    infrastructure_provisioned: bool | None = None
    control_plane_initialized: bool | None = None


class _Topology(msgspec.Struct):
    version: str | None = None


class _ClusterSpec(msgspec.Struct):
    paused: bool | None = None
    topology: _Topology | None = None


class _ClusterStatus(msgspec.Struct, rename="camel"):
    conditions: list[WireCondition] | None = None
    v1beta2: WireConditions | None = None
    deprecated: WireDeprecated | None = None
    infrastructure_ready: bool | None = None
    initialization: _Initialization | None = None


class _Cluster(msgspec.Struct):
    metadata: WireMetadata
    spec: _ClusterSpec | None = None
    status: _ClusterStatus | None = None


class _RemediationStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _Remediation(msgspec.Struct, rename="camel"):
    metadata: WireMetadata
    api_version: str = ""
    kind: str = ""
    status: _RemediationStatus | None = None


_cluster = msgspec.json.Decoder(_Cluster)
_remediation = msgspec.json.Decoder(_Remediation)


def decode_cluster(body: bytes) -> WorkloadCluster:
    """One Cluster API Cluster. Raises msgspec.DecodeError for anything else."""
    return _cluster_view(_cluster.decode(body))


def decode_remediation(body: bytes) -> RemediationObject:
    """One remediation object of whatever kind. Raises msgspec.DecodeError for anything else."""
    found = _remediation.decode(body)
    return _remediation_view(found, found.api_version, found.kind, REMEDIATORS)


def _remediation_view(found: _Remediation, api_version: str, kind: str, remediators: tuple[Remediator, ...]) -> RemediationObject:
    metadata, says = found.metadata, remediator_of(api_version, kind, remediators)
    conditions = {each.type: each.status for each in (found.status.conditions if found.status else None) or ()}
    annotations = metadata.annotations or {}
    return RemediationObject(
        ref=ObjectRef(api_version=api_version, kind=kind, name=metadata.name, namespace=metadata.namespace or DEFAULT_NAMESPACE),
        target=annotations.get(NODE_NAME_ANNOTATION) or metadata.name,
        uid=metadata.uid,
        created=moment_of(metadata.creation_timestamp),
        template=annotations.get(TEMPLATE_NAME_ANNOTATION, ""),
        timed_out=moment_of(annotations.get(TIMED_OUT_ANNOTATION, "")),
        owners=tuple(Owner(kind=owner.kind, name=owner.name, uid=owner.uid) for owner in metadata.owner_references or ()),
        deleting=metadata.deletion_timestamp is not None,
        succeeded=says.has_succeeded(conditions),
        permanent_node_deletion_expected=conditions.get(says.node_goes, ""),
        well_since=moment_of(annotations.get(HEALTHY_DELAY_ANNOTATION, "")),
    )


def _cluster_view(cluster: _Cluster) -> WorkloadCluster:
    metadata, spec, status = cluster.metadata, cluster.spec or _ClusterSpec(), cluster.status or _ClusterStatus()
    old = status.deprecated.v1beta1 if status.deprecated else None
    conditions = {each.type: each for each in merged(status.v1beta2, status.conditions, old.conditions if old else None)}
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
        upgrade_step=(metadata.annotations or {}).get(UPGRADE_STEP_ANNOTATION, ""),
    )


def _said(conditions: dict[str, Condition], kind: str) -> Condition | None:
    found = conditions.get(kind)
    return found if found is not None and found.status == "True" else None


def _cluster_item(raw: msgspec.Raw) -> Item[WorkloadCluster]:
    found = _cluster.decode(raw)
    view = _cluster_view(found)
    return Item(view.key, found.metadata.resource_version, view)


def _unread_cluster(rest: Fragments, problem: str) -> WorkloadCluster:
    """As one that is paused: whatever it would have said of its Machines, nothing is done to them."""
    paused = f"Cluster {rest.name} can't be read: {problem}"
    return WorkloadCluster(namespace=rest.namespace or DEFAULT_NAMESPACE, name=rest.name, paused=paused)


CLUSTER_DECODING: Decoding[WorkloadCluster] = decoding_of("Cluster", _cluster_item, _unread_cluster)


def remediation_decoding(
    api_version: str, kind: str, remediators: tuple[Remediator, ...] = REMEDIATORS
) -> Decoding[RemediationObject]:
    """How remediation objects of that kind are read; whose one is that can't be read, nobody knows."""

    def item(raw: msgspec.Raw) -> Item[RemediationObject]:
        found = _remediation.decode(raw)
        view = _remediation_view(found, api_version, kind, remediators)
        return Item(f"{view.ref.namespace}/{view.ref.name}", found.metadata.resource_version, view)

    def stand_in(rest: Fragments, _problem: str) -> RemediationObject:
        ref = ObjectRef(api_version=api_version, kind=kind, name=rest.name, namespace=rest.namespace or DEFAULT_NAMESPACE)
        return RemediationObject(ref=ref, target=rest.text("metadata", "annotations", NODE_NAME_ANNOTATION) or rest.name)

    return decoding_of(kind, item, stand_in)
