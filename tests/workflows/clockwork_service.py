"""What a client asks a Temporal server for, answered by the clockwork.

A client of the SDK is all its own but for this: what it sends are the server's requests, and what it makes of the answers is what
it makes of the server's. Only what tests ask for is here; a history is not: where one is needed, take the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType, UpdateWorkflowExecutionLifecycleStage, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome, UpdateRef
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice import v1
from temporalio.bridge.proto.workflow_activation import SignalWorkflow
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from tests.workflows.executions import Execution, Word
from tests.workflows.workshop import Workshop

Answer = TypeVar("Answer", bound=Message)
STAGE = UpdateWorkflowExecutionLifecycleStage
ACCEPTED = STAGE.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED
COMPLETED = STAGE.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
STATUS = {
    "complete_workflow_execution": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED,
    "fail_workflow_execution": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED,
    "cancel_workflow_execution": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED,
    "continue_as_new_workflow_execution": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
}


class ClockworkService(ServiceClient):
    """The server's place."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(ConnectConfig(target_host="the clockwork", identity="tests"))
        self.workshop = workshop
        self._words: dict[str, tuple[Execution, Word]] = {}
        self._served: dict[str, Callable[[Any], Awaitable[Message]]] = {
            "start_workflow_execution": self._start,
            "query_workflow": self._query,
            "signal_workflow_execution": self._signal,
            "update_workflow_execution": self._update,
            "poll_workflow_execution_update": self._poll_update,
            "terminate_workflow_execution": self._terminate,
            "request_cancel_workflow_execution": self._cancel,
            "describe_workflow_execution": self._describe,
            "list_workflow_executions": self._list,
            "get_workflow_execution_history": self._history,
        }

    @property
    def worker_service_client(self) -> NoReturn:
        """A worker of the SDK needs a server."""
        raise NotImplementedError("tests.workflows.surroundings.worker makes workers for the clockwork")

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Nobody reads it."""

    def update_api_key(self, api_key: str | None) -> None:
        """Nobody asks for it."""

    async def _rpc_call(
        self,
        rpc: str,
        req: Message,
        resp_type: type[Answer],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Answer:
        if (serve := self._served.get(rpc)) is None:
            raise RPCError(f"the clockwork knows nothing of {service}.{rpc}", RPCStatusCode.UNIMPLEMENTED, b"")
        return cast(Answer, await serve(req))

    # What is said ---------------------------------------------------------------------------------------------------

    async def _start(self, asked: v1.StartWorkflowExecutionRequest) -> v1.StartWorkflowExecutionResponse:
        execution = self.workshop.start_converted(asked.workflow_type.name, asked.workflow_id, list(asked.input.payloads))
        if execution is None:
            raise RPCError(f"{asked.workflow_id} runs already", RPCStatusCode.ALREADY_EXISTS, b"")
        self.workshop.stand()
        return v1.StartWorkflowExecutionResponse(run_id=execution.run_id, started=True)

    async def _signal(self, asked: v1.SignalWorkflowExecutionRequest) -> v1.SignalWorkflowExecutionResponse:
        signal = SignalWorkflow(signal_name=asked.signal_name, input=asked.input.payloads)
        self._open(asked.workflow_execution).deliver(signal_workflow=signal)
        self.workshop.stand()
        return v1.SignalWorkflowExecutionResponse()

    async def _cancel(self, asked: v1.RequestCancelWorkflowExecutionRequest) -> v1.RequestCancelWorkflowExecutionResponse:
        self._open(asked.workflow_execution).cancel(asked.reason)
        self.workshop.stand()
        return v1.RequestCancelWorkflowExecutionResponse()

    async def _terminate(self, asked: v1.TerminateWorkflowExecutionRequest) -> v1.TerminateWorkflowExecutionResponse:
        self._open(asked.workflow_execution).terminate()
        return v1.TerminateWorkflowExecutionResponse()

    async def _update(self, asked: v1.UpdateWorkflowExecutionRequest) -> v1.UpdateWorkflowExecutionResponse:
        execution = self._open(asked.workflow_execution)
        said = asked.request
        word = execution.tell(said.input.name, list(said.input.args.payloads))
        self._words[said.meta.update_id] = execution, word
        self.workshop.stand()
        while word.response is None:
            if self.workshop.open(execution.workflow_id) is None:
                raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
            await self.workshop.moment()
        reference = UpdateRef(
            workflow_execution=WorkflowExecution(workflow_id=execution.workflow_id), update_id=said.meta.update_id
        )
        response = v1.UpdateWorkflowExecutionResponse(update_ref=reference, stage=COMPLETED if word.done else ACCEPTED)
        if word.done:
            response.outcome.CopyFrom(_outcome(word))
        return response

    async def _poll_update(self, asked: v1.PollWorkflowExecutionUpdateRequest) -> v1.PollWorkflowExecutionUpdateResponse:
        execution, word = self._words[asked.update_ref.update_id]
        while not word.done:
            if execution.closed:
                raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
            await self.workshop.moment()
        return v1.PollWorkflowExecutionUpdateResponse(outcome=_outcome(word), stage=COMPLETED)

    # What is asked --------------------------------------------------------------------------------------------------

    async def _query(self, asked: v1.QueryWorkflowRequest) -> v1.QueryWorkflowResponse:
        while (execution := self._found(asked.execution)).hears:
            await self.workshop.moment()
        try:
            answer = execution.ask(asked.query.query_type, list(asked.query.query_args.payloads))
        except LookupError as error:
            raise RPCError(str(error), RPCStatusCode.INVALID_ARGUMENT, b"") from error
        return v1.QueryWorkflowResponse(query_result=Payloads(payloads=[answer]))

    async def _describe(self, asked: v1.DescribeWorkflowExecutionRequest) -> v1.DescribeWorkflowExecutionResponse:
        return v1.DescribeWorkflowExecutionResponse(workflow_execution_info=_told(self._found(asked.execution)))

    async def _list(self, asked: v1.ListWorkflowExecutionsRequest) -> v1.ListWorkflowExecutionsResponse:
        before, wanted, _ = asked.query.split("'")
        assert before == "WorkflowId = ", "more is not understood here"
        runs = [run for run in self.workshop.runs.values() if run.workflow_id == wanted]
        return v1.ListWorkflowExecutionsResponse(executions=[_told(run) for run in reversed(runs)])

    async def _history(self, asked: v1.GetWorkflowExecutionHistoryRequest) -> v1.GetWorkflowExecutionHistoryResponse:
        if asked.history_event_filter_type != HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT:
            raise RPCError("the clockwork writes no histories", RPCStatusCode.UNIMPLEMENTED, b"")
        execution = self._found(asked.execution)
        while not execution.closed:
            await self.workshop.moment()
        response = v1.GetWorkflowExecutionHistoryResponse()
        response.history.events.append(_last_event(execution))
        return response

    def _found(self, wanted: WorkflowExecution) -> Execution:
        execution = self.workshop.runs.get(wanted.run_id) or self.workshop.executions.get(wanted.workflow_id)
        if execution is None:
            raise RPCError(f"workflow not found for ID: {wanted.workflow_id}", RPCStatusCode.NOT_FOUND, b"")
        return execution

    def _open(self, wanted: WorkflowExecution) -> Execution:
        if (execution := self._found(wanted)).closed:
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        return execution


def _outcome(word: Word) -> Outcome:
    assert word.response is not None
    if word.response.HasField("rejected"):
        return Outcome(failure=word.response.rejected)
    return Outcome(success=Payloads(payloads=[word.response.completed]))


def _stamp(at: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp


def _status(execution: Execution) -> WorkflowExecutionStatus.ValueType:
    if not execution.closed:
        return WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
    if execution.ending is None:
        return WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED
    return STATUS[execution.ending.WhichOneof("variant") or ""]


def _told(execution: Execution) -> WorkflowExecutionInfo:
    told = WorkflowExecutionInfo(
        execution=WorkflowExecution(workflow_id=execution.workflow_id, run_id=execution.run_id),
        start_time=_stamp(execution.started),
        execution_time=_stamp(execution.started),
        status=_status(execution),
        history_length=execution.length,
    )
    told.type.name = execution.definition.name
    for name, value in execution.attributes.items():
        told.search_attributes.indexed_fields[name].CopyFrom(value)
    for name, value in execution.memo.items():
        told.memo.fields[name].CopyFrom(value)
    return told


def _last_event(execution: Execution) -> HistoryEvent:
    event, ending = HistoryEvent(), execution.ending
    if ending is None:
        event.workflow_execution_terminated_event_attributes.reason = execution.failure
    elif ending.HasField("complete_workflow_execution"):
        completed = event.workflow_execution_completed_event_attributes
        completed.result.payloads.append(ending.complete_workflow_execution.result)
    elif ending.HasField("fail_workflow_execution"):
        event.workflow_execution_failed_event_attributes.failure.CopyFrom(ending.fail_workflow_execution.failure)
    elif ending.HasField("cancel_workflow_execution"):
        event.workflow_execution_canceled_event_attributes.SetInParent()
    else:
        event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id = execution.continued
    return event
