"""Records what was seen and not repaired, after one look at each Node: who has laid a hand on it since it fell sick.

Each record is made on its own: one that can't be made, or that Temporal refuses as it is, holds back no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster, require_cluster
from activities.cluster.objects.live_node import find_node
from activities.contracts import metrics
from activities.contracts.observations import ObservationActivities, RecordRequest, RecordResult
from activities.errors import ErrorType
from policy.observation.open_spells import LONGEST, with_traces
from policy.observation.spells import Ending, ObservationRecord, Spell
from policy.values.display_text import in_a_line

T = TypeVar("T")

AT_ONCE, MOST_TRACES, LONGEST_NAME = 20, 5, 60
GIVEN_UP = LONGEST
"""So long after its end a record that Temporal refuses is asked for again: a search attribute that is missing can be added."""
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
        looks = await asyncio.gather(*(_attempt(self._looked_at(each)) for each in request.ended))
        ended = [each for each in looks if isinstance(each, Spell)]
        of_storms = tuple(each for each in ended if each.storm)
        single = [ObservationRecord(cluster=self._cluster, spells=(each,)) for each in ended if not each.storm]
        records = (*single, *request.records)
        tries = await asyncio.gather(*(_attempt(self._recorded(each)) for each in records))
        problems = {spell.record_id(self._cluster): look for spell, look in zip(request.ended, looks, strict=True)}
        problems |= {record.workflow_id: tried for record, tried in zip(records, tries, strict=True)}
        failed = {name: each for name, each in problems.items() if isinstance(each, ApplicationError)}
        over = [each for each in records if each.workflow_id not in failed]
        if failed and not over and not of_storms:
            raise next(iter(failed.values()))
        if self._served.record is not None:
            await self._served.record([decision for each in over for decision in each.decisions()])
        return RecordResult(of_storms=of_storms, left=tuple(failed), problem=next((each.message for each in failed.values()), ""))

    async def _recorded(self, record: ObservationRecord) -> None:
        """It counts as recorded, too, once it has been refused for long enough: only the decision stream has it then."""
        try:
            async with self._room:
                await self._start(record)
        except ApplicationError as error:
            if error.type != ErrorType.INVALID_CONFIG or self._served.clock() - record.over < GIVEN_UP:
                raise
            metrics.OBSERVATIONS_DROPPED.add(activity.metric_meter(), cluster=self._cluster)
            activity.logger.error("%s is dropped after %s: %s", record.workflow_id, GIVEN_UP, error.message)

    async def _looked_at(self, spell: Spell) -> Spell:
        if spell.ending is not Ending.CAME_BACK or "/" in spell.node:  # a Machine that never had a Node
            return spell
        async with self._room:
            node = await find_node(self._connection, spell.node)
        same = node is not None and node.view.uid == (spell.uid or node.view.uid)
        return with_traces(spell, tuple(hands_on(node.document, spell.since))[:MOST_TRACES] if node is not None and same else ())


async def _attempt(work: Awaitable[T]) -> T | ApplicationError:
    """What comes of it, or why nothing does."""
    try:
        return await work
    except ApplicationError as error:
        return error


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
