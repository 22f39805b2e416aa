"""The check of one cluster's fence devices from outside: ask for it, have it repeated, stop that.

It runs beside the scanner and is started and stopped with it; asked where it does not run, it is started for the question. What
it remembers of a former run goes into the next one.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import (
    AutoUpgradeVersioningOverride,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import search
from activities.errors import ErrorType, error_type
from policy.episode.messages import device_check_id
from policy.fence.device_check import DeviceMemory, DeviceReport
from starter.errors import RequestError, SilentError
from starter.handles.calls import ANSWER_WITHIN, ask, unanswered, why_silent
from workflows.kit.messages import CheckRequest, DeviceCheckInput, DeviceCheckResult
from workflows.kit.options import WORKFLOW_QUEUE

DEVICE_CHECK = "DeviceCheck"
AWAY = frozenset({ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED})
ATTEMPTS = 3
"""One that is just ending does not take a question any more: the next attempt starts another."""

_ENDING = frozenset({RPCStatusCode.ABORTED, RPCStatusCode.NOT_FOUND})


class DeviceCheckHandle:
    """The check of one cluster, running or not."""

    def __init__(self, client: Client, cluster: str) -> None:
        self.cluster = cluster
        self.workflow_id = device_check_id(cluster)
        self._client = client
        self._handle: WorkflowHandle[Any, DeviceCheckResult] = client.get_workflow_handle(
            self.workflow_id, result_type=DeviceCheckResult
        )
        self._what = f"check of the fence devices of {cluster}"

    async def check(self, node: str = "", *, admit: bool = False) -> DeviceReport:
        """Read all devices of the cluster, or of one node, now. Takes as long as they do. admit: see `CheckRequest`.

        Raises SilentError where no worker answers or the cluster can't be reached, RequestError where it can't be read.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._asked(CheckRequest(node=node, admit=admit))
            except WorkflowUpdateFailedError as error:
                # "AcceptedUpdateCompletedWorkflow": it ended, or was terminated, with the question in hand.
                if getattr(error.cause, "type", "") != "AcceptedUpdateCompletedWorkflow" or attempt == ATTEMPTS:
                    kind = SilentError if error_type(error) in AWAY else RequestError
                    raise kind(str(getattr(error.cause, "message", "") or error.cause)) from error
            except RPCError as error:
                if error.status not in _ENDING or attempt == ATTEMPTS:
                    raise unanswered(error, what=self._what) from error
        raise AssertionError("the last attempt returns or raises")

    async def last_report(self) -> DeviceReport | None:
        """What the last check of all devices has found, None before this run has made one. Raises MissingError where none
        runs."""
        answer: Any = DeviceReport | None
        report: DeviceReport | None = await ask(self._client, self.workflow_id, "report", answer, what=self._what, only_open=True)
        return report

    async def repeat(self, every: timedelta) -> None:
        """Have all devices checked by the clock. One that runs takes the interval over."""
        try:
            await self._client.start_workflow(
                DEVICE_CHECK,
                DeviceCheckInput(cluster=self.cluster, every=every, memory=await self._memory()),
                start_signal="repeat",
                start_signal_args=[every],
                **self._start_options(f"reads the fence devices of {self.cluster} by the clock"),
            )
        except RPCError as error:
            raise unanswered(error, what=self._what) from error

    async def stop(self) -> None:
        """No more checks by the clock. One that is waited for is still answered."""
        try:
            await self._handle.signal("stop", rpc_timeout=ANSWER_WITHIN)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise unanswered(error, what=self._what) from error

    async def _asked(self, request: CheckRequest) -> DeviceReport:
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            DEVICE_CHECK,
            DeviceCheckInput(cluster=self.cluster, every=None, memory=await self._memory()),
            **self._start_options(f"reads the fence devices of {self.cluster} as asked"),
        )
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                accepted = await self._client.start_update_with_start_workflow(
                    "check",
                    request,
                    start_workflow_operation=start,
                    wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                    result_type=DeviceReport,
                )
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise SilentError(await why_silent(self._client, self.workflow_id, self._what)) from error
        try:
            report: DeviceReport = await accepted.result()
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                # The SDK has an error of its own for a cancelled wait; a caller's time-out knows only asyncio's.
                raise asyncio.CancelledError from error
            raise SilentError(await why_silent(self._client, self.workflow_id, self._what)) from error
        return report

    async def _memory(self) -> DeviceMemory:
        """What the last run ended with; nothing where there was none, or it was not let end."""
        try:
            last = await self._handle.describe(rpc_timeout=ANSWER_WITHIN)
            if last.status is not WorkflowExecutionStatus.COMPLETED:
                return DeviceMemory()
            ended: WorkflowHandle[Any, DeviceCheckResult] = self._client.get_workflow_handle(
                self.workflow_id, run_id=last.run_id, result_type=DeviceCheckResult
            )
            return (await ended.result(follow_runs=False, rpc_timeout=ANSWER_WITHIN)).memory
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return DeviceMemory()
            raise unanswered(error, what=self._what) from error

    def _start_options(self, summary: str) -> dict[str, Any]:
        """It sleeps for hours, so it is pinned to no build: no worker may run that one any more when it wakes."""
        return {
            "id": self.workflow_id,
            "task_queue": WORKFLOW_QUEUE,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "static_summary": summary,
            "versioning_override": AutoUpgradeVersioningOverride(),
            "search_attributes": TypedSearchAttributes(
                [SearchAttributePair(search.CLUSTER, self.cluster), SearchAttributePair(search.KIND, DEVICE_CHECK)]
            ),
        }
