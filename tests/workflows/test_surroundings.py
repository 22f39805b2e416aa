"""The clockwork in the server's place: what it must have in common with one, so that the other tests prove the same on it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ActivityError
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, error_type, failure
from policy.episode.messages import Phase
from tests.workflows.fencing_run import fencing
from tests.workflows.surroundings import ClockworkEnvironment, moment, worker
from tests.workflows.world import World, plan
from workflows.definitions.episodes import Fencing
from workflows.kit.messages import PersonRequest


def refused_once() -> World:
    world = World()
    world.errors["free"].append(failure(ErrorType.UNREACHABLE, "the API server is away"))
    world.errors["publish"].append(failure(ErrorType.UNREACHABLE, "the API server is away"))
    return world


def held_up() -> World:
    return World(ignores_off=True)


def slow() -> World:
    return World(plan=plan(wait_before_power=timedelta(days=2)), off_takes=timedelta(seconds=3), lost={"off": 1})


async def told(env: WorkflowEnvironment, world: World) -> list[str]:
    """An episode to its end, with a person where it waits for one: everything that was done and said."""
    async with fencing(env, world) as run:
        await run.until(lambda status: status.phase in {Phase.NEEDS_HUMAN, Phase.FINAL} or status.restart_proof is not None)
        if (asking := await run.status()).phase is Phase.NEEDS_HUMAN:
            world.ignores_off = False
            await run.handle.execute_update(Fencing.resume, PersonRequest(who="ada", reason="mended", question=asking.question))
        result = await run.result()
        described = await run.handle.describe()
    assert described.status is WorkflowExecutionStatus.COMPLETED
    attributes = sorted({pair.key.name for pair in described.typed_search_attributes} - SERVERS)
    shown = [f"{each.status.phase} {each.outcome}" for each in world.shown[-1:]]
    record = [f"{entry.act} {entry.outcome}" for entry in result.record]
    acts = [act for act in world.acts if act not in POLLED and not act.startswith("event ")]  # those are told beside the rest
    events = sorted(event.reason for event in world.events)
    return [*acts, *events, *record, *shown, *attributes, result.outcome.value]


SERVERS = {"BuildIds", "TemporalChangeVersion"}
"""Attributes that the server adds."""
POLLED = {"read", "glance"}
"""How often is a matter of how long an answer takes."""


@pytest.mark.parametrize("made", [World, refused_once, held_up, slow])
async def test_an_episode_goes_the_same_way_as_on_the_server(server: WorkflowEnvironment, made: Callable[[], World]) -> None:
    clockwork = ClockworkEnvironment()
    here, there = await told(clockwork, made()), await told(server, made())
    await clockwork.shutdown()
    assert here == there


@activity.defn
async def declines_then_hangs(_what: str) -> None:
    if activity.info().attempt == 1:
        raise failure(ErrorType.WRONG_CLOCK, "it leaves this to another worker", retry_after=timedelta(milliseconds=50))
    await asyncio.sleep(5)


@workflow.defn(sandboxed=False)
class Waits:
    """Tells what it knows of an act that nobody has finished in its time."""

    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.execute_activity(
                declines_then_hangs, "", task_queue="told", schedule_to_close_timeout=timedelta(seconds=1)
            )
        except ActivityError as error:
            return f"{type(error.cause).__name__}: {error_type(error)}"
        return ""


async def test_a_time_out_tells_what_the_attempt_before_it_has_said(server: WorkflowEnvironment) -> None:
    """S18: or it would be taken for a failure where workers have declined because of their clocks."""
    clockwork, told = ClockworkEnvironment(), []
    for env in (clockwork, server):
        async with worker(env.client, task_queue="told", workflows=[Waits], activities=[declines_then_hangs]):
            told.append(await env.client.execute_workflow(Waits.run, id="told", task_queue="told"))
    await clockwork.shutdown()
    assert told == [f"TimeoutError: {ErrorType.WRONG_CLOCK}"] * 2


DRAWN = itertools.count(1)


@workflow.defn(sandboxed=False)
class Fickle:
    """Another one each time that it is built."""

    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(timedelta(seconds=next(DRAWN)))
        await workflow.sleep(timedelta(seconds=1))


async def test_a_replay_that_goes_another_way_is_found_wherever_a_worker_is_restarted() -> None:
    clockwork = ClockworkEnvironment()
    async with worker(clockwork.client, task_queue="q", workflows=[Fickle]):
        handle = await clockwork.client.start_workflow(Fickle.run, id="fickle", task_queue="q")
        await moment(clockwork)
    async with worker(clockwork.client, task_queue="q", workflows=[Fickle]):
        await handle.result()
    (found,) = clockwork.clockwork.problems
    assert found == "fickle: its replay goes another way at task 0"
    clockwork.clockwork.problems.clear()
    await clockwork.shutdown()
