"""Why an open workflow does not answer: nobody works on it, or whoever does fails on it.

A workflow task that fails is tried again for ever, and the workflow looks as if it ran. The commonest cause is a history
that another version of our code has written.
"""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client
from temporalio.service import RPCError

NEWEST_EVENTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """The last workflow task failed. `other_code`: because the history does not fit the code that reads it."""

    message: str
    other_code: bool


async def task_failure(client: Client, workflow_id: str) -> TaskFailure | None:
    """The failure that a workflow is stuck on, None where its last task went well or nothing can be told."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id),
        maximum_page_size=NEWEST_EVENTS,
    )
    try:
        events = (await client.workflow_service.get_workflow_execution_history_reverse(request)).history.events
    except RPCError:
        return None
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return None
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            attributes = event.workflow_task_failed_event_attributes
            cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
            error = await client.data_converter.decode_failure(attributes.failure)
            return TaskFailure(message=" ".join(_told(error).split())[:200], other_code=attributes.cause == cause)
    return None


def _told(error: BaseException) -> str:
    """Without its type, and with what is at the bottom of it: the SDK wraps that in words of its own."""
    deepest = error
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
    said = [getattr(each, "message", str(each)) for each in (error, deepest)]
    return ": ".join(dict.fromkeys(said))
