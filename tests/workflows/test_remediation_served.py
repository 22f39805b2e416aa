"""Remediation on a real server, behind real workers and in the sandbox: few episodes, whose histories are kept for the replay."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.contracts.preservation import PreservationActivities
from activities.contracts.remediation import ExternalActivities, RemediationActivities
from activities.errors import ErrorType, failure
from policy.episode.messages import EpisodeResult, Outcome, Phase, RemediationInput, episode_id
from policy.remediation.strategy_rules import Strategy
from tests.replay.recording import keep_history
from tests.workflows.attempts import Attempt
from tests.workflows.contract import Call, activities_of, queues_of
from tests.workflows.machine import RemediationObject
from tests.workflows.remediation_run import OBJECT, Remediated, ScriptedRemediation, step, succeeds
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
            await keep_history(handle)
        finally:
            with contextlib.suppress(RPCError):  # it has ended by itself
                await handle.terminate("the test is over")


async def ended(world: Remediated, handle: Handle) -> EpisodeResult:
    """How it ended; every rule that the world watches held at every moment."""
    result = await asyncio.wait_for(handle.result(), 30)
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


NOT_NOW = failure(ErrorType.OWN_NODE, "not now")
RESTS: dict[str, tuple[tuple[Any, ...], dict[str, list[ApplicationError | str]], str]] = {
    "for a person": ((SELF,), {}, ""),
    "for an earlier object": ((SELF,), {}, "waits until an earlier SelfNodeRemediation is gone"),
    "for its object to go": ((SELF,), {}, "waits until SelfNodeRemediation is gone"),
    "before a step": (
        (replace(SELF, timeout=10 * MINUTE),),
        {"remediation.create-object": [failure(ErrorType.UNREACHABLE, "not now")] * 4},
        "before the step is tried again",
    ),
    "for another worker": ((DELETE,), {"preservation.give-up": [NOT_NOW] * 2}, "until another worker may ask for the deletion"),
    "after an unclear deletion": (
        (DELETE,),
        {"preservation.give-up": [failure(ErrorType.AMBIGUOUS, "no answer in time")]},
        "no answer in time",
    ),
}
"""A ladder, what befalls its acts, and why it rests then, as its timer says; "" where it waits for a person without one."""


@pytest.mark.parametrize("where", RESTS)
async def test_a_remediation_rests_on_a_server(server: WorkflowEnvironment, where: str) -> None:
    """S35: a new build takes such runs over."""
    ladder, errors, why = RESTS[where]
    world = Remediated(ladder=ladder, errors=errors, objects_go_after=5 * MINUTE)
    if "to go" in where:
        world.on_create = succeeds(world)
    if "earlier" in where:
        began = datetime.now(UTC)
        world.objects[OBJECT] = RemediationObject(created=began, goes_at=began + 5 * MINUTE)
    async with remediating(server, world) as handle:
        async with asyncio.timeout(20):
            while why not in [each async for each in summaries_of(handle)] if why else not await parked(handle):
                await asyncio.sleep(0.02)
    assert world.broken == []


async def parked(handle: Handle) -> bool:
    """Whether it waits for a person, and nothing is under way."""
    if (await handle.query(Remediation.status)).phase is not Phase.NEEDS_HUMAN:
        return False
    found = (await handle.describe()).raw_description
    return not found.pending_activities and not found.HasField("pending_workflow_task")


async def summaries_of(handle: Handle) -> AsyncIterator[str]:
    """Why it has rested so far, as its timers say."""
    async for event in handle.fetch_history_events():
        if event.HasField("timer_started_event_attributes"):
            yield event.user_metadata.summary.data.decode().strip('"')
