"""A hold of a node that has no open episode: the annotation `nodewarden.io/hold`, by which none begins.

The person writes it with their own rights, so that Kubernetes attests who it was, and takes it away in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import ObjectNotFound
from policy.episode.vetoes import HOLD_ANNOTATION, is_held
from starter.errors import MissingError, NoSuchNodeError, RefusedError
from starter.handles.speaking import Opening, name_of

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection


async def hold_node(opening: Opening, cluster: str, node: str, *, reason: str) -> str:
    """Hold it until `resume`. Raises RefusedError where another person holds it or the cluster is not reached from here, and
    NoSuchNodeError."""
    async with opening(cluster) as connection:
        if connection is None:
            command = f"kubectl annotate node {node} {HOLD_ANNOTATION}='{reason}'"
            raise RefusedError(
                f"{node} has no open episode, and {cluster} is not reached from here: `{command}` keeps one from it"
            )
        found, me = await _value(connection, node), await name_of(connection)
        if found is not None and is_held(found) and not found.startswith(f"by {me}: "):
            raise RefusedError(f"{node} has no open episode, and is held already: {found or HOLD_ANNOTATION}")
        await _write(connection, node, f"by {me}: {reason}")
    return f"{node} has no open episode, and none begins until you resume it (annotation {HOLD_ANNOTATION})"


async def resume_node(opening: Opening, cluster: str, node: str, *, of: str, missing: MissingError) -> str:
    """End that hold: the caller's own, or that of another person by name. Raises RefusedError where it is not that one's, and
    `missing` where there is none."""
    async with opening(cluster) as connection:
        found = await _value(connection, node) if connection is not None else None
        if connection is None or found is None or not is_held(found):
            raise missing
        if not found.startswith(f"by {of or await name_of(connection)}: "):
            how = f"--of NAME ends that of NAME, `kubectl annotate node {node} {HOLD_ANNOTATION}-` any"
            raise RefusedError(f"{node} is held, but not by {of or 'you'}: {found or HOLD_ANNOTATION} ({how})")
        await _write(connection, node, None)
    return f"{node} is no longer held: {found}"


async def _value(connection: ClusterConnection, node: str) -> str | None:
    try:
        body = await connection.get(NODES.path(node))
    except ObjectNotFound:
        from activities.cluster.objects.livenode import all_names

        raise NoSuchNodeError(node, await all_names(connection)) from None
    value: str | None = (body["metadata"].get("annotations") or {}).get(HOLD_ANNOTATION)
    return value


async def _write(connection: ClusterConnection, node: str, value: str | None) -> None:
    await connection.patch_merge(NODES.path(node), {"metadata": {"annotations": {HOLD_ANNOTATION: value}}})
