"""Remediation on a real server, behind real workers and in the sandbox: few episodes, whose histories are kept for the replay."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.contracts.preservation import PreservationActivities
from activities.contracts.remediation import ExternalActivities, RemediationActivities
from policy.episode.messages import EpisodeResult, Outcome, Phase, RemediationInput, episode_id
from policy.remediation.strategy_rules import Strategy
from tests.replay.recording import keep_history
from tests.workflows.attempts import Attempt
from tests.workflows.contract import Call, activities_of, queues_of
from tests.workflows.remediation_run import Remediated, ScriptedRemediation, step
from tests.workflows.world import NODE, World, plan
from workflows.definitions.episodes import Remediation
from workflows.kit import continuation
from workflows.kit.messages import PersonRequest
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue

MINUTE = timedelta(minutes=1)
DELETE = step(Strategy.DELETE_MACHINE, 30 * MINUTE)
SHORT = timedelta(seconds=20)
SELF = step(Strategy.EXTERNAL, SHORT)
FENCE = step(Strategy.FENCE, 20 * MINUTE)

Handle = WorkflowHandle[Remediation, EpisodeResult]


@asynccontextmanager
async def remediating(server: WorkflowEnvironment, world: Remediated, **changes: object) -> AsyncIterator[Handle]:
    """Start a remediation of `NODE` in a cluster of its own."""
    cluster = f"c{uuid.uuid4().hex[:8]}"
    given = {"cluster": cluster, "node": NODE, "incident": "i-1", "need": world.need, "permit_granted": True, "holder": "us"}
    request = RemediationInput(**(given | changes))  # type: ignore[arg-type]
    world.permit = request.permit_granted
    player = ScriptedRemediation(world)

    async def carry(call: Call, asked: Any) -> Any:
        info = activity.info()
        attempt = Attempt(
            workflow_id=str(info.workflow_id),
            kind=str(info.workflow_type),
            run_id=str(info.workflow_run_id),
            call=call,
            request=asked,
            number=info.attempt,
            decided=info.scheduled_time,
            now=info.started_time,
        )
        return player.perform(attempt)

    ours = (cluster_queue(cluster), (PreservationActivities, RemediationActivities, ExternalActivities))
    served: dict[str, tuple[type, ...]] = {}
    for queue, contracts in (*queues_of(cluster), ours):
        served[queue] = (*served.get(queue, ()), *contracts)
    async with AsyncExitStack() as stack:
        queue = f"{WORKFLOW_QUEUE}-{cluster}"
        await stack.enter_async_context(
            Worker(server.client, task_queue=queue, workflows=[Remediation], workflow_failure_exception_types=[Exception])
        )
        for each, contracts in served.items():
            await stack.enter_async_context(Worker(server.client, task_queue=each, activities=activities_of(carry, *contracts)))
        handle = await server.client.start_workflow(Remediation.run, request, id=episode_id(cluster, NODE), task_queue=queue)
        try:
            yield handle
        finally:
            with contextlib.suppress(RPCError):  # it has ended by itself
                await handle.terminate("the test is over")


async def ended(world: Remediated, handle: Handle) -> EpisodeResult:
    """How it ended; every rule that the world watches held at every moment."""
    result = await asyncio.wait_for(handle.result(), 30)
    await keep_history(handle)
    assert world.broken == []
    return result


async def test_a_machine_is_deleted_on_a_server_and_replaced(server: WorkflowEnvironment) -> None:
    """S33."""
    world = Remediated(ladder=(DELETE,), goes_after=SHORT, ready_after=SHORT)
    async with remediating(server, world) as handle:
        result = await ended(world, handle)
    assert (result.outcome, len(world.deletions)) == (Outcome.REPLACED, 1)
    assert "w-8 has taken its place" in result.message


async def test_a_ladder_on_a_server_ends_with_a_person_who_has_it_begin_anew(server: WorkflowEnvironment) -> None:
    """S14, S35: another controller, our fencing, a person; then the first step once more."""
    node = World(plan=plan(tries=1, restarts=0))
    node.silent = set(node.power)
    world = Remediated(ladder=(SELF, FENCE), node=node, has_machine=False)
    async with remediating(server, world) as handle:
        async with asyncio.timeout(20):
            while (await handle.query(Remediation.status)).phase is not Phase.NEEDS_HUMAN or world.count("event NeedsHuman") < 1:
                await asyncio.sleep(0.02)
        world.on_create = lambda made: (setattr(made, "succeeded", "True"), setattr(node, "ready", True))
        await handle.execute_update(Remediation.resume, PersonRequest(who="ada", reason="its disk was replaced", question=1))
        result = await ended(world, handle)
    assert (result.outcome, world.objects) == (Outcome.RECOVERED, {})


async def test_a_deletion_on_a_server_goes_on_in_a_new_history(
    server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, S14, S33: the id is never free in between, nothing is asked for twice."""
    world = Remediated(ladder=(DELETE,), ready_after=MINUTE, goes_after=10 * MINUTE)
    monkeypatch.setattr(continuation, "HISTORY_LIMIT", 60)
    async with remediating(server, world) as handle:
        result = await ended(world, handle)
        runs = [each async for each in server.client.list_workflows(f"WorkflowId = '{handle.id}'")]
    assert (result.outcome, len(world.deletions), world.count("ask-permit")) == (Outcome.REPLACED, 1, 0)
    assert len(runs) > 1
