"""What an API server adds to and refuses in objects of its built-in kinds: defaults, admission and validation.

Only rules that a client of ours can meet; what every kind shares (names, labels, versions, finalizers) is registry.py,
custom resources are schema.py.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from simulator.api import errors, moments
from simulator.api.errors import Cause
from simulator.api.storage.store import Document, value_at
from simulator.api.writes.schema import is_date_time

NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_EVICTION_TOLERANCES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# Maps that a real server leaves out when they are empty; empty lists always vanish.
_OMITTED_WHEN_EMPTY = frozenset(
    {
        "labels",
        "annotations",
        "data",
        "binaryData",
        "nodeSelector",
        "matchLabels",
        "capacity",
        "allocatable",
        "limits",
        "requests",
        "parameters",
    }
)

# Fields that a real server cannot even decode in a wrong type: a bad request, not an invalid object.
_FIELD_TYPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "Node": {"spec.unschedulable": bool, "spec.providerID": str, "spec.podCIDR": str, "spec.taints": list},
    "Pod": {"spec.nodeName": str, "spec.containers": list, "spec.terminationGracePeriodSeconds": int},
    "ConfigMap": {"immutable": bool},
    "Secret": {"immutable": bool, "type": str},
    "Lease": {"spec.holderIdentity": str, "spec.leaseDurationSeconds": int, "spec.leaseTransitions": int},
    "PodDisruptionBudget": {"spec.minAvailable": (int, str), "spec.maxUnavailable": (int, str)},
    "StatefulSet": {"spec.replicas": int, "spec.serviceName": str},
    "Deployment": {"spec.replicas": int, "spec.paused": bool},
    "ReplicaSet": {"spec.replicas": int},
    "VolumeAttachment": {"spec.attacher": str, "spec.nodeName": str, "status.attached": bool},
    "Event": {"count": int, "reason": str, "message": str, "involvedObject": dict},
}


def check_types(kind: str, document: Document) -> None:
    """Refuse what a real server's decoder would. kind "": a custom one; its schema says what its other fields are."""
    maps = ("metadata.labels", "metadata.annotations", *(("data",) if kind == "ConfigMap" else ()))
    for path in maps:
        value = value_at(document, path)
        if value is not None and not (isinstance(value, dict) and all(isinstance(v, str) for v in value.values())):
            _cannot_decode(kind, path, "map[string]string")
    for part in ("spec", "status") if kind else ():
        if part in document and not isinstance(document[part], dict):
            _cannot_decode(kind, part, "object")
    for path, types in _FIELD_TYPES.get(kind, {}).items():
        value = value_at(document, path)
        wanted = types if isinstance(types, tuple) else (types,)
        if value is None:
            continue
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            _cannot_decode(kind, path, " or ".join(each.__name__ for each in wanted))


def _cannot_decode(kind: str, path: str, wanted: str) -> None:
    told = f"{kind} in version cannot be handled as a {kind}: json: cannot unmarshal into Go struct field {path}"
    raise errors.bad_request(f"{told} of type {wanted}")


def tidy(value: Any, key: str = "") -> Any:
    """Built-in objects lose nulls, empty lists and the empty maps that mean nothing."""
    if isinstance(value, dict):
        kept = {name: tidied for name, item in value.items() if (tidied := tidy(item, name)) is not None}
        return None if not kept and key in _OMITTED_WHEN_EMPTY else kept
    if isinstance(value, list):
        return [tidy(item) for item in value] or None
    return value


# Creation ---------------------------------------------------------------------------------------------------------


def _create_node(document: Document) -> None:
    taints = document.setdefault("spec", {}).setdefault("taints", [])
    if not any(taint.get("key") == NOT_READY_TAINT["key"] for taint in taints):
        taints.append(dict(NOT_READY_TAINT))


def _create_namespace(document: Document) -> None:
    document["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = document["metadata"]["name"]
    document["spec"] = {"finalizers": ["kubernetes"]}
    document["status"] = {"phase": "Active"}


def _create_pod(document: Document) -> None:
    spec = document.setdefault("spec", {})
    tolerations = spec.setdefault("tolerations", [])
    for key in _EVICTION_TOLERANCES:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(added)
    document["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _quality(spec: dict[str, Any]) -> str:
    resources = [container.get("resources") or {} for container in spec.get("containers") or ()]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(each.get("limits") or {}) and (each.get("requests") or each["limits"]) == each["limits"]
        for each in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _without_status(document: Document) -> None:
    document.pop("status", None)


def _with_status(status: dict[str, Any]) -> Callable[[Document], None]:
    def replace(document: Document) -> None:
        document["status"] = dict(status)

    return replace


ON_CREATE: dict[str, Callable[[Document], None]] = {
    "Node": _create_node,
    "Namespace": _create_namespace,
    "Pod": _create_pod,
    "PersistentVolume": _with_status({"phase": "Pending"}),
    "PersistentVolumeClaim": _with_status({"phase": "Pending"}),
    "Service": _with_status({"loadBalancer": {}}),
    "Deployment": _with_status({}),
    "ReplicaSet": _with_status({"replicas": 0}),
    "StatefulSet": _with_status({"replicas": 0, "availableReplicas": 0}),
    "DaemonSet": _with_status(
        {
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
        }
    ),
    "PodDisruptionBudget": _with_status(
        {
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "disruptionsAllowed": 0,
            "expectedPods": 0,
        }
    ),
    "VolumeAttachment": _without_status,
}


# Defaults, on every write -------------------------------------------------------------------------------------------


def _default_pod_spec(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
        container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") else "IfNotPresent")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _default_pod(document: Document) -> None:
    spec = document.setdefault("spec", {})
    _default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    document.setdefault("status", {}).setdefault("phase", "Pending")


def _default_node(document: Document) -> None:
    document.setdefault("spec", {})
    document.setdefault("status", {})
    capacity = document["status"].get("capacity")
    if capacity and "allocatable" not in document["status"]:
        document["status"]["allocatable"] = dict(capacity)


def _default_secret(document: Document) -> None:
    document.setdefault("type", "Opaque")
    written = document.pop("stringData", None)
    if written:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in written.items()}
        document["data"] = {**(document.get("data") or {}), **encoded}


def _default_workload(spec_defaults: dict[str, Any]) -> Callable[[Document], None]:
    def fill(document: Document) -> None:
        spec = document.setdefault("spec", {})
        for key, value in spec_defaults.items():
            spec.setdefault(key, dict(value) if isinstance(value, dict) else value)
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        _default_pod_spec(template.setdefault("spec", {}))
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("kind", "PersistentVolumeClaim")
            claim.setdefault("apiVersion", "v1")
            claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
            claim.setdefault("status", {"phase": "Pending"})

    return fill


def _default_claim(document: Document) -> None:
    document.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_volume(document: Document) -> None:
    spec = document.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def _default_class(document: Document) -> None:
    document.setdefault("reclaimPolicy", "Delete")
    document.setdefault("volumeBindingMode", "Immediate")


def _default_service(document: Document) -> None:
    spec = document.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _default_event(document: Document) -> None:
    document.setdefault("source", {})
    for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
        document.setdefault(key, None)
    document.setdefault("reportingComponent", "")
    document.setdefault("reportingInstance", "")


def _default_lease(document: Document) -> None:
    document.setdefault("spec", {})


_ROLLING = {"type": "RollingUpdate"}

DEFAULTS: dict[str, Callable[[Document], None]] = {
    "Pod": _default_pod,
    "Node": _default_node,
    "Secret": _default_secret,
    "Deployment": _default_workload(
        {
            "replicas": 1,
            "strategy": _ROLLING,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        }
    ),
    "ReplicaSet": _default_workload({"replicas": 1}),
    "StatefulSet": _default_workload(
        {
            "replicas": 1,
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": _ROLLING,
            "revisionHistoryLimit": 10,
            "serviceName": "",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        }
    ),
    "DaemonSet": _default_workload({"updateStrategy": _ROLLING, "revisionHistoryLimit": 10}),
    "PersistentVolumeClaim": _default_claim,
    "PersistentVolume": _default_volume,
    "StorageClass": _default_class,
    "Service": _default_service,
    "Event": _default_event,
    "Lease": _default_lease,
}


def micro_time_is_readable(value: object) -> bool:
    return isinstance(value, str) and is_date_time(value)


def check_lease_times(document: Document) -> None:
    for key in ("acquireTime", "renewTime"):
        value = value_at(document, f"spec.{key}")
        if value is not None and not micro_time_is_readable(value):
            raise errors.bad_request(
                f'Lease in version "v1" cannot be handled as a Lease: parsing time "{value}" as '
                f'"2006-01-02T15:04:05.000000Z07:00": cannot parse spec.{key}, expected e.g. '
                f"{moments.micro_stamp(moments.now())}"
            )


def required(path: str, document: Document) -> list[Cause]:
    if value_at(document, path) in (None, "", [], {}):
        return [Cause(field=path, message="Required value", reason="FieldValueRequired")]
    return []
