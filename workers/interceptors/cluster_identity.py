"""A worker whose cluster is another one than its scanner has seen under that name leaves everything to others, and says so.

Two clusters may be given one name, such as the chart's own, on one Temporal. Their workers then share a task queue, Nodes have
the same names in both, and what one worker has begun another one would go on with where no such Node, or another machine, is: it
would call a taint gone that stands, and a person's word would reach the wrong machine (S9, S38). So it would where an address
leads to another cluster by now. The first activities ask the scanner, and then nobody until our own cluster is another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.clocks import left_to_others
from activities.errors import ErrorType, failure
from policy.episode.messages import scanner_id
from policy.scan.views import another_cluster
from workers.interceptors.clock_guard import SCAN, SCANS_DECLINED

ASK_AGAIN_SECONDS = 5.0
"""Between two questions, as long as it is not known that the cluster is ours."""
PATIENCE = timedelta(seconds=1)

_log = logging.getLogger(__name__)


async def seen_by_scanner(client: Client, cluster: str) -> str | None:
    """The uid of kube-system that the cluster's scanner has seen, "" where it has seen none yet. None: nobody can say now."""
    try:
        seen: str = await client.get_workflow_handle(scanner_id(cluster)).query(
            "cluster_uid", result_type=str, reject_condition=QueryRejectCondition.NOT_OPEN, rpc_timeout=PATIENCE
        )
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return seen


class Whereabouts(Interceptor):
    """Before every activity of one cluster's queue. own: the uid of our kube-system; seen: see `seen_by_scanner`."""

    def __init__(self, cluster: str, *, own: Callable[[], Awaitable[str]], seen: Callable[[], Awaitable[str | None]]) -> None:
        self._cluster = cluster
        self._own = own
        self._seen = seen
        self._agreed = ""
        """The uid by which the scanner and we know the same cluster, "" while that is not known."""
        self._problem = ""
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Here(next, self)

    async def require_ours(self) -> None:
        """Leaves what is to be done in another cluster to others."""
        if problem := await self.problem():
            raise left_to_others(problem)

    async def problem(self) -> str:
        """Why nothing is done here, "" for nothing. What can't be told is nothing."""
        try:
            own = await self._own()  # known but for the first time; the view's probe looks whether it is another one by now
        except ApplicationError as error:
            _log.debug("which cluster %s is can't be told: %s", self._cluster, error.message)  # the activity meets it, too
            return self._problem
        if own == self._agreed:
            return ""
        now = asyncio.get_running_loop().time()
        if self._asking is None and now - self._asked_at >= ASK_AGAIN_SECONDS:
            self._asked_at, self._asking = now, asyncio.create_task(self._ask(own), name="whereabouts")
        if self._asking is not None:
            await asyncio.shield(self._asking)
        return self._problem

    async def _ask(self, own: str) -> None:
        try:
            self._hear(own, await self._seen())
        finally:
            self._asking = None

    def _hear(self, own: str, seen: str | None) -> None:
        if seen is None:
            return
        problem = another_cluster(self._cluster, own, seen) if seen not in {"", own} else ""
        if problem and problem != self._problem:
            _log.error("%s", problem)
        self._agreed, self._problem = seen if seen == own else "", problem


class _Here(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, whereabouts: Whereabouts) -> None:
        super().__init__(inner)
        self._whereabouts = whereabouts

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        if problem := await self._whereabouts.problem():
            info = activity.info()
            if info.activity_type == SCAN and info.attempt > SCANS_DECLINED:
                raise failure(ErrorType.INVALID_CONFIG, problem)  # else nobody would hear why nothing is done (S44)
            raise left_to_others(problem)
        return await self.next.execute_activity(input)
