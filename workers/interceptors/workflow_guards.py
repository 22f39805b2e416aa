"""What a caller may begin or say, looked at before a workflow acts on it: commands of people, and states of earlier runs (S42).

Both are the worker's to decide, and nothing in a caller's request. Whether an input and a signal can be read at all is
`workers/plugin.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from activities.contracts.episodes import EpisodeActivities, FormerRun
from activities.errors import ErrorType
from policy.episode.messages import EpisodeInput, EpisodeResult, Outcome
from workflows.kit import continuation, options
from workflows.kit.messages import OperatorCommand

REFUSED = (
    "this nodewarden accepts only verified commands (worker.commands), and Kubernetes did not verify this one: either its API "
    "server did not answer (try again once it does), or no kubeconfig here may create NodeActions (`nodewarden doctor` says what "
    "is missing; docs/security.md)"
)
VERIFIED_ONLY = "only verified commands are accepted"
"""Marks a run that was refused, so that it is read the same way whatever is set by then."""

FORMER_RUN_ASKED = "who has left the state is asked"
"""Marks the runs that have asked: those of earlier builds have not."""


class CommandGuard(Interceptor):
    """Where the worker asks for verified commands (`worker.commands: verified`), one that no NodeAction attests is refused to the
    person: an update before it leaves a trace in history, and an episode that a person wants ends as refused at its beginning. A
    command that names a NodeAction is verified by a cluster worker."""

    def __init__(self, *, required: bool) -> None:
        self._required = required

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002
        return type("CommandedWorkflow", (_Commanded,), {"required": self._required})


class _Commanded(WorkflowInboundInterceptor):
    required = False

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002 - the SDK's name
        if self.required and any(isinstance(each, OperatorCommand) and each.action is None for each in input.args):
            raise ValueError(REFUSED)
        super().handle_update_validator(input)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        match input.args:
            # A person wants it, and no NodeAction attests that. What goes on with a state was looked at when it began; whether
            # that was here is for the other guard to ask. What was set when it began is what counts.
            case [EpisodeInput() as request] if (
                request.by_a_person
                and request.action is None
                and getattr(request, "state", None) is None
                and (self.required or workflow.unsafe.is_replaying())
                and workflow.patched(VERIFIED_ONLY)
            ):
                return EpisodeResult(
                    outcome=Outcome.REFUSED,
                    incident=request.incident,
                    cluster=request.cluster,
                    node=request.node,
                    message=REFUSED,
                    started=workflow.now(),
                    ended=workflow.now(),
                )
        return await super().execute_workflow(input)


class ContinuationGuard(Interceptor):
    """A run that goes on with a state goes on from a run of ours: of our types, on our task queue, that was continued as new.

    A caller that reaches Temporal may continue a workflow of its own, on a queue of its own, as one of ours, and write anything
    into its state: proofs, permits, commands of people. What the server tells a workflow vouches for an earlier run under the
    same id, and for no more; what that run was is asked of it here, before anything of the state is acted on. types: of the
    workflows that are ours.
    """

    def __init__(self, types: Collection[str]) -> None:
        self._types = types

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002
        return type("ContinuedWorkflow", (_Continued,), {"types": self._types})


class _Continued(WorkflowInboundInterceptor):
    types: Collection[str] = ()

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        has_state = any(getattr(each, "state", None) is not None for each in input.args)
        if has_state and not self._believes_none() and workflow.patched(FORMER_RUN_ASKED):
            await _despite_cancellation(asyncio.create_task(self._require_former_run()))
        return await super().execute_workflow(input)

    @staticmethod
    def _believes_none() -> bool:
        return continuation.is_retry() and workflow.info().workflow_type in continuation.BEGIN_ANEW

    async def _require_former_run(self) -> None:
        info = workflow.info()
        problem = "there was none"
        begun_again = info.cron_schedule is not None or info.attempt > 1  # with the input of the caller that started it
        if info.continued_run_id is not None and not begun_again:
            request = FormerRun(workflow_id=info.workflow_id, run_id=info.continued_run_id)
            former = await workflow.execute_activity_method(
                EpisodeActivities.describe_former, request, **options.former_run(info.task_queue)
            )
            if former.task_queue == info.task_queue and former.workflow_type in self.types:
                return
            problem = f"that was {former.workflow_type or 'nothing known'} on task queue {former.task_queue!r}"
        refusal = f"expected nothing but a request: a state comes from the workflow's own earlier run; {problem}"
        raise ApplicationError(refusal, type=ErrorType.INVALID_CONFIG.value, non_retryable=True)


async def _despite_cancellation(question: asyncio.Task[None]) -> None:
    """Wait for the answer. A cancellation meanwhile is for the workflow, which ends what it has begun before it ends (S35)."""
    cancelled = False
    while not question.done():
        try:
            await asyncio.shield(question)
        except asyncio.CancelledError:
            cancelled = True
    question.result()
    if cancelled and (current := asyncio.current_task()) is not None:
        current.cancel()
