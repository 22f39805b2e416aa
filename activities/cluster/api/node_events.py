"""Events on one Node, live: for a last look under a policy that asks what was said of it lately. Our own are told by `events.py`.

Kubelets and problem detectors give a Node's name for its uid, so they are found by name; they expire after an hour.
"""

from __future__ import annotations

from typing import Any

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.events import CLUSTER_SCOPED_NAMESPACE
from activities.cluster.api.paths import EVENTS
from policy.objects.node_events import NodeEvent
from policy.values.moments import moment_of


async def events_on_node(connection: ClusterConnection, node: str) -> tuple[NodeEvent, ...]:
    """All that there are, of whomever."""
    query = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={node}"}
    listed = await connection.list_objects(EVENTS.path(namespace=CLUSTER_SCOPED_NAMESPACE), query=query)
    return tuple(event for each in listed if (event := _event(each)) is not None)


def _event(document: JsonObject) -> NodeEvent | None:
    """None for one that does not say when it happened. Old and new ways of writing it, as both are in use."""
    series: dict[str, Any] = document.get("series") or {}
    said = [series.get("lastObservedTime"), *(document.get(each) for each in ("lastTimestamp", "eventTime", "firstTimestamp"))]
    moments = [moment for each in said if (moment := moment_of(each)) is not None]
    if not moments:
        return None
    source = (document.get("source") or {}).get("component") or document.get("reportingComponent") or ""
    return NodeEvent(
        reason=str(document.get("reason") or ""), source=str(source), at=max(moments), message=str(document.get("message") or "")
    )
