"""Before every activity that is about a target: who asks is what Temporal says, and never what the request says of itself (S49).

Whoever reaches Temporal may schedule activities in any words. A mark in the name of a workflow that does not exist would keep a
node from every later episode, and news would go to people in the name of an episode that never was.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.contracts.preservation import GiveUpRequest, HoldRequest
from activities.contracts.scan import ScanRequest
from activities.contracts.target import PinRequest, Target
from activities.errors import ErrorType, failure
from policy.episode.messages import Kind, episode_id, scanner_id

SCANNER = "HealthScanner"


class Callers(Interceptor):
    """Refuses what is asked for in another one's name."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Known(next)


class _Known(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        for argument in input.args:
            looks = getattr(argument, "look", None), getattr(getattr(argument, "before", None), "look", None)
            for target in (getattr(each, "target", None) for each in (argument, *looks)):
                if isinstance(target, Target):
                    _require(episode_id(target.cluster, target.pinned.node), target.workflow_id, (target.kind,))
            if isinstance(argument, HoldRequest | GiveUpRequest):
                _require(episode_id(argument.cluster, argument.looked_at))
            elif isinstance(argument, PinRequest):
                _require(episode_id(argument.wanted.cluster, argument.wanted.node))
            elif isinstance(argument, ScanRequest):  # which takes and gives back the cluster Lease in the name that it says (S38)
                _require(scanner_id(argument.cluster), kinds=(SCANNER,))
        return await self.next.execute_activity(input)


def _require(expected: str, says: str = "", kinds: Collection[str] = tuple(Kind)) -> None:
    """says: by which id the request calls the workflow that asks, "" for none. kinds: of which type that may be."""
    info = activity.info()
    if not (info.workflow_id == (says or expected) == expected and info.workflow_type in kinds):
        caller = f"asked for by {info.workflow_type} {info.workflow_id!r} as {says!r}"
        problem = f"{info.activity_type}: expected workflow {expected!r}, {caller}; nothing was done"
        raise failure(ErrorType.NOT_LICENSED, problem)
