"""A run that goes on with a state goes on from a run of ours: of our types, on our task queue, that was continued as new (S42).

Whoever reaches Temporal may continue a workflow of his own, on a queue of his own, as one of ours, and write what he likes into
its state: proofs, permits, words of people. What the server tells a workflow vouches for an earlier run under the same id, and
for no more; what that run was is asked of it here, before anything of the state is acted on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import ExecuteWorkflowInput, Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from activities.contracts.episodes import EpisodeActivities, FormerRun
from activities.errors import ErrorType
from workflows.kit import options

CHANGE = "who has left the state is asked"
"""Marks the runs that have asked: those of earlier builds have not."""


class Succession(Interceptor):
    """Before the beginning of every workflow. types: of the workflows that are ours."""

    def __init__(self, types: Collection[str]) -> None:
        self._types = types

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002
        """One for each workflow."""
        types = self._types

        class Asking(_Asking):
            """Knows who is ours."""

            def __init__(self, inner: WorkflowInboundInterceptor) -> None:
                super().__init__(inner)
                self.types = types

        return Asking


class _Asking(WorkflowInboundInterceptor):
    types: Collection[str] = ()

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        if any(getattr(each, "state", None) is not None for each in input.args) and workflow.patched(CHANGE):
            await _whatever_is_cancelled(asyncio.create_task(self._require_successor()))
        return await super().execute_workflow(input)

    async def _require_successor(self) -> None:
        info = workflow.info()
        problem = "there was none"
        begun_again = info.cron_schedule is not None or info.attempt > 1  # with the input of whoever started it
        if info.continued_run_id is not None and not begun_again:
            request = FormerRun(workflow_id=info.workflow_id, run_id=info.continued_run_id)
            former = await workflow.execute_activity_method(
                EpisodeActivities.describe_former, request, **options.former_run(info.task_queue)
            )
            if former.task_queue == info.task_queue and former.workflow_type in self.types:
                return
            problem = f"that was {former.workflow_type or 'nothing known'} on task queue {former.task_queue!r}"
        told = f"expected nothing but a request: a state comes from the workflow's own earlier run; {problem}"
        raise ApplicationError(told, type=ErrorType.INVALID_CONFIG.value, non_retryable=True)


async def _whatever_is_cancelled(question: asyncio.Task[None]) -> None:
    """The answer. A cancellation meanwhile is for the workflow, which ends what it has begun before it ends (S35)."""
    cancelled = False
    while not question.done():
        try:
            await asyncio.shield(question)
        except asyncio.CancelledError:
            cancelled = True
    question.result()
    if cancelled and (current := asyncio.current_task()) is not None:
        current.cancel()
