"""Before every activity that is about a target: who asks is what Temporal says, and never what the request says of itself (S49).

Whoever reaches Temporal may schedule activities in any words. A mark in the name of a workflow that does not exist would keep a
node from every later episode, and news would go to people in the name of an episode that never was.
"""

from __future__ import annotations

from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.contracts.target import Target
from activities.errors import ErrorType, failure
from policy.episode.ids import episode_id


class Callers(Interceptor):
    """Refuses what is asked for in another one's name."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Known(next)


class _Known(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        for target in (getattr(argument, "target", None) for argument in input.args):
            if not isinstance(target, Target):
                continue
            expected = episode_id(target.cluster, target.pinned.node)
            if not (info.workflow_id == target.workflow_id == expected and info.workflow_type == target.kind):
                caller = f"asked for by {info.workflow_type} {info.workflow_id!r} as {target.workflow_id!r}"
                problem = f"{info.activity_type}: expected workflow {expected!r}, {caller}; nothing was done"
                raise failure(ErrorType.NOT_LICENSED, problem)
        return await self.next.execute_activity(input)
