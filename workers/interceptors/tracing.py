"""Traces of episodes, over OTLP: one for each episode, however it was begun and on however many workers it runs.

The spans are those of Temporal's own interceptor: what a workflow starts, and the activities of it. The trace and its root follow
from the workflow's first run alone, so that a caller that begins an episode need not know of traces, and a replay adds nothing.
The root is sent when the episode ends. Scanners and device checks, which never end, have none. Needs the extra `otel`; who
makes one is `workers/telemetry.py`.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Status, StatusCode, format_span_id, format_trace_id
from temporalio import workflow
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor
from temporalio.exceptions import FailureError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    WorkflowInterceptorClassInput,
)

from policy.episode.messages import Kind

TRACED = frozenset(Kind)
ENDED = "__nodewarden_episode_ended"

Ids = tuple[int, int]
"""Of a trace and of its root."""

_given: ContextVar[Ids | None] = ContextVar("given", default=None)


def ids_of(workflow_id: str, first_run: str) -> Ids:
    """Always the same for an episode, and another's never."""
    digest = hashlib.sha256(f"{workflow_id} {first_run}".encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    """The span of a whole episode. failure: why it failed, "" where it ended as it should."""

    ids: Ids
    name: str
    attributes: dict[str, str]
    began: datetime
    ended_ns: int
    failure: str


class GivenIds(RandomIdGenerator):
    """By chance, but for the root of an episode."""

    def generate_trace_id(self) -> int:
        given = _given.get()
        return given[0] if given is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        given = _given.get()
        return given[1] if given is not None else super().generate_span_id()


class Tracing(TracingInterceptor):
    """For a worker; not for clients. provider: made with `GivenIds`."""

    def __init__(self, provider: TracerProvider) -> None:
        super().__init__(provider.get_tracer("nodewarden"))

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[OfEpisode]:  # noqa: A002 - the SDK's name
        super().workflow_interceptor_class(input)
        input.unsafe_extern_functions[ENDED] = self._send_root
        return OfEpisode

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - same
        return _ActivitiesOfEpisodes(next, super().intercept_activity(next), self.header_key)

    def _send_root(self, root: _Root) -> None:
        token = _given.set(root.ids)
        try:
            began = int(root.began.timestamp() * 1e9)
            span = self.tracer.start_span(root.name, Context(), attributes=root.attributes, start_time=began)
        finally:
            _given.reset(token)
        if root.failure:
            span.set_status(Status(StatusCode.ERROR, root.failure))
        span.end(end_time=root.ended_ns)


class OfEpisode(TracingWorkflowInboundInterceptor):
    """A workflow's part. Of one that is no episode nothing is traced: it has no context."""

    def _load_workflow_context_carrier(self) -> dict[str, Any] | None:
        info = workflow.info()
        if info.workflow_type not in TRACED:
            return None
        trace, root = ids_of(info.workflow_id, info.first_execution_run_id)
        return {"traceparent": f"00-{format_trace_id(trace)}-{format_span_id(root)}-01"}

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        """The episode, and its root once it has ended: not where it goes on in a new history."""
        try:
            result = await super().execute_workflow(input)
        except FailureError as error:
            self._end(str(error))
            raise
        self._end("")
        return result

    def _end(self, failure: str) -> None:
        info = workflow.info()
        if info.workflow_type not in TRACED or workflow.unsafe.is_replaying():
            return
        incident = str(workflow.memo_value("incident", ""))
        root = _Root(
            ids=ids_of(info.workflow_id, info.first_execution_run_id),
            name=f"{info.workflow_type} {info.workflow_id}",
            attributes={"temporalWorkflowID": info.workflow_id, "temporalRunID": info.run_id, "nodewarden.incident": incident},
            began=info.workflow_start_time,
            ended_ns=workflow.time_ns(),
            failure=failure,
        )
        workflow.extern_functions()[ENDED](root)


class _ActivitiesOfEpisodes(ActivityInboundInterceptor):
    """A scan has no trace that it would be part of, and would be one of its own every minute."""

    def __init__(self, plain: ActivityInboundInterceptor, traced: ActivityInboundInterceptor, header: str) -> None:
        super().__init__(plain)
        self._traced = traced
        self._header = header

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        return await (self._traced if self._header in input.headers else self.next).execute_activity(input)
