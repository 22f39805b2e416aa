"""Drawn episodes on a real server that skips time: the adversary behind real workers, some of which forget every workflow.

Slower than the clockwork by far, and not the same run each time; what the server and the SDK's core make of time-outs, retries
and replays is theirs here. Workflows are not terminated here, and permits are always granted.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from policy.episode.ids import episode_id
from policy.episode.messages import EpisodeResult, FencingInput, Phase
from tests.workflows.adversary import Adversary
from tests.workflows.attempts import Attempt, Lost
from tests.workflows.contract import Call, activities_of, queues_of
from tests.workflows.drawing import Drawn
from tests.workflows.mishaps import Mishap
from tests.workflows.playing import problems_of_the_end
from workflows.definitions.fencing import Fencing
from workflows.kit.ids import WORKFLOW_QUEUE
from workflows.kit.messages import AbortRequest, AcknowledgeRequest, PersonRequest

CLUSTER = "adversity"
QUEUES = (f"{WORKFLOW_QUEUE}-{CLUSTER}", f"{WORKFLOW_QUEUE}-{CLUSTER}-forgetful")
"""The workers of the second forget every workflow at once: each of its tasks replays the history, as after a kill."""
SIDE_BY_SIDE = 8
"""Waiting is nearly all that an episode does."""
ASK_AGAIN = 2.0
"""Seconds after which an episode is asked whether it waits for a person, in case the Event that says so was lost."""
PATIENCE = 300

Handle = WorkflowHandle[Fencing, EpisodeResult]


class Stage:
    """The worlds of all episodes that are played, by their workflow ids."""

    def __init__(self, env: WorkflowEnvironment) -> None:
        self._env = env
        self._worlds: dict[str, Adversary] = {}
        self._never = asyncio.Event()

    async def carry(self, call: Call, request: Any) -> Any:
        """One attempt of a worker."""
        info = activity.info()
        attempt = Attempt(
            workflow_id=str(info.workflow_id),
            kind=str(info.workflow_type),
            run_id=str(info.workflow_run_id),
            call=call,
            request=request,
            number=info.attempt,
            decided=info.scheduled_time,
            now=info.started_time,
        )
        try:
            return self._worlds[attempt.workflow_id].perform(attempt)
        except Lost:
            await self._never.wait()

    async def play(self, episodes: Iterable[Drawn]) -> list[str]:
        """Play them, some at a time. Answers what was wrong."""
        drawn, problems = iter(episodes), list[str]()

        async def lane() -> None:
            for each in drawn:
                problems.extend(await self._one(each))

        await asyncio.gather(*(lane() for _ in range(SIDE_BY_SIDE)))
        return problems

    def close(self) -> None:
        """Let go of every attempt whose worker is dead."""
        self._never.set()

    async def _one(self, drawn: Drawn) -> list[str]:
        node = f"node-{drawn.seed}-{uuid.uuid4().hex[:6]}"
        workflow_id = episode_id(CLUSTER, node)
        adversary = Adversary(
            plan=drawn.plan, need=drawn.need, script=deque(drawn.script), ambushes=list(drawn.ambushes), lingers=drawn.lingers
        )
        adversary.machine.boot_seconds = drawn.boot_seconds
        self._worlds[workflow_id] = adversary
        request = FencingInput(cluster=CLUSTER, node=node, need=drawn.need, permit_granted=True, holder="us")
        queue = QUEUES[drawn.seed % len(QUEUES)]
        handle: Handle = await self._env.client.start_workflow(Fencing.run, request, id=workflow_id, task_queue=queue)
        async with _Voice(handle) as voice:
            adversary.say, adversary.grant = voice.say, voice.grant
            try:
                result = await asyncio.wait_for(_drive(handle, adversary, deque(drawn.reactions)), PATIENCE)
            except TimeoutError:
                status = await handle.query(Fencing.status)
                found = [f"it never ended: {status.phase}, {status.doing}, {status.problem}"]
            else:
                found = [*adversary.broken, *problems_of_the_end(adversary, result)]
        return [f"seed {drawn.seed}, on a server: {each}\n  did: {adversary.acts}" for each in found]


class _Voice:
    """What is said to one episode, beside whatever it does."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> _Voice:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def say(self, mishap: Mishap, _delay: float) -> None:
        """At once: nobody here waits by the episode's clock."""
        self._begin(self._speak(mishap))

    def grant(self) -> None:
        """The scanner does."""
        self._begin(self._handle.signal(Fencing.permit_granted))

    def _begin(self, speaking: Any) -> None:
        async def quietly() -> None:
            with contextlib.suppress(Exception):  # it may have ended, or refuse
                await speaking

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _speak(self, mishap: Mishap) -> None:
        why = {"who": "bob", "reason": "drawn"}
        match mishap:
            case Mishap.HOLD:
                await self._handle.execute_update(Fencing.hold, PersonRequest(**why))
            case Mishap.ABORT | Mishap.ABORT_ON:
                await self._handle.execute_update(Fencing.abort, AbortRequest(**why, power_on=mishap is Mishap.ABORT_ON))
            case Mishap.CANCEL:
                await self._handle.cancel()


async def _drive(handle: Handle, adversary: Adversary, reactions: deque[str]) -> EpisodeResult:
    """Wait for the end; where a person is asked for, react as drawn, and in the end mend everything and go on."""
    ended, answered, mended = asyncio.ensure_future(handle.result()), 0, 0
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                asked = adversary.asked_for_a_person > answered
                return await asyncio.wait_for(asyncio.shield(ended), 0.1 if asked else ASK_AGAIN)
            answered = adversary.asked_for_a_person
            if not await _waits_for_a_person(handle):
                continue
            if not reactions:
                adversary.calm()
                mended += 1
            await _react(handle, adversary, reactions.popleft() if reactions else "abort-on" if mended > 2 else "resume")
    finally:
        ended.cancel()


async def _waits_for_a_person(handle: Handle) -> bool:
    """Asked rarely: a query replays the whole history where nothing is cached."""
    try:
        status = await handle.query(Fencing.status)
    except RPCError:
        return False
    return status.phase is Phase.NEEDS_HUMAN or status.doing.startswith("held by")


async def _react(handle: Handle, adversary: Adversary, reaction: str) -> None:
    """A person's word; one that is not wanted just now is refused, which is no failure."""
    why = {"who": "ada", "reason": "drawn"}
    with contextlib.suppress(Exception):
        match reaction:
            case "resume":
                adversary.referee.hears_word()
                await handle.execute_update(Fencing.resume, PersonRequest(**why))
            case "acknowledge":
                if adversary.machine.runs:
                    return  # a person who says so of a machine that runs is beyond every rule
                adversary.referee.hears_word()
                await handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(**why))
            case "abort" | "abort-on":
                await handle.execute_update(Fencing.abort, AbortRequest(**why, power_on=reaction == "abort-on"))


@asynccontextmanager
async def stage(env: WorkflowEnvironment) -> AsyncIterator[Stage]:
    """Workers for all episodes."""
    ready = Stage(env)
    async with contextlib.AsyncExitStack() as stack:
        for queue, cached in zip(QUEUES, (1000, 0), strict=True):
            await stack.enter_async_context(
                Worker(
                    env.client,
                    task_queue=queue,
                    workflows=[Fencing],
                    max_cached_workflows=cached,
                    workflow_failure_exception_types=[Exception],
                )
            )
        for queue, contracts in queues_of(CLUSTER):
            await stack.enter_async_context(
                Worker(
                    env.client,
                    task_queue=queue,
                    activities=activities_of(ready.carry, *contracts),
                    max_concurrent_activities=1000,
                    graceful_shutdown_timeout=timedelta(0),
                )
            )
        try:
            yield ready
        finally:
            ready.close()
