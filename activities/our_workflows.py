"""Workflows of fixed ids, asked as long as our own workers carry them out (S49): the scanners and the checks of devices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio.api.enums.v1 import ResourceExhaustedCause
from temporalio.api.errordetails.v1 import ResourceExhaustedFailure
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

NO_ANSWER = frozenset({RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION})


def is_silent(error: RPCError) -> bool:
    """Whether it is the workflow that gives no answer: in time, since its task fails, or since an earlier question still waits
    for it, when Temporal refuses others ("consistent query buffer is full")."""
    if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
        return error.status in NO_ANSWER
    found = ResourceExhaustedFailure()
    return any(each.Unpack(found) and found.cause == BUSY for each in error.grpc_status.details)


BUSY = ResourceExhaustedCause.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW


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
                if self._runs.get(workflow_id) == run:  # many may have asked it, and one of them found the next run meanwhile
                    del self._runs[workflow_id]
        found = await self.described(workflow_id, within=within)
        self._runs[workflow_id] = found.run_id
        if ended and found.status is not WorkflowExecutionStatus.RUNNING:
            common["reject_condition"] = QueryRejectCondition.NONE
        return await self._client.get_workflow_handle(workflow_id, run_id=found.run_id).query(name, args=asked, **common)

    async def described(self, workflow_id: str, *, within: timedelta) -> WorkflowExecutionDescription:
        """Its current run, or the last one. Raises NotOurs."""
        found = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=within)
        if found.task_queue != self._task_queue:
            raise NotOurs(f"{workflow_id} runs on task queue {found.task_queue}, which is not ours")
        return found


Question = TypeVar("Question")
Answer = TypeVar("Answer")


class QueryLine(Generic[Question, Answer]):
    """One query under way at most, however many ask: those that ask meanwhile go into the next one, all together. Temporal lets
    one query wait for a workflow that is at work and refuses others (`history.maxBufferedQueryCount`), which the client then
    tries again after ever longer pauses.

    No answer is older than its question, because a question joins only a query that has not been sent yet. ask: sends it."""

    def __init__(self, ask: Callable[[tuple[Question, ...]], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._next: _Query[Question, Answer] | None = None
        self._under_way = asyncio.Lock()

    async def answer(self, question: Question) -> Answer:
        """Of the next query. Raises what that raises."""
        if (query := self._next) is None:
            questions: list[Question] = []
            query = self._next = _Query(questions, asyncio.create_task(self._ask_in_turn(questions)))
        query.questions.append(question)
        return await asyncio.shield(query.answer)

    async def _ask_in_turn(self, questions: list[Question]) -> Answer:
        async with self._under_way:
            self._next = None  # in one step with the sending: who comes after this is not in the query, and gets no answer of it
            return await self._ask(tuple(questions))


@dataclass(frozen=True, slots=True)
class _Query(Generic[Question, Answer]):
    """What is asked together, and the task that answers it."""

    questions: list[Question]
    answer: asyncio.Task[Answer]
