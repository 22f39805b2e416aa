"""From bytes, or from a document, to a Machine as `policy` knows it: the one place where the fields of Machines are read.

All three APIs are one structure on the wire, since no field of one means something else in another; what else differs between
them is a row of `policy/values/machine_apis.py`. Watches, lists, live reads and files all come through here, so that all of them
say the same of one Machine. What v1beta1 of Cluster API keeps in one place and v1beta2 in another is read from both, the newer
one first.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from activities.cluster.objects.decoding import (
    LONGEST_WORD,
    Decoding,
    Fragments,
    Item,
    WireCondition,
    WireMetadata,
    annotations_of,
    conditions_of,
    provider_id_of,
)
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.objects.machines import (
    CLUSTER_NAME_LABEL,
    FAILED,
    PAUSED_ANNOTATION,
    UPGRADE_STEP_ANNOTATION,
    MachineView,
    WorkloadCluster,
    uncounted,
)
from policy.objects.nodes import Condition
from policy.preservation.machine_snapshot import EXPIRY_ANNOTATION
from policy.preservation.pool_cap import DeploymentPool
from policy.values.fields import mapping
from policy.values.machine_apis import MachineApi
from policy.values.object_refs import LONGEST_NAME, ObjectRef
from policy.values.times import moment_of, parse_duration

if TYPE_CHECKING:
    from activities.cluster.api.connection import JsonObject

DRAIN_CONDITIONS = ("Deleting", "DrainingSucceeded", "Drained", "VolumeDetachSucceeded")
"""Which conditions tell what a deletion waits for, the most telling first."""

HOOKS = ("pre-drain.delete.hook.machine.cluster.x-k8s.io", "pre-terminate.delete.hook.machine.cluster.x-k8s.io")
"""Cluster API: what begins so is an annotation that holds a deletion up."""

LONGEST_TEXT = 300
"""Characters of what a controller says, which may be all that a cloud has answered."""


class _Name(msgspec.Struct):
    name: str = ""


class _Conditions(msgspec.Struct):
    """Where the next generation of Cluster API's conditions stands in v1beta1."""

    conditions: list[WireCondition] | None = None


class _Failure(msgspec.Struct, rename="camel"):
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[WireCondition] | None = None


class _Deprecated(msgspec.Struct):
    """What v1beta2 of Cluster API keeps of v1beta1."""

    v1beta1: _Failure | None = None


class _CurrentStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    preserve_expiry_time: Any = None


class _LastOperation(msgspec.Struct):
    description: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    provider_id: str | None = msgspec.field(name="providerID", default=None)
    cluster_name: str | None = None
    machine_preserve_timeout: Any = None
    lifecycle_hooks: Any = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    current_status: _CurrentStatus | None = None
    node: str | None = None
    node_ref: _Name | None = None
    last_updated: Any = None
    conditions: list[WireCondition] | None = None
    v1beta2: _Conditions | None = None
    deprecated: _Deprecated | None = None
    last_operation: _LastOperation | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    error_reason: str | None = None
    error_message: str | None = None


class _Machine(msgspec.Struct):
    metadata: WireMetadata
    spec: _Spec | None = None
    status: _Status | None = None


_machine = msgspec.json.Decoder(_Machine)
_NO_SPEC, _NO_STATUS, _NO_FAILURE, _NO_CURRENT = _Spec(), _Status(), _Failure(), _CurrentStatus()


def read_machine(document: JsonObject, api: MachineApi) -> MachineView:
    """One Machine from JSON that was parsed already. Raises msgspec.ValidationError for anything else."""
    return _view(msgspec.convert(document, _Machine), api)


def machine_decoding(api: MachineApi) -> Decoding[MachineView]:
    """How lists and watches of Machines of that API are read."""

    def read(raw: msgspec.Raw) -> Item[MachineView]:
        view = _view(_machine.decode(raw), api)
        return Item(f"{view.namespace}/{view.name}", view.resource_version, view)

    def stand_in(rest: Fragments, problem: str) -> MachineView:
        labels = rest.texts("metadata", "labels")
        return MachineView(
            api=api,
            namespace=rest.namespace or DEFAULT_NAMESPACE,
            name=rest.name,
            uid=rest.text("metadata", "uid"),
            resource_version=rest.resource_version,
            labels=labels,
            annotations=rest.texts("metadata", "annotations"),
            node_name=(rest.text("status", "nodeRef", "name") or labels.get(api.node_label, ""))[:LONGEST_NAME],
            provider_id=provider_id_of(rest.text("spec", "providerID")),
            cluster_name=(rest.text("spec", "clusterName") or labels.get(CLUSTER_NAME_LABEL, ""))[:LONGEST_NAME],
            control_plane=_of_control_plane(labels, api),
            unreadable=problem,
        )

    return Decoding("Machine", read, stand_in)


MOST_OF_STRANGERS = 50


def counting_machines(api: MachineApi, namespaces: Collection[str]) -> Decoding[MachineView]:
    """The same where Machines count in these namespaces: of others few labels, annotations and conditions are kept, however many
    their authors write (S41)."""
    decoding = machine_decoding(api)

    def counts(namespace: str) -> bool:
        ref = ObjectRef(api_version=api.api_version, kind="Machine", name="", namespace=namespace or DEFAULT_NAMESPACE)
        return not uncounted(ref, namespaces)

    def brief(raw: msgspec.Raw) -> Item[MachineView]:
        item = decoding.read(raw)
        machine = item.value
        some = {
            "labels": dict(islice(machine.labels.items(), MOST_OF_STRANGERS)),
            "annotations": dict(islice(machine.annotations.items(), MOST_OF_STRANGERS)),
            "conditions": machine.conditions[:MOST_OF_STRANGERS],
        }
        return Item(item.key, item.resource_version, replace(machine, **some))

    return decoding.brief_unless(counts, brief)


def _view(machine: _Machine, api: MachineApi) -> MachineView:
    metadata, spec, status = machine.metadata, machine.spec or _NO_SPEC, machine.status or _NO_STATUS
    labels, annotations = metadata.labels or {}, annotations_of(metadata)
    old = (status.deprecated.v1beta1 if status.deprecated else None) or _NO_FAILURE
    phase = (status.current_status or _NO_CURRENT).phase or status.phase or ""
    deleting = metadata.deletion_timestamp is not None
    expiry, timeout, problem = _preservation(annotations, spec, status, api)
    return MachineView(
        api=api,
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=labels,
        annotations=annotations,
        conditions=_merged(status.v1beta2, status.conditions, old.conditions),
        phase=sys.intern(phase[:LONGEST_WORD]),
        failure=_failure(status, old, phase)[:LONGEST_TEXT],
        deleting=deleting,
        deleting_since=moment_of(metadata.deletion_timestamp) if deleting else None,
        deletion_waits=_waits(metadata, spec, status, old) if deleting else "",
        created=moment_of(metadata.creation_timestamp),
        last_updated=moment_of(status.last_updated),
        node_name=_node_name(status, labels, api)[:LONGEST_NAME],
        provider_id=provider_id_of(spec.provider_id),
        cluster_name=(spec.cluster_name or labels.get(CLUSTER_NAME_LABEL, ""))[:LONGEST_NAME],
        controller=metadata.controller,
        control_plane=_of_control_plane(labels, api),
        expiry=expiry,
        preserve_timeout=timeout,
        preservation_problem=problem[:LONGEST_TEXT],
    )


def _node_name(status: _Status, labels: Mapping[str, str], api: MachineApi) -> str:
    if status.node_ref is not None:
        return status.node_ref.name
    return labels.get(api.node_label) or status.node or "" if api.node_label else ""


def _of_control_plane(labels: Mapping[str, str], api: MachineApi) -> bool:
    return any(label in labels and value in {None, labels[label]} for label, value in api.member_labels.items())


def _failure(status: _Status, old: _Failure, phase: str) -> str:
    words = (
        status.failure_reason or old.failure_reason or status.error_reason,
        status.failure_message or old.failure_message or status.error_message,
    )
    reported = ": ".join(word for word in words if word)
    if not reported and phase == FAILED and status.current_status is not None and status.last_operation is not None:
        return status.last_operation.description or ""
    return reported


def _waits(metadata: WireMetadata, spec: _Spec, status: _Status, old: _Failure) -> str:
    """What holds a deletion up, in words; "" where nothing says."""
    listed = ((status.v1beta2.conditions if status.v1beta2 else None), status.conditions, old.conditions)
    conditions: dict[str, WireCondition] = {}
    for condition in (each for conditions_there in listed for each in conditions_there or ()):
        conditions.setdefault(condition.type, condition)
    for kind in DRAIN_CONDITIONS:
        found = conditions.get(kind)
        unfinished = found is not None and found.status == ("True" if kind == "Deleting" else "False")
        if found is not None and unfinished and (reported := found.message or found.reason):
            return f"{kind}: {reported}"[:LONGEST_TEXT]
    hooks = [key for key in metadata.annotations or () if key.startswith(HOOKS)]
    lifecycle = spec.lifecycle_hooks if isinstance(spec.lifecycle_hooks, dict) else {}
    hooks += [f"{stage} {each.get('name')}" for stage, there in sorted(lifecycle.items()) for each in there or ()]
    if hooks:
        return f"its hooks {', '.join(sorted(hooks))}"[:LONGEST_TEXT]
    finalizers = metadata.finalizers or ()
    return f"its finalizers {', '.join(finalizers)}"[:LONGEST_TEXT] if finalizers else ""


def _preservation(
    annotations: Mapping[str, str], spec: _Spec, status: _Status, api: MachineApi
) -> tuple[datetime | None, timedelta | None, str]:
    """Until when it is kept, for how long it wants to be, and why neither can be read."""
    try:
        if not api.expiry_in_status:
            return _expiry(annotations.get(EXPIRY_ANNOTATION), f"metadata.annotations[{EXPIRY_ANNOTATION}]"), None, ""
        written = (status.current_status or _NO_CURRENT).preserve_expiry_time or None
        expiry = _expiry(written, "status.currentStatus.preserveExpiryTime")
        return expiry, preserve_timeout(spec.machine_preserve_timeout), ""
    except ValueError as error:
        return None, None, str(error)


def _expiry(written: object, path: str) -> datetime | None:
    moment = moment_of(written)
    if written is not None and moment is None:
        raise ValueError(f"$.{path}: expected a moment, got {str(written)[:40]!r}")
    return moment


def preserve_timeout(text: object) -> timedelta | None:
    """A `machinePreserveTimeout`, None where there is none. Raises ValueError for what is no duration above 0."""
    if text is None:
        return None
    try:
        timeout = parse_duration(str(text))
    except ValueError as error:
        raise ValueError(f"$.spec.machinePreserveTimeout: {error}") from error
    if timeout <= timedelta(0):
        raise ValueError(f"$.spec.machinePreserveTimeout: expected a duration above 0, got {text!r}")
    return timeout


def _merged(newer: _Conditions | None, *lists: list[WireCondition] | None) -> tuple[Condition, ...]:
    """Conditions of several places, each type from the first that has it."""
    found: dict[str, Condition] = {}
    for each in (newer.conditions if newer is not None else None, *lists):
        for condition in conditions_of(each):
            found.setdefault(condition.type, condition)
    return tuple(found.values())


# What their Clusters say (Cluster API).

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
    v1beta2: _Conditions | None = None
    deprecated: _Deprecated | None = None
    infrastructure_ready: bool | None = None
    initialization: _Initialization | None = None


class _Cluster(msgspec.Struct):
    metadata: WireMetadata
    spec: _ClusterSpec | None = None
    status: _ClusterStatus | None = None


_cluster = msgspec.json.Decoder(_Cluster)


def _read_cluster(raw: msgspec.Raw) -> Item[WorkloadCluster]:
    cluster = _cluster.decode(raw)
    metadata, spec, status = cluster.metadata, cluster.spec or _ClusterSpec(), cluster.status or _ClusterStatus()
    old = status.deprecated.v1beta1 if status.deprecated else None
    conditions = {each.type: each for each in _merged(status.v1beta2, status.conditions, old.conditions if old else None)}
    initialization = status.initialization or _Initialization()
    initialized = _true(conditions, CONTROL_PLANE_INITIALIZED)
    provisioned = _true(conditions, INFRASTRUCTURE_READY)
    paused = ""
    if spec.paused:
        paused = f"spec.paused of Cluster {metadata.name} is true"
    elif PAUSED_ANNOTATION in (metadata.annotations or {}):
        paused = f"Cluster {metadata.name} carries the annotation {PAUSED_ANNOTATION}"
    view = WorkloadCluster(
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
        version=((spec.topology.version if spec.topology else None) or "")[:LONGEST_WORD],
        upgrade_step=(metadata.annotations or {}).get(UPGRADE_STEP_ANNOTATION, "")[:LONGEST_WORD],
    )
    return Item(view.key, metadata.resource_version, view)


def _true(conditions: dict[str, Condition], kind: str) -> Condition | None:
    found = conditions.get(kind)
    return found if found is not None and found.status == "True" else None


def _unread_cluster(rest: Fragments, problem: str) -> WorkloadCluster:
    """As one that is paused: whatever it would have said of its Machines, nothing is done to them."""
    paused = f"Cluster {rest.name} can't be read: {problem}"
    return WorkloadCluster(namespace=rest.namespace or DEFAULT_NAMESPACE, name=rest.name, paused=paused)


CLUSTER_DECODING: Decoding[WorkloadCluster] = Decoding("Cluster", _read_cluster, _unread_cluster)


# What the sets above Machines say: MachineSets and MachineDeployments.


class _SetSpec(msgspec.Struct, rename="camel"):
    replicas: int | None = None
    auto_preserve_failed_machine_max: int | None = None
    template: _Template | None = None


class _Template(msgspec.Struct):
    metadata: dict[str, Any] | None = None
    spec: _TemplateSpec | None = None


class _TemplateSpec(msgspec.Struct, rename="camel"):
    machine_preserve_timeout: Any = None


class WireSet(msgspec.Struct):
    """A MachineSet or MachineDeployment, of any of the three APIs."""

    metadata: WireMetadata
    spec: _SetSpec | None = None


def deployment_of(document: JsonObject) -> tuple[DeploymentPool, str]:
    """What a MachineDeployment or MachineSet of machine-controller-manager says of preservation, and what controls it. Raises
    ValueError (msgspec's too)."""
    found = msgspec.convert(document, WireSet)
    spec = found.spec or _SetSpec()
    cap = spec.auto_preserve_failed_machine_max or 0
    if cap < 0:
        raise ValueError(f"$.spec.autoPreserveFailedMachineMax: expected a whole number of at least 0, got {cap}")
    template = spec.template or _Template()
    labels = dict(found.metadata.labels or {})
    labels |= {key: value for key, value in mapping(mapping(template.metadata).get("labels")).items() if isinstance(value, str)}
    timeout = preserve_timeout(template.spec.machine_preserve_timeout if template.spec is not None else None)
    name, namespace = found.metadata.name, found.metadata.namespace or ""
    return DeploymentPool(name=name, namespace=namespace, cap=cap, timeout=timeout, labels=labels), found.metadata.controller
