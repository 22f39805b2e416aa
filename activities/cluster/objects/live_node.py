"""A node read live, and changed only as it was read: every edit is one JSON patch that tests uid and resourceVersion.

So two writers never lose each other's work, and a node that was re-created under the same name is never touched by mistake. A
JSON patch is used because taints are one atomic list to every other patch type: naming a single entry is the only way to leave
the others byte for byte as they were. What to change is decided by the callers (`marks.py`, `acts/isolation.py`,
`acts/freeing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
import orjson
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import edit, unless_gone
from activities.cluster.objects.decoding import decode_node
from activities.cluster.objects.object_reader import ApiReader
from activities.contracts.target import ActResult
from activities.errors import ErrorType, failure
from policy.checks.rules.medik8s import CONFIRMED_ANNOTATION
from policy.episode.messages import Pinned, SeenNode
from policy.objects.marks import Mark, mark_of
from policy.objects.nodes import NodeView, Taint
from policy.values.errors import PolicyError

Operations = tuple[JsonObject, ...]

GKE_INSTANCE_ANNOTATION = "container.googleapis.com/instance_id"
"""By this GKE says which instance a Node is: one that is made anew under its name has another number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to change on the node that was just read, and the line for the record. No operations: it is already so."""

    detail: str
    operations: Operations = ()
    mark: Mark | None = None
    """Ours, as it is then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """A node as just read: what decisions use, and the whole object, since an edit must know what a view leaves out."""

    view: NodeView
    document: JsonObject

    @property
    def annotations(self) -> Mapping[str, str]:
        """All of them, whatever a view keeps."""
        return self.document["metadata"].get("annotations") or {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its IP addresses, inside and outside the cluster."""
        return self.view.addresses

    @property
    def taints(self) -> tuple[Taint, ...]:
        """All of them, in the order of the object."""
        return tuple(
            Taint(key=taint.get("key", ""), effect=taint.get("effect", ""), value=taint.get("value", ""))
            for taint in (self.document.get("spec") or {}).get("taints") or ()
        )


async def read_node(connection: ApiReader, name: str) -> LiveNode:
    """The node as it is now. Raises ObjectNotFound."""
    body = await connection.get_bytes(NODES.path(name))
    try:
        return LiveNode(view=decode_node(body), document=orjson.loads(body))
    except (msgspec.DecodeError, orjson.JSONDecodeError) as error:
        raise failure(ErrorType.TRANSIENT, f"GET Node/{name}: the answer is not a Node: {error}") from error


async def find_node(connection: ApiReader, name: str) -> LiveNode | None:
    """The node as it is now, None where no Node has that name."""
    return await unless_gone(read_node(connection, name))


async def all_names(connection: ClusterConnection) -> tuple[str, ...]:
    """Of all of them, for a message about a name that none of them has; () where they can't be listed."""
    try:
        pages = [page.body async for page in connection.list_pages(NODES.path(), metadata_only=True)]
    except ApplicationError:
        return ()
    return tuple(each["metadata"]["name"] for page in pages for each in orjson.loads(page)["items"] or ())


async def edit_node(
    connection: ClusterConnection, name: str, decide: Callable[[LiveNode], Edit], *, not_after: datetime | None = None
) -> ActResult:
    """`decide` is asked again about every version of the node that others have written meanwhile. Not begun after that moment.

    It may raise to refuse; nothing has been written then. A lost answer is not repeated (Ambiguous).
    """

    async def once() -> ActResult:
        node = await read_node(connection, name)
        change = decide(node)
        added = change.mark.added if change.mark is not None else None
        version = node.view.resource_version
        if not change.operations:
            return ActResult(changed=False, detail=change.detail, added=added, version=version)
        patch = [*unchanged_since_read(node.document), *change.operations]
        await connection.patch_json(NODES.path(name), patch, not_after=not_after)
        return ActResult(changed=True, detail=change.detail, added=added, version=version)

    return await edit(f"Node/{name}", once)


def readable_mark(node: NodeView) -> Mark | None:
    """The mark on the node. Raises InvalidConfig for one that cannot be read: unreadable is never absent."""
    try:
        return mark_of(node)
    except PolicyError as error:
        raise failure(
            ErrorType.INVALID_CONFIG, f"{error}; remove that annotation and its label once no episode of this node is open"
        ) from error


def pinned_of(node: LiveNode) -> Pinned:
    """Which machine it is and how it stands; its devices are not the Node's to say (S9)."""
    view = node.view
    return Pinned(
        node=view.name,
        uid=view.uid,
        provider_id=view.provider_id,
        system_uuid=view.system_uuid,
        boot_id=view.boot_id,
        zone=view.zone,
        not_ready_since=None if view.ready else view.ready_since,
        addresses=node.addresses,
        instance_id=view.annotations.get(GKE_INSTANCE_ANNOTATION, ""),
    )


def seen_node(name: str, node: NodeView | None) -> SeenNode:
    """What an episode keeps of a live read."""
    if node is None:
        return SeenNode(node=name, present=False)
    incident, problem = "", ""
    try:
        mark = mark_of(node)
        incident = mark.incident if mark else ""
    except PolicyError as error:
        problem = str(error)
    return SeenNode(
        node=name,
        uid=node.uid,
        ready=node.ready,
        ready_since=node.ready_since,
        boot_id=node.boot_id,
        provider_id=node.provider_id,
        system_uuid=node.system_uuid,
        incident=incident,
        mark_problem=problem,
        confirmed_well=CONFIRMED_ANNOTATION in node.annotations,
    )


# Operations on a node as read; several of them may be joined into one patch.


def put_annotation(node: LiveNode, key: str, value: str) -> Operations:
    """Set one annotation, creating the map on a node that has none."""
    return set_annotations(node.document, {key: value})


def remove_annotation(key: str) -> Operations:
    """Remove one annotation that is there."""
    return ({"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"},)


def set_annotations(document: JsonObject, values: Mapping[str, str | None]) -> Operations:
    """The same for several of any object; None removes one that is there."""
    return _set(document, "annotations", values)


def set_labels(document: JsonObject, values: Mapping[str, str | None]) -> Operations:
    """As annotations."""
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
    """Make the node unschedulable."""
    return ({"op": "add", "path": "/spec/unschedulable", "value": True},)


def uncordon() -> Operations:
    """Make a node schedulable that is not."""
    return ({"op": "remove", "path": "/spec/unschedulable"},)


def append_taint(node: LiveNode, taint: Taint) -> Operations:
    """Put a taint behind the others."""
    value = {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
    if not node.taints:
        return ({"op": "add", "path": "/spec/taints", "value": [value]},)
    return ({"op": "add", "path": "/spec/taints/-", "value": value},)


def remove_taint(node: LiveNode, taint: Taint) -> Operations:
    """Take exactly that taint out of the list; nothing where it is not there."""
    return remove_taints(node, {taint})


def remove_taints(node: LiveNode, taints: Collection[Taint]) -> Operations:
    """The same for several in one patch: from the back, since each removal moves up what is behind it."""
    places = [place for place, taint in enumerate(node.taints) if taint in taints]
    return tuple({"op": "remove", "path": f"/spec/taints/{place}"} for place in reversed(places))


async def patch_as_read(
    connection: ClusterConnection, node: LiveNode, operations: Operations, *, not_after: datetime | None = None
) -> None:
    """Only as it was read (S27, S28); what is written next goes by its new version."""
    patch = [*unchanged_since_read(node.document), *operations]
    answer = await connection.patch_json(NODES.path(node.view.name), patch, not_after=not_after)
    node.document["metadata"] = answer["metadata"]


def unchanged_since_read(document: JsonObject) -> Operations:
    """Tests that begin every patch of an object."""
    return tuple(
        {"op": "test", "path": f"/metadata/{key}", "value": document["metadata"][key]} for key in ("uid", "resourceVersion")
    )


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
