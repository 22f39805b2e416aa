"""Remediation objects: the object that a check's template makes for one target, who made an object, and what its status
reports.

The contract has three spellings. An object of a NodeHealthCheck has its Node's name, and its owners are the check, the Node's
Machine and the Node (medik8s); an object of a MachineHealthCheck has its Machine's name, and that Machine alone owns it
(OpenShift, Cluster API). The controllers that act on them find their target by exactly these fields.

In this order: the object as we make it (`made`); its progress (`follow`); the table of controllers with a status of their own
(`Remediator`). Objects that others made are `policy/objects/remediations.py`; `activities/cluster/acts/remediation_objects.py`
writes ours.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policy.objects.machines import CLUSTER_NAME_LABEL
from policy.objects.remediations import GIVEN_UP_ANNOTATION, NODE_NAME_ANNOTATION, SUFFIX
from policy.values.errors import PolicyError, shown
from policy.values.fields import mapping, mappings
from policy.values.object_refs import LONGEST_NAME, ObjectRef

TEMPLATE_NAME_ANNOTATION = "remediation.medik8s.io/template-name"
CONTROL_PLANE_LABEL = "remediation.medik8s.io/isControlPlaneNode"

SEVERAL_ANNOTATION = "remediation.medik8s.io/multiple-templates-support"
"""On a template: its controller finds the node by annotation, so that there may be several objects of the kind for one node."""

INCIDENT_ANNOTATION = "nodewarden.io/incident"
"""On what an episode has made, objects for other controllers and leases of nodes: its incident. It goes with the object."""

OF_MACHINES = "MachineHealthCheck"
"""The kind of health checks, in either group, with remediation objects about Machines."""

LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedObject:
    """The object that a step wants for its target.

    node_uid: "" for a Machine that has no Node. machine: of the target, where it lives beside the object. several: the ladder has
    other steps with objects of the same kind.
    """

    template: ObjectRef
    node: str
    node_uid: str = ""
    incident: str = ""
    check: ObjectRef | None = None
    check_uid: str = ""
    machine: ObjectRef | None = None
    machine_uid: str = ""
    several: bool = False

    @property
    def of_machine(self) -> bool:
        return self.machine is not None and (self.check is None or self.check.kind == OF_MACHINES)

    @property
    def kind(self) -> str:
        """The object's kind. Raises PolicyError for a template that makes no object."""
        kind = self.template.kind.removesuffix(SUFFIX)
        if not kind or kind == self.template.kind:
            raise PolicyError(self.template.key, "kind", f"expected a kind that ends in {SUFFIX}, got {self.template.kind!r}")
        return kind

    @property
    def namespace(self) -> str:
        """A Machine's object lives beside the Machine, a Node's beside the template."""
        return self.machine.namespace if self.machine is not None and self.of_machine else self.template.namespace

    @property
    def name(self) -> str:
        """Always the same for the same target and template. A name that the server generates (generateName), as the
        NodeHealthCheck operator uses it where there are several objects, would not do: after a lost answer we could not know
        whether the object exists, and a second request would make a second one, and so a second remediation of the node at the
        same time."""
        if self.machine is not None and self.of_machine:
            return self.machine.name
        if not self.several:
            return self.node
        suffix = hashlib.sha256(f"{self.template.namespace}/{self.template.name}/{self.node_uid}".encode()).hexdigest()[:8]
        return f"{self.node[: LONGEST_NAME - len(suffix) - 1]}-{suffix}"


def made(
    template: Mapping[str, Any], wanted: WantedObject, *, control_plane: bool = False, cluster_name: str = ""
) -> dict[str, Any]:
    """The object to be created. Raises PolicyError where the template, as it was read, makes none.

    control_plane: the Node is a member. cluster_name: of the workload cluster that the Machine belongs to (Cluster API).
    """
    inner = mapping(template.get("spec")).get("template")
    if not isinstance(inner, Mapping):
        raise PolicyError(wanted.template.key, "spec.template", f"expected what its objects are made from, got {shown(inner)}")
    spec, metadata = inner.get("spec") or {}, inner.get("metadata") or {}
    if not isinstance(spec, Mapping):
        raise PolicyError(wanted.template.key, "spec.template.spec", f"expected the spec of an object, got {shown(spec)}")
    labels, annotations = _texts(metadata, "labels"), _texts(metadata, "annotations")
    annotations |= _origin(wanted)
    if cluster_name:
        labels[CLUSTER_NAME_LABEL] = cluster_name
    if control_plane and not wanted.of_machine:
        labels[CONTROL_PLANE_LABEL] = ""
    head: dict[str, Any] = {"name": wanted.name, "annotations": annotations, "ownerReferences": list(_owners(wanted))}
    head |= {"namespace": wanted.namespace} if wanted.namespace else {}
    head |= {"labels": labels} if labels else {}
    return {
        "apiVersion": wanted.template.api_version,
        "kind": wanted.kind,
        "metadata": head,
        "spec": copy.deepcopy(dict(spec)),
    }


def not_ours(document: Mapping[str, Any], wanted: WantedObject) -> str:
    """Why an existing object is not the wanted one, "" where it is.

    An object that the shipped controller has made for the same check and target is accepted: it does what ours would.
    """
    metadata: Mapping[str, Any] = document["metadata"]
    owners: list[Mapping[str, Any]] = metadata.get("ownerReferences") or []
    if wanted.machine is not None and wanted.of_machine:
        if any(each.get("kind") == "Machine" and each.get("uid") == wanted.machine_uid for each in owners):
            return ""
        return f"it is not owned by {wanted.machine.key} with the uid {wanted.machine_uid}"
    annotations = metadata.get("annotations") or {}
    if wanted.check is not None and not any(_is_check(each, wanted) for each in owners):
        return f"{wanted.check.key} has not made it"
    if wanted.check is None and annotations.get(INCIDENT_ANNOTATION) != wanted.incident:
        return "no health check has made it, and this episode has not either"
    nodes = [each for each in owners if each.get("kind") == "Node"]
    if any(each.get("uid") != wanted.node_uid for each in nodes):
        return f"it is about another Node that was called {wanted.node}"
    if (about := annotations.get(NODE_NAME_ANNOTATION) or metadata.get("name")) != wanted.node:
        return f"it is about {about}"
    template = annotations.get(TEMPLATE_NAME_ANNOTATION)
    return f"it was made from the template {template}" if template not in {None, wanted.template.name} else ""


def made_by_us(document: Mapping[str, Any]) -> bool:
    """Whether an episode of ours has made it: then it is meant for another controller, and is no request to us."""
    return INCIDENT_ANNOTATION in mapping(document["metadata"].get("annotations"))


def statuses_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The status of each of its conditions, by type."""
    return {str(each.get("type")): str(each.get("status") or "") for each in reversed(_conditions(document))}


def progress_message(document: Mapping[str, Any], types: Iterable[str]) -> str:
    """Its controller's message about its progress, "" for none. types: the conditions with such messages, the most telling
    first."""
    status = _status(document)
    messages = {each.get("type"): each.get("message") or each.get("reason") for each in _conditions(document)}
    found = (status.get("lastError"), *map(messages.get, types), status.get("failureMessage"))
    return next((str(each)[:LONGEST_MESSAGE] for each in found if each), "")


def phase_of(document: Mapping[str, Any]) -> str:
    """The phase that its status names, "" for none."""
    return str(_status(document).get("phase") or "")


def _status(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(document.get("status"))


def _conditions(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return mappings(_status(document).get("conditions"))


def _texts(metadata: Any, field: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping(mapping(metadata).get(field)).items()}


def _origin(wanted: WantedObject) -> dict[str, str]:
    """Which template it comes from, and its target where its name need not show it."""
    template, ours = wanted.template, {INCIDENT_ANNOTATION: wanted.incident}
    if not wanted.of_machine:
        return ours | {NODE_NAME_ANNOTATION: wanted.node, TEMPLATE_NAME_ANNOTATION: template.name}
    assert wanted.machine is not None
    group, _, _ = wanted.machine.api_version.partition("/")
    of_template, _, _ = template.api_version.partition("/")
    return ours | {f"{group}/cloned-from-name": template.name, f"{group}/cloned-from-groupkind": f"{template.kind}.{of_template}"}


def _owners(wanted: WantedObject) -> Iterator[dict[str, Any]]:
    """None of them is its controller. Garbage collection deletes an object once all of its owners are gone."""
    machine = wanted.machine
    if machine is not None and wanted.of_machine:
        yield _owner(machine.api_version, machine.kind, machine.name, wanted.machine_uid)
        return
    if wanted.check is not None:
        yield _owner(wanted.check.api_version, wanted.check.kind, wanted.check.name, wanted.check_uid) | {"controller": False}
    if machine is not None and wanted.machine_uid and machine.namespace == wanted.namespace:
        # By this Metal3 knows its Machine; an owner must live in the namespace of what it owns.
        yield _owner(machine.api_version, machine.kind, machine.name, wanted.machine_uid) | {"controller": False}
    yield _owner("v1", "Node", wanted.node, wanted.node_uid) | {"controller": False}


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def _is_check(owner: Mapping[str, Any], wanted: WantedObject) -> bool:
    """By uid where both are known: a check that was deleted and created again has not made the objects of the first one."""
    check = wanted.check
    assert check is not None
    named = (owner.get("kind"), owner.get("name")) == (check.kind, check.name)
    return named and (not wanted.check_uid or owner.get("uid") in {None, "", wanted.check_uid})


# Progress: what the status of a remediation object reports about its work.
#
# The contract is medik8s': conditions Processing, Succeeded and PermanentNodeDeletionExpected. Metal3's object has a phase
# instead and never reports success: there the node's health decides. Success and failure end a step; without either its
# time-out does.

TIMED_OUT_ANNOTATION = GIVEN_UP_ANNOTATION
"""On a remediation object: since when it is given up for the next one. Other controllers give our objects up by the same
annotation."""

PHASE_FAILED, PHASE_DELETING = "Failed", "Deleting machine"
"""Phases of a Metal3Remediation. The second: it has handed the Machine to its owner."""


class Progress(StrEnum):
    """How far the work is."""

    WORKING = "working"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationConditions:
    """The statuses of its conditions ("True", "False", "Unknown", "" where there is none) and its phase."""

    processing: str = ""
    succeeded: str = ""
    permanent_node_deletion_expected: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationProgress:
    """The progress of the object. node_goes: the Node will be deleted for good and replaced; that it disappears is no reason to
    give up."""

    progress: Progress
    why: str
    node_goes: bool = False


def follow(status: RemediationConditions) -> RemediationProgress:
    """What the status means. Where it reports both success and failure, it has failed."""
    goes = status.permanent_node_deletion_expected == "True" or status.phase == PHASE_DELETING
    if status.succeeded == "False" or status.phase == PHASE_FAILED:
        why = "Succeeded is False" if status.succeeded == "False" else f"its phase is {PHASE_FAILED}"
        return RemediationProgress(progress=Progress.FAILED, why=why, node_goes=goes)
    if status.succeeded == "True":
        return RemediationProgress(progress=Progress.SUCCEEDED, why="Succeeded is True", node_goes=goes)
    if status.phase:
        why = f"its phase is {status.phase}"
    elif status.processing == "True":
        why = "Processing is True"
    elif status.processing == "False":
        why = "Processing is False, and its result is not reported"
    else:
        why = "no controller has taken it up yet"
    return RemediationProgress(progress=Progress.WORKING, why=why, node_goes=goes)


def to_be_given_up(status: RemediationConditions) -> bool:
    """Whether the object gets the annotation that its time is over. Not after it has succeeded: then only the node's recovery
    is waited for."""
    return status.succeeded != "True"


# The controllers with conditions that differ from medik8s' contract: one table by kind, which the settings can extend.
#
# A kind that is not in the table is read by the contract. The table maps other conditions to those of the contract, so that
# `follow` knows only these. The rights to the kinds are made from the table (`starter/deploy/rights.py`).


@dataclass(frozen=True, slots=True, kw_only=True)
class Remediator:
    """One kind of objects, and the condition of its status for each meaning; "" for what it never reports.

    working: is True while it is at work. succeeded: is True once it is done. failed: is False once it has failed; where that is
    another condition than `succeeded`, it tries again, and has not failed while `working` is True. node_goes: is True where the
    Node is to be deleted for good.
    """

    group: str
    kind: str
    working: str = "Processing"
    succeeded: str = "Succeeded"
    failed: str = "Succeeded"
    node_goes: str = "PermanentNodeDeletionExpected"

    def has_succeeded(self, conditions: Mapping[str, str]) -> str:
        """The status of the contract's `Succeeded`. conditions: the status of each, by type."""
        succeeded = conditions.get(self.succeeded, "")
        if self.failed == self.succeeded or succeeded == "True" or conditions.get(self.working) == "True":
            return succeeded
        return "False" if conditions.get(self.failed) == "False" else succeeded

    @property
    def progress_conditions(self) -> tuple[str, ...]:
        """The conditions with messages about its progress, the most telling first."""
        return tuple(dict.fromkeys((self.failed, self.succeeded, self.working)))


_NO_CONDITIONS = dict.fromkeys(("working", "succeeded", "failed", "node_goes"), "")

REMEDIATORS: tuple[Remediator, ...] = (
    Remediator(group="self-node-remediation.medik8s.io", kind="SelfNodeRemediation"),
    Remediator(group="fence-agents-remediation.medik8s.io", kind="FenceAgentsRemediation"),
    Remediator(group="machine-deletion-remediation.medik8s.io", kind="MachineDeletionRemediation"),
    Remediator(
        group="storage-based-remediation.medik8s.io",
        kind="StorageBasedRemediation",
        working="FencingInProgress",
        succeeded="FencingSucceeded",
        failed="Ready",
        node_goes="",
    ),
    # These two have no conditions: Metal3's has a phase, and the other one's progress shows only in the node.
    Remediator(group="infrastructure.cluster.x-k8s.io", kind="Metal3Remediation", **_NO_CONDITIONS),
    Remediator(group="customized-user-remediation.medik8s.io", kind="CustomizedUserRemediation", **_NO_CONDITIONS),
)


def remediator_of(api_version: str, kind: str, known: Iterable[Remediator] = REMEDIATORS) -> Remediator:
    """The first row for that kind in any version, or the contract."""
    group = api_version.partition("/")[0]
    return next((each for each in known if (each.group, each.kind) == (group, kind)), Remediator(group=group, kind=kind))
