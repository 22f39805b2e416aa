"""What is written to a Node, and that it is changed only as it was read: every edit is one JSON patch that tests uid and
resourceVersion.

So two writers never lose each other's work, and a node that was re-created under the same name is never touched by mistake. A
JSON patch is used because taints are one atomic list to every other patch type: naming a single entry is the only way to leave
the others byte for byte as they were. What to change is decided by the callers (`marks.py`, `acts/isolation.py`,
`acts/freeing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import edit
from activities.cluster.objects.live_node import LiveNode, read_node
from activities.contracts.target import ActResult
from policy.objects.marks import Mark
from policy.objects.nodes import Taint

Operations = tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to change on the node that was just read, and the line for the record. No operations: it is already so."""

    detail: str
    operations: Operations = ()
    mark: Mark | None = None
    """Ours, as it is then."""


async def edit_node(
    connection: ClusterConnection,
    name: str,
    decide: Callable[[LiveNode], Edit],
    *,
    not_after: datetime | None = None,
    read: LiveNode | None = None,
) -> ActResult:
    """`decide` is asked again about every version of the node that others have written meanwhile. Not begun after that moment.

    It may raise to refuse; nothing has been written then. A lost answer is not repeated (Ambiguous). read: as the caller has just
    read it. A change is written to that version alone; that there is nothing to change is decided on what is there now.
    """
    versions = [read] if read is not None else []

    async def once() -> ActResult:
        node, is_fresh = (versions.pop(), False) if versions else (await read_node(connection, name), True)
        change = decide(node)
        if not (change.operations or is_fresh):
            node = await read_node(connection, name)
            change = decide(node)
        added = change.mark.added if change.mark is not None else None
        version = node.view.resource_version
        if not change.operations:
            return ActResult(changed=False, detail=change.detail, added=added, version=version)
        await patch_as_read(connection, node, change.operations, not_after=not_after)
        return ActResult(changed=True, detail=change.detail, added=added, version=version)

    return await edit(f"Node/{name}", once)


async def patch_as_read(
    connection: ClusterConnection, node: LiveNode, operations: Operations, *, not_after: datetime | None = None
) -> None:
    """Only as it was read (S27, S28); what is written next goes by its new version."""
    patch = [*unchanged_since_read(node.document), *operations]
    answer = await connection.patch_json(NODES.path(node.view.name), patch, not_after=not_after)
    node.document["metadata"] = answer["metadata"]


# Operations on a node as read; several of them may be joined into one patch.


def set_annotations(document: JsonObject, values: Mapping[str, str | None]) -> Operations:
    """Of any object, also of one that has none; None removes one that is there."""
    return _set(document, "annotations", values)


def set_labels(document: JsonObject, values: Mapping[str, str | None]) -> Operations:
    return _set(document, "labels", values)


def _set(document: JsonObject, field: str, values: Mapping[str, str | None]) -> Operations:
    there = document["metadata"].get(field) or {}
    operations: list[JsonObject] = []
    if not there and any(value is not None for value in values.values()):
        operations.append({"op": "add", "path": f"/metadata/{field}", "value": {}})
    for key, value in values.items():
        if value is not None:
            operations.append({"op": "add", "path": f"/metadata/{field}/{_escaped(key)}", "value": value})
        elif key in there:
            operations.append({"op": "remove", "path": f"/metadata/{field}/{_escaped(key)}"})
    return tuple(operations)


def cordon() -> Operations:
    return ({"op": "add", "path": "/spec/unschedulable", "value": True},)


def uncordon() -> Operations:
    return ({"op": "remove", "path": "/spec/unschedulable"},)


def append_taint(node: LiveNode, taint: Taint) -> Operations:
    """Put a taint behind the others."""
    value = {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
    if not node.taints:
        return ({"op": "add", "path": "/spec/taints", "value": [value]},)
    return ({"op": "add", "path": "/spec/taints/-", "value": value},)


def remove_taints(node: LiveNode, taints: Collection[Taint]) -> Operations:
    """Take exactly these out of the list, as far as they are there: from the back, since each removal moves up what is behind."""
    places = [place for place, taint in enumerate(node.taints) if taint in taints]
    return tuple({"op": "remove", "path": f"/spec/taints/{place}"} for place in reversed(places))


def unchanged_since_read(document: JsonObject) -> Operations:
    """Tests that begin every patch of an object."""
    return tuple(
        {"op": "test", "path": f"/metadata/{key}", "value": document["metadata"][key]} for key in ("uid", "resourceVersion")
    )


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
