"""Workflows of fixed ids, asked as long as our own workers carry them out (S49): the scanners and the checks of devices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition


class NotOurs(Exception):  # noqa: N818 - what a stranger has begun, not a mistake
    """Another worker than ours carries out the workflow that has our id."""


class OurWorkflows:
    """A client of Temporal that has ended one may begin another of its id on a queue of its own, where that answers what it
    likes. task_queue: of our workflows.

    The run is asked that was found on our queue; which one that is is found out anew once it has ended."""

    def __init__(self, client: Client, *, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue
        self._runs: dict[str, str] = {}

    async def query(self, workflow_id: str, name: str, *asked: Any, answer: Any, within: timedelta, ended: bool = False) -> Any:
        """ended: the last one is asked where none is open. Raises NotOurs, WorkflowQueryRejectedError, as a query does else."""
        common = {"result_type": answer, "reject_condition": QueryRejectCondition.NOT_OPEN, "rpc_timeout": within}
        if (run := self._runs.get(workflow_id)) is not None:
            try:
                return await self._client.get_workflow_handle(workflow_id, run_id=run).query(name, args=asked, **common)
            except WorkflowQueryRejectedError:
                del self._runs[workflow_id]
        found = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=within)
        if found.task_queue != self._task_queue:
            raise NotOurs(f"{workflow_id} runs on task queue {found.task_queue}, which is not ours")
        self._runs[workflow_id] = found.run_id
        if ended and found.status is not WorkflowExecutionStatus.RUNNING:
            common["reject_condition"] = QueryRejectCondition.NONE
        return await self._client.get_workflow_handle(workflow_id, run_id=found.run_id).query(name, args=asked, **common)
