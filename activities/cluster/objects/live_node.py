"""A node read live, past every cache; what an episode keeps of it. It is changed by `node_edits.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import orjson
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import unless_gone
from activities.cluster.objects.decoding import decode_node, identity_of
from activities.cluster.objects.object_reader import ApiReader
from activities.errors import ErrorType, failure
from policy.checks.rules.medik8s import CONFIRMED_ANNOTATION
from policy.episode.messages import Pinned, SeenNode
from policy.objects.marks import Mark, mark_of
from policy.objects.nodes import NodeView, Taint
from policy.values.errors import PolicyError

GKE_INSTANCE_ANNOTATION = "container.googleapis.com/instance_id"
"""By this GKE says which instance a Node is: one that is made anew under its name has another number."""


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
        instance_id=identity_of(view.annotations.get(GKE_INSTANCE_ANNOTATION)),
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
