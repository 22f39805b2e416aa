"""How a strategic merge patch treats the lists of built-in kinds: only what differs from "replace".

A list is merged by a key, or as a set of plain values; every list and map that is not named here is replaced whole
(`spec.taints` of a node for one) or, for maps, merged key by key. Written down for the kinds served here only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MergedList:
    """A list with items that are matched by one of their fields."""

    key: str
    item: str = ""


@dataclass(frozen=True, slots=True)
class MergedSet:
    """A list of plain values that only grows."""


@dataclass(frozen=True, slots=True)
class Nested:
    """An object with rules of its own."""

    type: str


@dataclass(frozen=True, slots=True)
class Atomic:
    """An object that is replaced whole."""


Rule = MergedList | MergedSet | Nested | Atomic

_CONDITIONS: dict[str, Rule] = {"conditions": MergedList("type")}
_WORKLOAD: dict[str, Rule] = {"template": Nested("PodTemplate")}
_TOPOLOGY = MergedList("topologyKey")

MERGE_TYPES: dict[str, dict[str, Rule]] = {
    "ObjectMeta": {"finalizers": MergedSet(), "ownerReferences": MergedList("uid")},
    "PodTemplate": {"metadata": Nested("ObjectMeta"), "spec": Nested("PodSpec")},
    "PodSpec": {
        "containers": MergedList("name", "Container"),
        "initContainers": MergedList("name", "Container"),
        "ephemeralContainers": MergedList("name", "Container"),
        "volumes": MergedList("name", "Volume"),
        "imagePullSecrets": MergedList("name"),
        "hostAliases": MergedList("ip"),
        "topologySpreadConstraints": _TOPOLOGY,
        "resourceClaims": MergedList("name"),
    },
    "Container": {
        "env": MergedList("name"),
        "ports": MergedList("containerPort"),
        "volumeMounts": MergedList("mountPath"),
        "volumeDevices": MergedList("devicePath"),
    },
    "PodStatus": {
        "conditions": MergedList("type"),
        "podIPs": MergedList("ip"),
        "hostIPs": MergedList("ip"),
        "resourceClaimStatuses": MergedList("name"),
    },
    "NodeSpec": {"podCIDRs": MergedSet()},
    "NodeStatus": {"conditions": MergedList("type"), "addresses": MergedList("type")},
    "WorkloadSpec": _WORKLOAD,
    "ConditionStatus": _CONDITIONS,
    "ServiceSpec": {"ports": MergedList("port")},
    "ServiceStatus": _CONDITIONS,
    "DisruptionSpec": {"selector": Atomic()},
    "CSINodeSpec": {"drivers": MergedList("name")},
}

# Per kind: its top-level fields; `metadata` is the same for all and added below.
_KINDS: dict[str, dict[str, Rule]] = {
    "Node": {"spec": Nested("NodeSpec"), "status": Nested("NodeStatus")},
    "Pod": {"spec": Nested("PodSpec"), "status": Nested("PodStatus")},
    "Namespace": {"status": Nested("ConditionStatus")},
    "PersistentVolumeClaim": {"status": Nested("ConditionStatus")},
    "Service": {"spec": Nested("ServiceSpec"), "status": Nested("ServiceStatus")},
    "ServiceAccount": {"secrets": MergedList("name")},
    "Deployment": {"spec": Nested("WorkloadSpec"), "status": Nested("ConditionStatus")},
    "ReplicaSet": {"spec": Nested("WorkloadSpec"), "status": Nested("ConditionStatus")},
    "StatefulSet": {"spec": Nested("WorkloadSpec"), "status": Nested("ConditionStatus")},
    "DaemonSet": {"spec": Nested("WorkloadSpec"), "status": Nested("ConditionStatus")},
    "PodDisruptionBudget": {"spec": Nested("DisruptionSpec"), "status": Nested("ConditionStatus")},
    "CSINode": {"spec": Nested("CSINodeSpec")},
}


def rules_of_kind(kind: str) -> dict[str, Rule]:
    return {"metadata": Nested("ObjectMeta"), **_KINDS.get(kind, {})}
