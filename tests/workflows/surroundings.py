"""Where a workflow test plays: on the clockwork, or on a real server that skips time, and what both have in common for it.

On the clockwork a test costs a tenth of the time, and what happens first happens first in each run. `NODEWARDEN_TEST_SERVER=1`
plays them all on the server, from which the histories are recorded, too; some always do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import activity
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType, UpdateWorkflowExecutionLifecycleStage, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome, UpdateRef
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice import v1
from temporalio.bridge.proto.workflow_activation import SignalWorkflow, WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client, WorkflowHandle
from temporalio.runtime import BufferedMetricUpdate, MetricBuffer
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import Worker, WorkflowInstance

from activities.contracts.metrics import Metric
from tests.workflows.attempts import Attempt, Work
from tests.workflows.clockwork import Clockwork
from tests.workflows.contract import Call
from tests.workflows.executions import Execution, Word
from workers.plugin import PLUGIN
from workflows.kit.options import WORKFLOW_QUEUE

# What a client asks a Temporal server for, answered by the clockwork.
#
# A client of the SDK is all its own but for this: what it sends are the server's requests, and what it makes of the answers is
# what it makes of the server's. Only what tests ask for is here; a history is not: where one is needed, take the server.

# The clockwork with workers: activities are those of the tests' worlds, which may wait for something that the test does.
#
# Time passes only while the test waits for something, one event after the other, so that a waiter sees the first moment at
# which it is so, and everything stands still while it acts upon it. It passes as on the server that skips time: freely while no
# attempt is under way; while one is, or where no time is to be skipped, not longer than a test would wait (`PATIENCE`). What
# needs more time than that is not seen in time here either.

Act = Callable[[Any], Any]

PATIENCE = timedelta(seconds=20)
"""So long a test waits for something on a server before it fails, where it says nothing else (`StaffedClockwork.patient`)."""
ROUNDS = 12
"""So many times everybody else in the loop has its turn before time passes: what an act brings about is over by then."""
NOTHING_TO_DO = 0.01
GIVEN_UP = 300
"""After so many looks, all without an event, nothing more will happen."""


class StaffedClockwork(Clockwork):
    """Workflows and their workers, moved on by the tests that wait for them."""

    def __init__(self) -> None:
        super().__init__((), self._perform, Random(1))
        self.now = datetime.now(UTC)
        self.failing = [Exception]
        self.skips = True
        """Whether time is skipped that no attempt needs."""
        self.runs: dict[str, Execution] = {}
        self._acts: dict[tuple[str, str], Act] = {}
        self._calls: dict[str, Call] = {}
        self._works: list[Work] = []
        self._patience, self._waited = PATIENCE, timedelta(0)
        self._idle = 0

    async def close(self) -> None:
        """Nothing happens any more."""
        self.__exit__()
        for work in self._works:
            work.task.cancel()
        await asyncio.gather(*(work.task for work in self._works), return_exceptions=True)

    # Workers --------------------------------------------------------------------------------------------------------

    def hire(self, queue: str, acts: Iterable[Act]) -> dict[tuple[str, str], Act]:
        """A worker for the activities of a queue. Answers what it has taken over."""
        hired = {}
        for act in acts:
            known = activity._Definition.must_from_callable(act)
            assert known.name is not None, "no activity of ours is dynamic"
            assert known.arg_types, "and each says what it takes"
            hired[queue, known.name] = act
            self._calls[known.name] = Call(name=known.name, method=act.__name__, takes=known.arg_types[0], gives=known.ret_type)
        self._acts |= hired
        return hired

    def dismiss(self, hired: dict[tuple[str, str], Act]) -> None:
        """It ends. What it is at, it ends first or never."""
        self._acts = {key: act for key, act in self._acts.items() if hired.get(key) is not act}

    def call_of(self, activity: str) -> Call:
        """As its worker has it, whatever contract it is of."""
        return self._calls.get(activity) or super().call_of(activity)

    def serves(self, queue: str, activity: str) -> bool:
        """Whether a worker takes activities from a queue."""
        return (queue, activity) in self._acts

    def _perform(self, attempt: Attempt) -> Work:
        surroundings = ActivityEnvironment()
        surroundings.info = replace(
            surroundings.info,
            activity_type=attempt.call.name,
            attempt=attempt.number,
            scheduled_time=attempt.decided,
            current_attempt_scheduled_time=self.now,
            started_time=self.now,
            task_queue=attempt.queue,
            workflow_id=attempt.workflow_id,
            workflow_type=attempt.kind,
            workflow_run_id=attempt.run_id,
        )
        act = self._acts[attempt.queue, attempt.call.name]
        work = Work(asyncio.ensure_future(surroundings.run(act, attempt.request)))

        def lives(*_details: object) -> None:
            work.alive = True

        surroundings.on_heartbeat = lives
        self._works.append(work)
        return work

    # Time -----------------------------------------------------------------------------------------------------------

    def moments(self, least: float, most: float) -> timedelta:
        """Everything goes as fast as it can: what comes first here, comes first each time."""
        return timedelta(seconds=least)

    def stand(self) -> None:
        """A client has sent something, and waits anew for what follows from it."""
        self._waited, self._idle = timedelta(0), 0

    @contextmanager
    def patient(self, patience: timedelta) -> Iterator[None]:
        """Who waits in here, does so for no longer than that."""
        self.stand()
        before, self._patience = self._patience, patience
        try:
            yield
        finally:
            self._patience = before
            self.stand()

    async def moment(self) -> None:
        """Let the next thing happen, if it is one that is waited for."""
        await self._settle()
        due, free = self.due(), self.skips and not any(work.waited_for for work in self._works)
        waits = max(due - self.now, timedelta(0)) if due is not None and not free else timedelta(0)
        if due is None or self._waited + waits > self._patience:
            self._idle += 1
            if self._idle > GIVEN_UP:
                raise TimeoutError(f"nothing happens before {due}, however long it is waited for")
            await asyncio.sleep(NOTHING_TO_DO)  # another task has to act first
            return
        self._waited, self._idle = self._waited + waits, 0
        await self._turn()

    async def skip(self, duration: timedelta, workflow_id: str) -> bool:
        """Let so much time pass, or as much as a workflow needs to its end. Answers whether all of it has passed."""
        until = self.now + duration
        try:
            while True:
                await self._settle()
                if self.open(workflow_id) is None:
                    return False
                due = self.due()
                if due is None or due > until:
                    self.now = max(self.now, until)
                    return True
                await self._turn()
        finally:
            self.stand()

    async def _settle(self) -> None:
        for _ in range(ROUNDS if self._works else 1):
            await asyncio.sleep(0)
        self._works = [work for work in self._works if not work.task.done()]

    async def _turn(self) -> None:
        """In a callback of its own: a workflow's tasks may not be entered out of another one."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def turn() -> None:
            try:
                self.turn()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                over.set_exception(error)
            else:
                over.set_result(None)

        loop.call_soon(turn)
        await over

    # Workflows ------------------------------------------------------------------------------------------------------

    def activate(self, instance: WorkflowInstance, activation: WorkflowActivation) -> WorkflowActivationCompletion:
        """An instance is a loop of its own, and says when it has run that none runs any more."""
        around = asyncio.get_running_loop()
        try:
            return instance.activate(activation)
        finally:
            asyncio._set_running_loop(around)

    def in_a_loop(self, make: Callable[[], T]) -> T:
        """Here is one."""
        return make()

    def _run(self, name: str, workflow_id: str, incident: str) -> Execution:
        execution = super()._run(name, workflow_id, incident)
        self.runs[execution.run_id] = execution
        return execution


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

    def __init__(self, clockwork: StaffedClockwork) -> None:
        super().__init__(ConnectConfig(target_host="the clockwork", identity="tests"))
        self.clockwork = clockwork
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
        """It is not read."""

    def update_api_key(self, api_key: str | None) -> None:
        """It is not asked for."""

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
        execution = self.clockwork.start_converted(asked.workflow_type.name, asked.workflow_id, list(asked.input.payloads))
        if execution is None:
            raise RPCError(f"{asked.workflow_id} runs already", RPCStatusCode.ALREADY_EXISTS, b"")
        self.clockwork.stand()
        return v1.StartWorkflowExecutionResponse(run_id=execution.run_id, started=True)

    async def _signal(self, asked: v1.SignalWorkflowExecutionRequest) -> v1.SignalWorkflowExecutionResponse:
        signal = SignalWorkflow(signal_name=asked.signal_name, input=asked.input.payloads)
        self._open(asked.workflow_execution).deliver(signal_workflow=signal)
        self.clockwork.stand()
        return v1.SignalWorkflowExecutionResponse()

    async def _cancel(self, asked: v1.RequestCancelWorkflowExecutionRequest) -> v1.RequestCancelWorkflowExecutionResponse:
        self._open(asked.workflow_execution).cancel(asked.reason)
        self.clockwork.stand()
        return v1.RequestCancelWorkflowExecutionResponse()

    async def _terminate(self, asked: v1.TerminateWorkflowExecutionRequest) -> v1.TerminateWorkflowExecutionResponse:
        self._open(asked.workflow_execution).terminate()
        return v1.TerminateWorkflowExecutionResponse()

    async def _update(self, asked: v1.UpdateWorkflowExecutionRequest) -> v1.UpdateWorkflowExecutionResponse:
        execution = self._open(asked.workflow_execution)
        said = asked.request
        word = execution.tell(said.input.name, list(said.input.args.payloads))
        self._words[said.meta.update_id] = execution, word
        self.clockwork.stand()
        while word.response is None:
            if self.clockwork.open(execution.workflow_id) is None:
                raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
            await self.clockwork.moment()
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
            await self.clockwork.moment()
        return v1.PollWorkflowExecutionUpdateResponse(outcome=_outcome(word), stage=COMPLETED)

    # What is asked --------------------------------------------------------------------------------------------------

    async def _query(self, asked: v1.QueryWorkflowRequest) -> v1.QueryWorkflowResponse:
        while (execution := self._found(asked.execution)).hears:
            await self.clockwork.moment()
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
        runs = [run for run in self.clockwork.runs.values() if run.workflow_id == wanted]
        return v1.ListWorkflowExecutionsResponse(executions=[_told(run) for run in reversed(runs)])

    async def _history(self, asked: v1.GetWorkflowExecutionHistoryRequest) -> v1.GetWorkflowExecutionHistoryResponse:
        if asked.history_event_filter_type != HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT:
            raise RPCError("the clockwork writes no histories", RPCStatusCode.UNIMPLEMENTED, b"")
        execution = self._found(asked.execution)
        while not execution.closed:
            await self.clockwork.moment()
        response = v1.GetWorkflowExecutionHistoryResponse()
        response.history.events.append(_last_event(execution))
        return response

    def _found(self, wanted: WorkflowExecution) -> Execution:
        execution = self.clockwork.runs.get(wanted.run_id) or self.clockwork.executions.get(wanted.workflow_id)
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
        task_queue=WORKFLOW_QUEUE,
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


T = TypeVar("T")

POLL = 0.01
LONG_ENOUGH = 2.5


class ClockworkEnvironment(WorkflowEnvironment):
    """The clockwork in the server's place."""

    def __init__(self) -> None:
        self.clockwork = StaffedClockwork()
        super().__init__(Client(ClockworkService(self.clockwork), plugins=[PLUGIN]))

    async def shutdown(self) -> None:
        """Nothing happens any more."""
        await self.clockwork.close()
        assert self.clockwork.problems == []

    async def get_current_time(self, handle: WorkflowHandle[Any, Any] | None = None) -> datetime:
        """There is one clock for all."""
        return self.clockwork.now

    async def fast_forward(self, handle: WorkflowHandle[Any, Any], duration: timedelta | float | None = None, /) -> bool:
        """Let so much time pass, or what is left of a workflow."""
        assert isinstance(duration, timedelta)
        return await self.clockwork.skip(duration, handle.id)

    @contextmanager
    def with_time_skipping_disabled(self) -> Iterator[None]:
        """Not for what begins in here, nor for anything else in this test."""
        self.clockwork.skips = False
        yield


def stand_still(env: WorkflowEnvironment, duration: timedelta) -> None:
    """Nothing is carried out for so long, as where all workers or Temporal are away: what is due meanwhile comes late."""
    assert isinstance(env, ClockworkEnvironment), "the server that skips time would carry out what is due"
    env.clockwork.now += duration


def worker(
    client: Client,
    *,
    task_queue: str,
    workflows: Sequence[type] = (),
    activities: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> AbstractAsyncContextManager[object]:
    """A worker where the client's workflows run."""
    if isinstance(client.service_client, ClockworkService):
        return _hired(client.service_client.clockwork, task_queue, workflows, activities)
    return Worker(client, task_queue=task_queue, workflows=workflows, activities=activities, **options)


@asynccontextmanager
async def _hired(
    clockwork: StaffedClockwork, queue: str, workflows: Sequence[type], activities: Sequence[Callable[[Any], Any]]
) -> AsyncIterator[None]:
    clockwork.learn(workflows)
    hired = clockwork.hire(queue, activities)
    try:
        yield
    finally:
        clockwork.dismiss(hired)
        names = {kind.__name__ for kind in workflows}
        for execution in clockwork.executions.values():
            if execution.definition.name in names:
                execution.forget()


async def moment(env: WorkflowEnvironment) -> None:
    """Between two looks at something that is waited for."""
    if isinstance(env, ClockworkEnvironment):
        await env.clockwork.moment()
    else:
        await asyncio.sleep(POLL)


@asynccontextmanager
async def patience(env: WorkflowEnvironment, seconds: float) -> AsyncIterator[None]:
    """Wait for something so long, by the clock of where it is to happen."""
    async with asyncio.timeout(seconds):
        if isinstance(env, ClockworkEnvironment):
            with env.clockwork.patient(timedelta(seconds=seconds)):
                yield
        else:
            yield


async def eventually(env: WorkflowEnvironment, condition: Callable[[], bool], *, within: float = 20) -> None:
    """Wait until it is so."""
    async with patience(env, within):
        while not condition():
            await moment(env)


async def asked_until(
    env: WorkflowEnvironment, ask: Callable[[], Awaitable[T]], condition: Callable[[T], bool], *, within: float = 20
) -> T:
    """Ask a workflow until its answer is as wished."""
    async with patience(env, within):
        while True:
            with contextlib.suppress(RPCError):  # between two runs, or before the first task: there is nobody to answer yet
                if condition(answer := await ask()):
                    return answer
            await moment(env)


async def let_pass(env: WorkflowEnvironment, handle: WorkflowHandle[Any, Any], duration: timedelta) -> None:
    """Let some time pass in which nothing is to happen. A server is not waited for that long: it skips it or it does not."""
    if isinstance(env, ClockworkEnvironment):
        await env.fast_forward(handle, duration)
    else:
        await asyncio.sleep(min(duration.total_seconds(), LONG_ENOUGH))


class Measured:
    """Another client of the same server, and its metrics."""

    def __init__(self, client: Client, buffer: MetricBuffer) -> None:
        self.client = client
        self._buffer = buffer
        self._seen: list[BufferedMetricUpdate] = []

    def updates(self, metric: Metric | str) -> list[BufferedMetricUpdate]:
        """Each time that it was measured; one of Temporal's own goes by its name."""
        name = metric if isinstance(metric, str) else metric.name
        self._seen += self._buffer.retrieve_updates()
        return [each for each in self._seen if each.metric.name == name]

    def of(self, metric: Metric | str, *labels: str) -> Counter[tuple[str, ...]]:
        """How often each was measured; labels: what they are told apart by."""
        return Counter(tuple(str(each.attributes[label]) for label in labels) for each in self.updates(metric))

    def longest(self, metric: Metric) -> float:
        """The greatest value, in seconds."""
        return max(each.value for each in self.updates(metric))
