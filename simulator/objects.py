"""Small questions one asks of Kubernetes objects that are plain dictionaries.

The simulated cluster keeps objects as the JSON the API sent: whatever it does not understand survives untouched, and
the same code runs against the simulated and a real API server. This is not a model of Kubernetes; it only names what
would otherwise be a dozen chained `.get()` calls. Where objects live in the API is said in `resources.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

JsonObject = dict[str, Any]

READY = "Ready"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
ATTACHED_BY_CONTROLLER = "volumes.kubernetes.io/controller-managed-attach-detach"
"""An annotation of each Node with a kubelet that leaves attaching to kube-controller-manager, as all do by default."""
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SINGLE_WRITER_MODES = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


def timestamp(moment: datetime | None = None) -> str:
    """RFC 3339 with whole seconds, as metav1.Time is written."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime | None = None) -> str:
    """RFC 3339 with microseconds, as metav1.MicroTime (Leases) is written."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: Any) -> float:
    """A duration as Kubernetes writes it, `3s`, `500ms`, `1m30s`. Raises ValueError for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", str(text))
    if not parts or "".join(number + unit for number, unit in parts) != str(text):
        raise ValueError(f"expected a duration such as 3s or 1m30s, not {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def name_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("namespace", ""))


def uid_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("uid", ""))


def key_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or `name` for what has no namespace: the key of every cache and queue here."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def split_key(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


def is_terminating(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def controller_of(obj: Mapping[str, Any]) -> JsonObject | None:
    for owner in obj["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return dict(owner)
    return None


def owner_reference(owner: Mapping[str, Any]) -> JsonObject:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A metav1.LabelSelector. None selects nothing and an empty one everything, as in policy/v1."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        value, wanted = labels.get(expression["key"]), expression.get("values") or []
        holds = {
            "In": value in wanted,
            "NotIn": value not in wanted,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[expression["operator"]]
        if not holds:
            return False
    return True


# Conditions ------------------------------------------------------------------------------------------------------------------


def condition_of(obj: Mapping[str, Any], condition_type: str) -> JsonObject | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == condition_type:
            return dict(condition)
    return None


def condition_status(obj: Mapping[str, Any], condition_type: str) -> str:
    condition = condition_of(obj, condition_type)
    return str(condition["status"]) if condition else "Unknown"


def is_ready(obj: Mapping[str, Any]) -> bool:
    return condition_status(obj, READY) == "True"


# Nodes and taints ------------------------------------------------------------------------------------------------------------


def taints_of(node: Mapping[str, Any], *effects: str) -> list[JsonObject]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [dict(taint) for taint in taints if not effects or taint.get("effect") in effects]


def has_taint(node: Mapping[str, Any], key: str, *effects: str) -> bool:
    return any(taint.get("key") == key for taint in taints_of(node, *effects))


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """The rule of core/v1: an empty effect or key is a wildcard, and an empty key needs the operator Exists."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def tolerations_for(pod: Mapping[str, Any], taint: Mapping[str, Any]) -> list[JsonObject]:
    return [dict(each) for each in pod["spec"].get("tolerations") or () if tolerates(each, taint)]


def zone_of(node: Mapping[str, Any]) -> str:
    return str((node["metadata"].get("labels") or {}).get("topology.kubernetes.io/zone", ""))


# Pods and volumes ------------------------------------------------------------------------------------------------------------


def node_of(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "")


def phase_of(obj: Mapping[str, Any]) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def is_finished(pod: Mapping[str, Any]) -> bool:
    return phase_of(pod) in {"Succeeded", "Failed"}


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """Keys of the PersistentVolumeClaims the pod mounts."""
    return [
        f"{namespace_of(pod)}/{volume['persistentVolumeClaim']['claimName']}"
        for volume in pod["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    ]


def is_single_writer(volume: Mapping[str, Any]) -> bool:
    modes: Iterable[str] = volume["spec"].get("accessModes") or ()
    return bool(modes) and set(modes) <= SINGLE_WRITER_MODES


def attached_volume_name(volume: Mapping[str, Any]) -> str:
    """How kubelet and attach/detach controller name a CSI volume in `volumesInUse` and `volumesAttached`."""
    source = volume["spec"]["csi"]
    return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}"
