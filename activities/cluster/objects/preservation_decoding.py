"""From objects to what `policy/preservation` knows of machines: Machines of machine-controller-manager, OpenShift and Cluster
API, and Nodes that belong to none.

What the three systems call their phases and where they keep a Node's name, a deployment or a priority is told apart here and
nowhere after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from activities.cluster.objects.decoding import Decoding, Fragments, Item, decoding_of
from activities.cluster.objects.machines_decoding import NODE_LABEL, decode_machine
from policy.dialects.head import DEFAULT_NAMESPACE
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.preservation.held import EXPIRY_ANNOTATION, Held, MachinePhase
from policy.preservation.last_to_go import CLUSTER_API_DELETE, OPENSHIFT_DELETE, PRIORITY_ANNOTATION, priority_of
from policy.preservation.survey import Deployment
from policy.values.durations import parse_duration
from policy.values.moments import moment_of
from policy.values.object_refs import Dialect

MCM_GROUP = "machine.sapcloud.io"
"""On a Machine of machine-controller-manager: the name of its Node."""

MARKED_AT_ANNOTATION = "machine.sapcloud.io/marked-for-deletion-time"
"""When machine-controller-manager was told by the autoscaler that it is to go."""
DEPLOYMENT_LABELS = ("cluster.x-k8s.io/deployment-name", "machine.openshift.io/cluster-api-machineset")

_PHASES = {
    "Provisioning": MachinePhase.PENDING,
    "Provisioned": MachinePhase.PENDING,
    "Deleting": MachinePhase.TERMINATING,
    "Deleted": MachinePhase.TERMINATING,
    "InPlaceUpdating": MachinePhase.RUNNING,
    "InPlaceUpdateSuccessful": MachinePhase.RUNNING,
    **{phase.value: phase for phase in MachinePhase},
}


class _Owner(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    namespace: str | None = None
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    creation_timestamp: Any = None
    deletion_timestamp: str | None = None


class _CurrentStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    preserve_expiry_time: str | None = None


class _LastOperation(msgspec.Struct):
    description: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    current_status: _CurrentStatus | None = None
    last_operation: _LastOperation | None = None
    node: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    machine_preserve_timeout: str | None = None


class _Machine(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class _Template(msgspec.Struct):
    metadata: dict[str, Any] | None = None
    spec: _Spec | None = None


class _SetSpec(msgspec.Struct, rename="camel"):
    auto_preserve_failed_machine_max: int | None = None
    template: _Template | None = None


class _Set(msgspec.Struct):
    metadata: _Metadata
    spec: _SetSpec | None = None


_machine = msgspec.json.Decoder(_Machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMachine:
    """A Machine before its Node is known. owner: kind and name of what controls it. problem: why it can't be read, else ""."""

    held: Held
    owner: str = ""
    problem: str = ""


def mcm_machine(obj: Mapping[str, Any]) -> FoundMachine:
    """A Machine of machine-controller-manager. Raises ValueError (msgspec's too) for anything else."""
    return _found(msgspec.convert(obj, _Machine))


def _mcm_item(raw: msgspec.Raw) -> Item[FoundMachine]:
    machine = _machine.decode(raw)
    found = _found(machine)
    return Item(found.held.key, machine.metadata.resource_version, found)


def _unread(rest: Fragments, problem: str) -> FoundMachine:
    """One that hardly anything is known of: nothing is begun with it, and nothing ended."""
    namespace = rest.namespace or DEFAULT_NAMESPACE
    held = Held(key=f"{namespace}/{rest.name}", machine=rest.name, namespace=namespace, phase=MachinePhase.PENDING)
    return FoundMachine(held=held, problem=problem)


def _found(machine: _Machine) -> FoundMachine:
    metadata, status = machine.metadata, machine.status or _Status()
    current, labels = status.current_status or _CurrentStatus(), metadata.labels or {}
    annotations, name = metadata.annotations or {}, metadata.name
    written = current.preserve_expiry_time
    expiry = moment_of(written)
    if written and expiry is None:
        raise ValueError(f"$.status.currentStatus.preserveExpiryTime: expected a moment, got {written[:40]!r}")
    phase = _phase(current.phase or "")
    description = (status.last_operation.description if status.last_operation else None) or ""
    failed = "its phase is Failed" if phase is MachinePhase.FAILED else ""
    namespace = metadata.namespace or DEFAULT_NAMESPACE
    return FoundMachine(
        held=Held(
            key=f"{namespace}/{name}",
            machine=name,
            namespace=namespace,
            node_name=labels.get(NODE_LABEL, "") or status.node or "",
            phase=phase,
            failed=f"{failed} ({description})" if failed and description else failed,
            deleting=metadata.deletion_timestamp is not None,
            labels=labels,
            annotations=annotations,
            expiry=expiry,
            created=moment_of(metadata.creation_timestamp),
            marked_for_deletion=annotations.get(MARKED_AT_ANNOTATION, ""),
            priority=priority_of(annotations.get(PRIORITY_ANNOTATION)),
            has_priority=True,
            timeout=_timeout(machine.spec),
            uid=metadata.uid,
        ),
        owner=_controller(metadata),
    )


def other_machine(body: bytes, dialect: Dialect) -> FoundMachine:
    """A Machine of OpenShift or Cluster API. Raises msgspec.DecodeError for anything else."""
    view = decode_machine(body, dialect)
    return FoundMachine(held=held_of(view), owner=view.controller)


def held_of(view: MachineView) -> Held:
    """What is known of such a Machine, before its Node is."""
    phase = _phase(view.phase)
    failed = f"its phase is Failed{f' ({view.failure})' if view.failure else ''}" if phase is MachinePhase.FAILED else ""
    if not failed and view.failure:
        failed = f"it reports a failure that it can't recover from ({view.failure})"
    return Held(
        key=f"{view.namespace}/{view.name}",
        machine=view.name,
        namespace=view.namespace,
        node_name=view.node_name,
        phase=MachinePhase.FAILED if failed else phase,
        failed=failed,
        deleting=view.deleting,
        labels=view.labels,
        annotations=view.annotations,
        expiry=_annotated_expiry(view.annotations),
        created=view.created,
        marked_for_deletion=_marked(view),
        uid=view.uid,
        deployment=next((view.labels[label] for label in DEPLOYMENT_LABELS if label in view.labels), ""),
    )


def node_alone(node: NodeView) -> Held:
    """A Node that belongs to no Machine. Raises ValueError for an expiry that can't be read."""
    return Held(
        key=f"node/{node.name}",
        node_name=node.name,
        node=node,
        deleting=node.deleting,
        expiry=_annotated_expiry(node.annotations),
    )


def deployment_of(obj: Mapping[str, Any]) -> tuple[Deployment, str]:
    """A MachineDeployment or MachineSet of machine-controller-manager, and what controls it. Raises ValueError."""
    found = msgspec.convert(obj, _Set)
    spec = found.spec or _SetSpec()
    cap = spec.auto_preserve_failed_machine_max or 0
    if cap < 0:
        raise ValueError(f"$.spec.autoPreserveFailedMachineMax: expected a whole number of at least 0, got {cap}")
    template = spec.template or _Template()
    labels = dict(found.metadata.labels or {})
    labels |= {key: value for key, value in (template.metadata or {}).get("labels", {}).items() if isinstance(value, str)}
    return Deployment(name=found.metadata.name, cap=cap, timeout=_timeout(template.spec), labels=labels), _controller(
        found.metadata
    )


def _phase(text: str) -> MachinePhase:
    """What nobody knows is pending: it has not run yet."""
    return _PHASES.get(text, MachinePhase.PENDING)


def _timeout(spec: _Spec | None) -> timedelta | None:
    text = spec.machine_preserve_timeout if spec is not None else None
    if text is None:
        return None
    try:
        timeout = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"$.spec.machinePreserveTimeout: {error}") from error
    if timeout <= timedelta(0):
        raise ValueError(f"$.spec.machinePreserveTimeout: expected a duration above 0, got {text!r}")
    return timeout


def _annotated_expiry(annotations: Mapping[str, str]) -> Any:
    text = annotations.get(EXPIRY_ANNOTATION)
    expiry = moment_of(text)
    if text is not None and expiry is None:
        raise ValueError(f"$.metadata.annotations[{EXPIRY_ANNOTATION}]: expected a moment, got {text[:40]!r}")
    return expiry


def _marked(view: MachineView) -> str:
    """What stands where somebody says that it goes first."""
    if view.dialect is Dialect.CLUSTER_API:
        marked = view.annotations.get(CLUSTER_API_DELETE)
        return "" if marked is None else marked or "marked"
    return next((value for key in OPENSHIFT_DELETE if (value := view.annotations.get(key))), "")


def _controller(metadata: _Metadata) -> str:
    return next((f"{owner.kind}/{owner.name}" for owner in metadata.owner_references or () if owner.controller), "")


MCM_MACHINE_DECODING: Decoding[FoundMachine] = decoding_of("Machine", _mcm_item, _unread)
