"""What a workflow has cost Temporal, counted in its histories: activities, workflow tasks, events, bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client


@dataclass(slots=True, kw_only=True)
class HistoryCost:
    """Of all runs of one workflow id since some moment. `kilobytes`: as the server counts a history's size."""

    runs: int = 0
    activities: int = 0
    workflow_tasks: int = 0
    events: int = 0
    kilobytes: float = 0.0
    by_activity: Counter[str] = field(default_factory=Counter)
    by_event: Counter[str] = field(default_factory=Counter)
    """All events, by Temporal's names for their types."""
    first_activity: datetime | None = None
    """When a worker took up the first activity, by the server's clock; None where none has begun."""


async def history_cost(client: Client, workflow_id: str, *, since: datetime) -> HistoryCost:
    """All runs that began at or after `since`, so that one which continues as new hides nothing."""
    cost = HistoryCost()
    handle = client.get_workflow_handle(workflow_id)
    run_id = (await handle.describe()).run_id
    while run_id:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        described = await handle.describe()
        if described.start_time < since:
            break
        cost.runs += 1
        cost.kilobytes += described.raw_description.workflow_execution_info.history_size_bytes / 1000
        run_id = ""
        async for event in handle.fetch_history_events():
            cost.events += 1
            cost.by_event[EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()] += 1
            match event.event_type:
                case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                    run_id = event.workflow_execution_started_event_attributes.continued_execution_run_id
                case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                    cost.activities += 1
                    cost.by_activity[event.activity_task_scheduled_event_attributes.activity_type.name] += 1
                case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                    moment = event.event_time.ToDatetime(tzinfo=described.start_time.tzinfo)
                    cost.first_activity = min(cost.first_activity or moment, moment)
                case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                    cost.workflow_tasks += 1
    return cost
