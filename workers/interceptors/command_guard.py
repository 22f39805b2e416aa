"""Where the worker asks for verified words (`worker.words: verified`), one that nobody attests is refused to the person (S42).

That is the worker's to say, and nothing in a caller's request: an update is refused before it leaves a trace in history, and an
episode that a person wants ends as refused at its beginning. A word that names a NodeAction is verified by a cluster worker.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from policy.episode.messages import EpisodeInput, EpisodeResult, Outcome
from workflows.kit.messages import Word

REFUSED = (
    "this nodewarden accepts only verified commands (worker.words), and Kubernetes did not verify this one: either its API "
    "server did not answer (try again once it does), or no kubeconfig here may create NodeActions (`nodewarden doctor` says what "
    "is missing; docs/security.md)"
)
CHANGE = "only verified words are heard"
"""Marks a run that was refused, so that it is read the same way whatever is set by then."""


class Words(Interceptor):
    """Before all that is said to workflows. required: whether it has to be verified."""

    def __init__(self, *, required: bool) -> None:
        self._required = required

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002
        """One for each workflow."""
        required = self._required

        class Listening(_Listening):
            """Knows what is asked for."""

            def __init__(self, inner: WorkflowInboundInterceptor) -> None:
                super().__init__(inner)
                self.required = required

        return Listening


class _Listening(WorkflowInboundInterceptor):
    required = False

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002 - the SDK's name
        if self.required and any(isinstance(each, Word) and each.action is None for each in input.args):
            raise ValueError(REFUSED)
        super().handle_update_validator(input)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        match input.args:
            case [EpisodeInput() as request] if _is_unsaid(request) and self._refuses():
                return _refused(request)
        return await super().execute_workflow(input)

    def _refuses(self) -> bool:
        """What was set when it began."""
        return (self.required or workflow.unsafe.is_replaying()) and workflow.patched(CHANGE)


def _is_unsaid(request: EpisodeInput) -> bool:
    """Whether a person wants it, and nobody attests that. What goes on with a state was looked at when it began, and whether that
    was here is for `continuation_guard.py` to ask."""
    return request.by_a_person and request.action is None and getattr(request, "state", None) is None


def _refused(request: EpisodeInput) -> EpisodeResult:
    return EpisodeResult(
        outcome=Outcome.REFUSED,
        incident=request.incident,
        cluster=request.cluster,
        node=request.node,
        message=REFUSED,
        started=workflow.now(),
        ended=workflow.now(),
    )
