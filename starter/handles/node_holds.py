"""A hold of a node that has no open episode: the annotation `nodewarden.io/hold`, by which none begins.

The person writes it with their own rights, so that Kubernetes attests who it was, and takes it away in the same way.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from temporalio.exceptions import ApplicationError

from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import ObjectNotFound
from activities.errors import ErrorType, error_type
from policy.episode.gate import HOLD_ANNOTATION, is_held
from starter.errors import MissingError, NoSuchNodeError, RefusedError, SilentError
from starter.handles.node_actions import Opening, name_of

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection


async def hold_node(opening: Opening, cluster: str, node: str, *, reason: str) -> str:
    """Hold it until `resume`. Raises RefusedError where another person holds it, the cluster is not reached from here, or the
    caller may not write it; SilentError; NoSuchNodeError."""
    command = f"kubectl annotate node {node} {HOLD_ANNOTATION}={shlex.quote(reason)}"
    async with opening(cluster) as connection, _needs_rights(node, command):
        if connection is None:
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
    command = f"kubectl annotate node {node} {HOLD_ANNOTATION}-"
    async with opening(cluster) as connection, _needs_rights(node, command):
        found = await _value(connection, node) if connection is not None else None
        if connection is None or found is None or not is_held(found):
            raise missing
        if not found.startswith(f"by {of or await name_of(connection)}: "):
            how = f"--of NAME ends that of NAME, `{command}` any"
            raise RefusedError(f"{node} is held, but not by {of or 'you'}: {found or HOLD_ANNOTATION} ({how})")
        await _write(connection, node, None)
    return f"{node} is no longer held: {found}"


@asynccontextmanager
async def _needs_rights(node: str, command: str) -> AsyncIterator[None]:
    """The role of an operator does not give them: a NodeAction, for which it is enough, reaches open episodes only (S42)."""
    try:
        yield
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN:
            raise SilentError(error.message) from error
        raise RefusedError(
            f"{node} has no open episode, so its hold is an annotation of the Node, for which you need the rights get and "
            f"patch on nodes: {error.message}. Ask a person who has them for `{command}`; `nodewarden pause` keeps episodes from "
            "all nodes and does not need them"
        ) from error


async def _value(connection: ClusterConnection, node: str) -> str | None:
    try:
        body = await connection.get(NODES.path(node))
    except ObjectNotFound:
        from activities.cluster.objects.live_node import all_names

        raise NoSuchNodeError(node, await all_names(connection)) from None
    value: str | None = (body["metadata"].get("annotations") or {}).get(HOLD_ANNOTATION)
    return value


async def _write(connection: ClusterConnection, node: str, value: str | None) -> None:
    await connection.patch_merge(NODES.path(node), {"metadata": {"annotations": {HOLD_ANNOTATION: value}}})
