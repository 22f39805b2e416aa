"""How often a machine was repaired, asked of Temporal's visibility while an episode pins its target.

Nothing waits for that: an answer that does not come within a moment is "not known", which the record says (S37).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from activities.contracts import search
from policy.observation.offenders import FoundRepairs, OffenderAnswer, OffenderRules, hardware_of, offence

WITHIN = timedelta(seconds=1)
MOST_READ = 100
"""So many of one machine are counted; the limit is lower."""


class MachineRepairs:
    """Those of one cluster. cluster: as the settings name it."""

    def __init__(self, client: Client, cluster: str, rules: OffenderRules) -> None:
        self._client = client
        self._cluster = cluster
        self._rules = rules

    async def found(self, node: str, system_uuid: str) -> FoundRepairs:
        """Whether the machine of that Node is an offender, by one query. An episode that goes on in a new history is one repair;
        the one that asks is counted by itself, whether or not visibility knows it already."""
        if not (hardware := hardware_of(system_uuid)):
            return FoundRepairs()
        own = activity.info().workflow_id
        query = search.repairs(self._cluster, datetime.now(UTC) - self._rules.window, hardware=hardware)
        try:
            async with asyncio.timeout(WITHIN.total_seconds()):
                runs = [run async for run in self._client.list_workflows(query, limit=MOST_READ, rpc_timeout=WITHIN)]
        except (RPCError, TimeoutError) as error:
            why = error.message if isinstance(error, RPCError) else "no answer in time"
            return FoundRepairs(problem=f"Temporal can't list the repairs of the machine: {why}")
        others = [run for run in runs if run.id != own or run.status is not WorkflowExecutionStatus.RUNNING]
        before = [search.repair(run.typed_search_attributes, run.start_time) for run in others]
        found = offence(hardware, node, before, self._rules)
        return FoundRepairs(offence=found, asks=bool(found) and self._rules.answer is OffenderAnswer.ASK)
