"""How far is believed what others ask for: the need in a workflow's input, and the author of a NodeAction.

Any client of Temporal may start a workflow, and what it writes into the input is data.

A person may want a node acted on, and a scanner says which check or which object does. Each of these is judged again by every
last look, on live objects. This module settles, at the pin, what would switch a look off or stand for another's command.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from activities.cluster.objects.fencing_requests import find_request
from activities.cluster.objects.object_reader import ApiReader
from activities.errors import ErrorType, as_invalid_config, failure
from policy.episode.fencing_requests import read_request
from policy.episode.messages import Kind, Need, NeedKind

OF_A_FENCING = frozenset({NeedKind.PERSON, NeedKind.CHECK, NeedKind.FOREIGN_OBJECT, NeedKind.CLEAN_UP})
OF_A_REMEDIATION = frozenset({NeedKind.PERSON, NeedKind.CHECK})


def kinds_for(workflow_type: str | None) -> Collection[NeedKind]:
    """The needs with which a workflow of that type may have a node pinned for a fencing. Its own preservation is no veto to
    the workflow that carries it out, so that no other may claim to do so (S21)."""
    return {NeedKind.PRESERVATION} if workflow_type == Kind.PRESERVATION.value else OF_A_FENCING


def require_kind(need: Need, kinds: Collection[NeedKind]) -> None:
    """Raises InvalidConfig for a need that is not of these kinds."""
    if need.kind not in kinds:
        expected = ", ".join(sorted(kind.value for kind in kinds))
        raise failure(ErrorType.INVALID_CONFIG, f"need.kind: expected one of {expected}, got {need.kind.value}")


async def with_live_delegate(connection: ApiReader, need: Need, node: str, namespaces: Collection[str]) -> Need:
    """Who may hold the node's lease although we act is what the object that asks says, of that node, and nothing else (S20).
    namespaces: where objects are obeyed."""
    if need.kind is not NeedKind.FOREIGN_OBJECT:
        return replace(need, delegate="")
    found = await find_request(connection, need, namespaces)
    if found is None:
        return replace(need, delegate="")  # the plan says that it is gone
    with as_invalid_config():
        request = read_request(found)
    if request.node != node:
        raise failure(ErrorType.INVALID_CONFIG, f"{request.ref.key} asks for node {request.node}, not for {node}")
    return replace(need, delegate=request.delegate)
