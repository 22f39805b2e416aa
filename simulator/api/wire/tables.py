"""`kubectl get`: Table documents for built-in kinds and for custom resources with their printer columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from simulator.api import moments
from simulator.api.storage.kinds import Resource
from simulator.api.storage.store import Document, Record, value_at

Cells = Callable[[Document, datetime], list[Any]]


def _column(name: str, kind: str = "string", *, priority: int = 0, form: str = "") -> dict[str, Any]:
    if name == "Name":
        form = "name"
    return {"name": name, "type": kind, "format": form, "description": name, "priority": priority}


def _columns(*names: str, wide: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [*(_column(name) for name in names), *(_column(name, priority=1) for name in wide)]


def _age(document: Document, at: datetime) -> str:
    return moments.age(document["metadata"].get("creationTimestamp", ""), at)


def _node(document: Document, at: datetime) -> list[Any]:
    status = document.get("status") or {}
    info = status.get("nodeInfo") or {}
    addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
    return [
        document["metadata"]["name"],
        node_status(document),
        ",".join(_roles(document)) or "<none>",
        _age(document, at),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def node_status(document: Document) -> str:
    conditions = value_at(document, "status.conditions") or ()
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    told = "NotReady" if ready and ready.get("status") != "True" else "Ready" if ready else "Unknown"
    return f"{told},SchedulingDisabled" if value_at(document, "spec.unschedulable") else told


def _roles(document: Document) -> list[str]:
    prefix = "node-role.kubernetes.io/"
    labels = document["metadata"].get("labels") or {}
    return sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))


def _pod(document: Document, at: datetime) -> list[Any]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    containers = status.get("containerStatuses") or []
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for each in containers:
        state = each.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason") or (state.get("terminated") or {}).get("reason")
        reason = waiting or reason
    if "deletionTimestamp" in document["metadata"]:
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    ready = sum(bool(each.get("ready")) for each in containers)
    return [
        document["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or ())}",
        reason,
        sum(each.get("restartCount", 0) for each in containers),
        _age(document, at),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _event(document: Document, at: datetime) -> list[Any]:
    involved = document.get("involvedObject") or {}
    seen = document.get("lastTimestamp") or document.get("eventTime") or document["metadata"].get("creationTimestamp")
    return [
        moments.age(seen or "", at),
        document.get("type", ""),
        document.get("reason", ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        str(document.get("message", "")).strip(),
    ]


def _paths(*paths: str) -> Cells:
    """Name, the values at these paths, age."""

    def cells(document: Document, at: datetime) -> list[Any]:
        values = [_shown(value_at(document, path)) for path in paths]
        return [document["metadata"]["name"], *values, _age(document, at)]

    return cells


def _shown(value: Any) -> Any:
    if value is None or value == "":
        return "<none>"
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _counted(*fields: str) -> Cells:
    def cells(document: Document, at: datetime) -> list[Any]:
        counts = [len(document.get(field) or {}) for field in fields]
        return [document["metadata"]["name"], *counts, _age(document, at)]

    return cells


def _secret(document: Document, at: datetime) -> list[Any]:
    return [document["metadata"]["name"], document.get("type", ""), len(document.get("data") or {}), _age(document, at)]


def _ready_of(document: Document, at: datetime) -> list[Any]:
    ready, wanted = value_at(document, "status.readyReplicas") or 0, value_at(document, "spec.replicas") or 0
    return [document["metadata"]["name"], f"{ready}/{wanted}", _age(document, at)]


def _deployment(document: Document, at: datetime) -> list[Any]:
    name, ready, age = _ready_of(document, at)
    status = document.get("status") or {}
    return [name, ready, status.get("updatedReplicas", 0), status.get("availableReplicas", 0), age]


def _budget(document: Document, at: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    limits = [spec.get(field, "N/A") for field in ("minAvailable", "maxUnavailable")]
    allowed = value_at(document, "status.disruptionsAllowed") or 0
    return [document["metadata"]["name"], *map(str, limits), allowed, _age(document, at)]


def _namespace(document: Document, at: datetime) -> list[Any]:
    return [document["metadata"]["name"], value_at(document, "status.phase") or "", _age(document, at)]


def _definition(document: Document, _at: datetime) -> list[Any]:
    return [document["metadata"]["name"], document["metadata"]["creationTimestamp"]]


_PLAIN: tuple[list[dict[str, Any]], Cells] = (_columns("Name", "Age"), _paths())
_TABLES: dict[str, tuple[list[dict[str, Any]], Cells]] = {
    "Node": (
        _columns(
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    "Pod": (
        [
            *_columns("Name", "Ready", "Status"),
            _column("Restarts", "integer"),
            *_columns("Age", wide=("IP", "Node", "Nominated Node", "Readiness Gates")),
        ],
        _pod,
    ),
    "Event": (_columns("Last Seen", "Type", "Reason", "Object", "Message"), _event),
    "Namespace": (_columns("Name", "Status", "Age"), _namespace),
    "ConfigMap": ([_column("Name"), _column("Data", "integer"), _column("Age")], _counted("data")),
    "Secret": ([_column("Name"), _column("Type"), _column("Data", "integer"), _column("Age")], _secret),
    "ServiceAccount": ([_column("Name"), _column("Secrets", "integer"), _column("Age")], _counted("secrets")),
    "Lease": (_columns("Name", "Holder", "Age"), _paths("spec.holderIdentity")),
    "PodDisruptionBudget": (
        _columns("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
        _budget,
    ),
    "StatefulSet": (_columns("Name", "Ready", "Age"), _ready_of),
    "Deployment": (_columns("Name", "Ready", "Up-to-date", "Available", "Age"), _deployment),
    "ReplicaSet": (
        _columns("Name", "Desired", "Current", "Ready", "Age"),
        _paths("spec.replicas", "status.replicas", "status.readyReplicas"),
    ),
    "DaemonSet": (
        _columns("Name", "Desired", "Current", "Ready", "Age"),
        _paths("status.desiredNumberScheduled", "status.currentNumberScheduled", "status.numberReady"),
    ),
    "Service": (_columns("Name", "Type", "Cluster-IP", "Age"), _paths("spec.type", "spec.clusterIP")),
    "PersistentVolume": (
        _columns("Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "Age"),
        _paths(
            "spec.capacity.storage",
            "spec.accessModes",
            "spec.persistentVolumeReclaimPolicy",
            "status.phase",
            "spec.claimRef.name",
            "spec.storageClassName",
        ),
    ),
    "PersistentVolumeClaim": (
        _columns("Name", "Status", "Volume", "Access Modes", "StorageClass", "Age"),
        _paths("status.phase", "spec.volumeName", "spec.accessModes", "spec.storageClassName"),
    ),
    "VolumeAttachment": (
        _columns("Name", "Attacher", "PV", "Node", "Attached", "Age"),
        _paths("spec.attacher", "spec.source.persistentVolumeName", "spec.nodeName", "status.attached"),
    ),
    "StorageClass": (
        _columns("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "Age"),
        _paths("provisioner", "reclaimPolicy", "volumeBindingMode"),
    ),
    "CustomResourceDefinition": (_columns("Name", "Created At"), _definition),
}


def _layout(resource: Resource) -> tuple[list[dict[str, Any]], Cells]:
    if resource.custom is None or not resource.custom.columns:
        return _TABLES.get(resource.kind, _PLAIN) if resource.custom is None else _PLAIN
    columns = resource.custom.columns
    described = [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]

    def cells(document: Document, at: datetime) -> list[Any]:
        return [document["metadata"]["name"], *(_cell(document, column.type, column.json_path, at) for column in columns)]

    return [_column("Name"), *described], cells


def _cell(document: Document, kind: str, path: str, at: datetime) -> Any:
    found = json_path(document, path)
    if not found:
        return None
    if kind == "date":
        return moments.age(str(found[0]), at)
    if kind in ("integer", "number", "boolean"):
        return found[0]
    return ",".join(str(each) for each in found)


def table(
    resource: Resource, records: list[Record], head: dict[str, Any], *, include: str = "Metadata", columns: bool = True
) -> Document:
    """A Table of these records; its rows carry the object's metadata (kubectl reads names from it), all of it or none."""
    definitions, cells = _layout(resource)
    at = moments.now()
    rows = [{"cells": cells(record.document, at), **_carried(record, include)} for record in records]
    document: Document = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": head}
    document["columnDefinitions"] = definitions if columns else []
    document["rows"] = rows
    return document


def _carried(record: Record, include: str) -> Document:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": record.document}
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {"object": {**head, "metadata": record.document["metadata"]}}


_STEP = re.compile(
    r"""\.?(?P<name>(?:[\w-]|\\.)+)
      | \[\s*(?P<index>-?\d+|\*)\s*\]
      | \[\s*['"](?P<quoted>[^'"]*)['"]\s*\]
      | \[\?\(\s*@\.(?P<field>[\w.-]+)\s*(?P<operator>==|!=)\s*['"]?(?P<value>[^'")]*)['"]?\s*\)\]
      | \.(?P<all>\*)""",
    re.VERBOSE,
)


def json_path(document: Any, path: str) -> list[Any]:
    """The part of JSONPath that printer columns use: names, indexes, quoted keys, `*` and one comparison."""
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    values, position = [document], 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return []
        position = step.end()
        values = [found for value in values for found in _step(value, step)]
    return [value for value in values if value is not None]


def _step(value: Any, step: re.Match[str]) -> list[Any]:
    name = step["name"] if step["name"] is not None else step["quoted"]
    if name is not None:
        return [value[plain]] if isinstance(value, dict) and (plain := name.replace("\\", "")) in value else []
    if step["all"] or step["index"] == "*":
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    if not isinstance(value, list):
        return []
    if step["index"] is not None:
        index = int(step["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    wanted = step["operator"] == "=="
    return [item for item in value if (str(value_at(item, step["field"])) == step["value"]) is wanted]
