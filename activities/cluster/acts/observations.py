"""Records what was seen and not repaired, after one look at each Node: who has laid a hand on it since it fell sick."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster, require_cluster
from activities.cluster.objects.live_node import find_node
from activities.contracts.observations import ObservationActivities, RecordRequest, RecordResult
from policy.observation.open_spells import with_traces
from policy.observation.spells import Ending, ObservationRecord, Spell
from policy.values.display_text import in_a_line

AT_ONCE, MOST_TRACES, LONGEST_NAME = 20, 5, 60
PROGRAMS = frozenset({"kubelet", "kube-controller-manager", "cloud-controller-manager", "nodewarden"})
"""Field managers of which a taint or a cordon is no sign that another hand repairs the node."""


class ClusterObservations(ClusterActivities, ObservationActivities):
    """start: starts the workflow of a record, unless there is one."""

    def __init__(self, served: ServedCluster, *, start: Callable[[ObservationRecord], Awaitable[None]]) -> None:
        super().__init__(served)
        self._start = start
        self._room = asyncio.Semaphore(AT_ONCE)

    @activity.defn(name="observations.record")
    async def record(self, request: RecordRequest) -> RecordResult:
        """Side by side."""
        require_cluster(request.cluster, self._cluster)
        ended = await asyncio.gather(*(self._looked_at(each) for each in request.ended))
        single = [ObservationRecord(cluster=self._cluster, spells=(each,)) for each in ended if not each.storm]
        records = (*single, *request.records)
        await asyncio.gather(*(self._recorded(each) for each in records))
        if self._served.record is not None:
            await self._served.record([decision for each in records for decision in each.decisions()])
        return RecordResult(of_storms=tuple(each for each in ended if each.storm))

    async def _recorded(self, record: ObservationRecord) -> None:
        async with self._room:
            await self._start(record)

    async def _looked_at(self, spell: Spell) -> Spell:
        if spell.ending is not Ending.CAME_BACK or "/" in spell.node:  # a Machine that never had a Node
            return spell
        async with self._room:
            node = await find_node(self._connection, spell.node)
        same = node is not None and node.view.uid == (spell.uid or node.view.uid)
        return with_traces(spell, tuple(hands_on(node.document, spell.since))[:MOST_TRACES] if node is not None and same else ())


def hands_on(node: dict[str, Any], since: datetime) -> Iterator[str]:
    """Who has cordoned or tainted the Node since then, by its managedFields: what a manager wrote last, and when."""
    for entry in node["metadata"].get("managedFields") or ():
        manager, fields = str(entry.get("manager") or ""), (entry.get("fieldsV1") or {}).get("f:spec") or {}
        try:
            at = datetime.fromisoformat(entry.get("time") or "")
        except ValueError:
            continue
        if manager in PROGRAMS or entry.get("subresource") or at.astimezone(UTC) < since:
            continue
        if "f:unschedulable" in fields:
            yield f"cordoned by {in_a_line(manager, LONGEST_NAME)}"
        elif "f:taints" in fields:
            yield f"tainted by {in_a_line(manager, LONGEST_NAME)}"
