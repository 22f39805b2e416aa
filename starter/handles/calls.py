"""A question or a command to a workflow: its answer, or why there is none, as a typed error.

There is no answer where no worker runs, or where the worker fails on it: a workflow task that fails is tried again for ever,
and the workflow looks as if it ran. The commonest cause is a history that the worker's build can't replay.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.our_workflows import NO_ANSWER, is_silent
from activities.temporal_clients import FAILS_FROM, task_attempts
from policy.values.display_text import in_a_line
from starter.errors import MissingError, RefusedError, RequestError, SilentError
from workers.errors import OLD_MOMENT, SettingsError
from workers.temporal_namespace import holder
from workflows.kit import options

ANSWER_WITHIN = options.ANSWERED_WITHIN + timedelta(seconds=2)
DECIDED_WITHIN = timedelta(seconds=5)
ASK_AGAIN = timedelta(milliseconds=100)

NEWEST_EVENTS = 50

CANNOT_REPLAY = "stuck: the worker can't replay its history"
"""What is known of it; which of two causes it is can't be seen. Scanners and checks of devices end by themselves then."""

UNSEEN_END = (
    "it ended before a worker had seen all that had happened, and none can say how it stood: `temporal workflow show -w {}`"
)
"""Of one that was terminated: the workers refuse each question about such a history."""

UNDECODED = (ValueError, LookupError, RuntimeError, TypeError, SettingsError)
"""What decoding raises for what no version of ours wrote, and for what was encrypted with an unknown key."""

UNREADABLE = "can't be read here: another version of nodewarden wrote it, or it was encrypted with a key that is missing here"

T = TypeVar("T")


async def ask(
    client: Client, workflow_id: str, query: str, answer: type[T], *, what: str, run_id: str = "", only_open: bool = False
) -> T:
    """Query a workflow that our own workers carry out: what another one answers in its place, in a person's name for example, is
    shown to none (S49). Raises MissingError, SilentError or RefusedError."""
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id, run_id=run_id or None)
    condition, until = QueryRejectCondition.NOT_OPEN if only_open else None, time.monotonic() + ANSWER_WITHIN.total_seconds()
    while True:
        try:
            result: T | Exception
            try:
                result = await handle.query(query, result_type=answer, reject_condition=condition, rpc_timeout=ANSWER_WITHIN)
            except UNDECODED as error:
                result = error
            queue = (await handle.describe(rpc_timeout=ANSWER_WITHIN)).task_queue
        except WorkflowQueryRejectedError as error:
            raise MissingError(f"no open {what}") from error
        except WorkflowQueryFailedError as error:
            if OLD_MOMENT not in str(error) or time.monotonic() > until:
                raise RefusedError(f"{what}: {error}") from error
            with suppress(RPCError):
                if (await handle.describe(rpc_timeout=ANSWER_WITHIN)).close_time is not None:
                    raise RefusedError(f"{what}: {UNSEEN_END.format(shlex.quote(workflow_id))}") from error
            await asyncio.sleep(ASK_AGAIN.total_seconds())
        except RPCError as error:
            if is_silent(error):
                raise SilentError(await why_silent(client, workflow_id, what)) from error
            raise unanswered(error, what=what) from error
        else:
            if queue != options.WORKFLOW_QUEUE:
                ends = f"`temporal workflow terminate --workflow-id {shlex.quote(workflow_id)} --reason …`"
                raise RefusedError(f"{what}: it runs on task queue {in_a_line(queue, 200)}, and is none of nodewarden's: {ends}")
            if isinstance(result, Exception):
                raise RefusedError(f"{what}: its answer {UNREADABLE}: {in_a_line(str(result), 200)}") from result
            return result


async def send_update(
    client: Client, workflow_id: str, update: str, request: object, answer: type[T], *, what: str, run_id: str = ""
) -> T:
    """Send an update and await its answer. Raises MissingError, SilentError or RefusedError (a validator's reason)."""
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id, run_id=run_id or None)
    try:
        result: T = await handle.execute_update(update, request, result_type=answer, rpc_timeout=ANSWER_WITHIN)
    except WorkflowUpdateFailedError as error:
        raise RefusedError(str(getattr(error.cause, "message", "") or error.cause)) from error
    except (WorkflowUpdateRPCTimeoutOrCancelledError, RPCError) as error:
        if isinstance(error, RPCError) and not is_silent(error):
            raise unanswered(error, what=what) from error
        raise SilentError(f"{await why_silent(client, workflow_id, what)}; the request may still arrive") from error
    return result


def unanswered(error: RPCError, *, what: str) -> RequestError:
    """What a failed call means for people."""
    if error.status is RPCStatusCode.NOT_FOUND:
        return MissingError(f"no open {what}")
    if error.status in {
        *NO_ANSWER,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }:  # the last: the connection broke meanwhile
        return SilentError(f"{what}: Temporal is not available: {error.message}")
    return RequestError(f"{what}: {error.message}")


@contextmanager
def answered(what: str) -> Iterator[None]:
    """What is asked of Temporal within fails as `unanswered` says."""
    try:
        yield
    except RPCError as error:
        raise unanswered(error, what=what) from error


async def our_holder(client: Client) -> str:
    """See `holder`. Raises SilentError where Temporal does not answer."""
    with answered(f"Temporal namespace {client.namespace}"):
        return await holder(client, timeout=ANSWER_WITHIN)


async def remembered(handle: WorkflowHandle[Any, Any], *, what: str) -> WorkflowExecutionDescription | None:
    """The last run of a workflow, None where Temporal remembers none. Raises SilentError where Temporal does not answer."""
    try:
        return await handle.describe(rpc_timeout=ANSWER_WITHIN)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise unanswered(error, what=what) from error


async def result_of(handle: WorkflowHandle[Any, Any], kind: type[T]) -> T | str | None:
    """The result of a run that has completed. A sentence: why it is none of that kind, since any client of Temporal may start a
    workflow that bears our marks (S49). None where its history was removed."""
    try:
        found = await handle.result(follow_runs=False, rpc_timeout=ANSWER_WITHIN)
    except RPCError:
        return None
    except UNDECODED as error:
        return f"its result can't be read: {in_a_line(str(error), 200)}"
    return found if isinstance(found, kind) else f"its result can't be read: expected {kind.__name__}, got {type(found).__name__}"


async def why_silent(client: Client, workflow_id: str, what: str) -> str:
    """Why a workflow that runs does not answer, for people."""
    failure, attempts = await task_failure(client, workflow_id), 0
    if failure is None:
        with suppress(ApplicationError):
            attempts = await task_attempts(client, workflow_id)
        if attempts < FAILS_FROM:
            return f"{what}: no answer within {ANSWER_WITHIN.total_seconds():.0f} s; does a worker run? (nodewarden worker)"
    next_one = "the next one" if workflow_id.startswith("episode/") else "`nodewarden scan start` begins the next one, which"
    terminate = f"`temporal workflow terminate --workflow-id {workflow_id} --reason …`"
    end = f"{terminate}: it undoes nothing, and {next_one} takes over what is left"
    if failure is None:
        return (
            f"{what}: stuck, its workflow task fails: attempt {attempts}; the log of the worker that serves workflows says why. "
            f"Where it goes on failing, as by a fault of Temporal's SDK (temporalio/sdk-rust#888), {end}"
        )
    if failure.cannot_replay:
        return (
            f"{what}: {CANNOT_REPLAY}, either since another version of nodewarden wrote it, or by a fault of Temporal's SDK "
            f"(temporalio/sdk-python#1591): run the worker of the version that began it; where that is the one that runs, {end}"
        )
    return f"{what}: stuck, its workflow task fails: {failure.message}; once its cause is mended it goes on; else {end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """The last workflow task failed. `cannot_replay`: because the history does not fit the code that reads it."""

    message: str
    cannot_replay: bool


async def task_failure(client: Client, workflow_id: str) -> TaskFailure | None:
    """The failure that a workflow is stuck on, None where its last task went well or nothing is known."""
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
            return TaskFailure(message=" ".join(_message(error).split())[:200], cannot_replay=attributes.cause == cause)
    return None


def _message(error: BaseException) -> str:
    """Without its type, and with what is at the bottom of it: the SDK wraps that in words of its own."""
    deepest = error
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
    said = [getattr(each, "message", str(each)) for each in (error, deepest)]
    return ": ".join(dict.fromkeys(said))
