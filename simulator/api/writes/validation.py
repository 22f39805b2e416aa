"""What a real API server refuses in objects of its built-in kinds, and which of their fields may not change."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from simulator.api.errors import Cause
from simulator.api.storage.store import Document, value_at
from simulator.api.writes.admission import TAINT_EFFECTS, required

Validator = Callable[[Document, Document | None], list[Cause]]


def forbidden(field: str, why: str) -> Cause:
    return Cause(field=field, message=f"Forbidden: {why}", reason="FieldValueForbidden")


def unchangeable(field: str) -> Cause:
    return Cause(field=field, message="Invalid value: field is immutable")


def _node(document: Document, old: Document | None) -> list[Cause]:
    causes = []
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(value_at(document, "spec.taints") or ()):
        where = f"spec.taints[{position}]"
        if not taint.get("key"):
            message = "Invalid value: name part must be non-empty"
            causes.append(Cause(field=f"{where}.key", message=message))
        effect = taint.get("effect", "")
        if not effect:
            causes.append(Cause(field=f"{where}.effect", message="Required value", reason="FieldValueRequired"))
        elif effect not in TAINT_EFFECTS:
            supported = ", ".join(f'"{each}"' for each in TAINT_EFFECTS)
            message = f'Unsupported value: "{effect}": supported values: {supported}'
            causes.append(Cause(field=f"{where}.effect", message=message, reason="FieldValueNotSupported"))
        identity = (taint.get("key", ""), effect)
        if identity in seen:
            message = f"Duplicate value: {identity}: taints must be unique by key and effect pair"
            causes.append(Cause(field=where, message=message, reason="FieldValueDuplicate"))
        seen.add(identity)
    if old is not None:
        for field in ("providerID", "podCIDR"):
            before, after = value_at(old, f"spec.{field}"), value_at(document, f"spec.{field}")
            if before and before != after:
                causes.append(forbidden(f"spec.{field}", "node updates may not change this field once it is set"))
    return causes


_POD_MUTABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")


def _pod(document: Document, old: Document | None) -> list[Cause]:
    spec = document["spec"]
    causes = required("spec.containers", document)
    names: set[str] = set()
    for position, container in enumerate(spec.get("containers") or ()):
        where = f"spec.containers[{position}]"
        for field in ("name", "image"):
            if not container.get(field):
                message, reason = "Required value", "FieldValueRequired"
                causes.append(Cause(field=f"{where}.{field}", message=message, reason=reason))
        if container.get("name") in names:
            message = f'Duplicate value: "{container["name"]}"'
            causes.append(Cause(field=f"{where}.name", message=message, reason="FieldValueDuplicate"))
        names.add(container.get("name", ""))
    if old is not None and _fixed_pod_spec(spec) != _fixed_pod_spec(old["spec"]):
        allowed = "`spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, "
        allowed += "`spec.tolerations` (only additions to existing tolerations), `spec.terminationGracePeriodSeconds`"
        causes.append(forbidden("spec", f"pod updates may not change fields other than {allowed}"))
    return causes


def _fixed_pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {key: value for key, value in spec.items() if key not in _POD_MUTABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            changeable = ("image", "imagePullPolicy")
            fixed[field] = [{k: v for k, v in each.items() if k not in changeable} for each in fixed[field]]
    return fixed


def _sealed(*fields: str) -> Validator:
    """ConfigMaps and Secrets that were declared immutable."""

    def check(document: Document, old: Document | None) -> list[Cause]:
        if old is None or not old.get("immutable"):
            return []
        return [
            forbidden(field, "field is immutable when `immutable` is set")
            for field in (*fields, "immutable")
            if old.get(field) != document.get(field)
        ]

    return check


def _secret(document: Document, old: Document | None) -> list[Cause]:
    causes = _sealed("data")(document, old)
    for key, value in (document.get("data") or {}).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            causes.append(Cause(field=f"data[{key}]", message="Invalid value: not base64"))
    if old is not None and old.get("type") != document.get("type"):
        causes.append(unchangeable("type"))
    return causes


def _lease(document: Document, _old: Document | None) -> list[Cause]:
    causes = []
    spec = document["spec"]
    if spec.get("holderIdentity") == "":
        causes.append(Cause(field="spec.holderIdentity", message='Invalid value: "": must not be empty'))
    for field, low in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(field)
        if value is not None and value < low:
            causes.append(Cause(field=f"spec.{field}", message=f"Invalid value: {value}: must be at least {low}"))
    return causes


def _disruption_budget(document: Document, _old: Document | None) -> list[Cause]:
    spec = document.get("spec") or {}
    causes = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(Cause(field="spec", message="Invalid value: minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            message = f"Invalid value: {value}: must be greater than or equal to 0"
            causes.append(Cause(field=f"spec.{field}", message=message))
        if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit() and int(value[:-1]) <= 100):
            message = f'Invalid value: "{value}": a valid percent string must be a numeric string followed by an ending'
            causes.append(Cause(field=f"spec.{field}", message=f"{message} '%'"))
    return causes


def _attachment(document: Document, old: Document | None) -> list[Cause]:
    causes = [*required("spec.attacher", document), *required("spec.nodeName", document)]
    causes += required("spec.source", document)
    if old is not None and old["spec"] != document["spec"]:
        causes.append(unchangeable("spec"))
    return causes


def _event(document: Document, old: Document | None) -> list[Cause]:
    involved = document.get("involvedObject") or {}
    if old is None and involved.get("namespace", "") not in ("", document["metadata"].get("namespace")):
        message = f'Invalid value: "{involved["namespace"]}": does not match event.namespace'
        return [Cause(field="involvedObject.namespace", message=message)]
    return []


_STATEFUL_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _workload(document: Document, old: Document | None) -> list[Cause]:
    causes = [*required("spec.selector", document)]
    labels = value_at(document, "spec.template.metadata.labels") or {}
    wanted = value_at(document, "spec.selector.matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        message = "Invalid value: `selector` does not match template `labels`"
        causes.append(Cause(field="spec.template.metadata.labels", message=message))
    replicas = value_at(document, "spec.replicas")
    if isinstance(replicas, int) and replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        causes.append(Cause(field="spec.replicas", message=message))
    if old is not None and value_at(old, "spec.selector") != value_at(document, "spec.selector"):
        causes.append(unchangeable("spec.selector"))
    return causes


def _stateful_set(document: Document, old: Document | None) -> list[Cause]:
    causes = _workload(document, old)
    if old is not None:
        before = {key: value for key, value in old["spec"].items() if key not in _STATEFUL_MUTABLE}
        after = {key: value for key, value in document["spec"].items() if key not in _STATEFUL_MUTABLE}
        if before != after:
            allowed = ", ".join(f"'{field}'" for field in _STATEFUL_MUTABLE)
            causes.append(forbidden("spec", f"updates to statefulset spec for fields other than {allowed}"))
    return causes


def _volume(document: Document, _old: Document | None) -> list[Cause]:
    return [*required("spec.capacity", document), *required("spec.accessModes", document)]


def _claim(document: Document, _old: Document | None) -> list[Cause]:
    return [*required("spec.accessModes", document), *required("spec.resources", document)]


def _storage_class(document: Document, _old: Document | None) -> list[Cause]:
    return required("provisioner", document)


def _binding(document: Document, old: Document | None) -> list[Cause]:
    causes = required("roleRef", document)
    if old is not None and old.get("roleRef") != document.get("roleRef"):
        causes.append(Cause(field="roleRef", message="Invalid value: cannot change roleRef"))
    return causes


VALIDATORS: dict[str, Validator] = {
    "Node": _node,
    "Pod": _pod,
    "ConfigMap": _sealed("data", "binaryData"),
    "Secret": _secret,
    "Lease": _lease,
    "PodDisruptionBudget": _disruption_budget,
    "VolumeAttachment": _attachment,
    "Event": _event,
    "Deployment": _workload,
    "ReplicaSet": _workload,
    "DaemonSet": _workload,
    "StatefulSet": _stateful_set,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "StorageClass": _storage_class,
    "ClusterRoleBinding": _binding,
    "RoleBinding": _binding,
}
