"""Running one Fencing workflow against a scripted world."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from policy.episode.messages import (
    EpisodeResult,
    EpisodeStatus,
    FencingInput,
    Outcome,
    Phase,
    RecordEntry,
    SeenNode,
    episode_id,
)
from tests.replay.recording import keep_history
from tests.workflows.contract import queues_of, served_by
from tests.workflows.surroundings import asked_until, eventually, worker
from tests.workflows.world import NODE, ScriptedTarget, World
from workflows.definitions.episodes import Fencing
from workflows.kit.messages import AbortRequest, AcknowledgeRequest, HoldEpisodeRequest, ResumeRequest
from workflows.kit.options import WORKFLOW_QUEUE


@dataclass
class Run:
    """A fencing under way."""

    env: WorkflowEnvironment
    world: World
    handle: WorkflowHandle[Fencing, EpisodeResult]
    restart_worker: Callable[..., Awaitable[None]]
    """Given what is done while none is there."""
    """The worker that runs the workflow ends; another one, which knows nothing of it, takes its place."""
    stopped: asyncio.Event
    """Set once the act at which it was stopped may end."""

    def go_on(self) -> None:
        """The act at which it was stopped ends."""
        self.stopped.set()

    async def result(self, outcome: Outcome | None = None) -> EpisodeResult:
        """How it ended, with this outcome where one is named; every rule that the world watches held at every moment."""
        self.go_on()
        result = await asyncio.wait_for(self.handle.result(), 30)
        await keep_history(self.handle)
        assert self.world.broken == [], self.world.broken
        assert outcome in {None, result.outcome}, result.message
        return result

    async def status(self) -> EpisodeStatus:
        """The episode's own word."""
        return await self.handle.query(Fencing.status)

    async def record(self) -> tuple[RecordEntry, ...]:
        """What it has written down so far."""
        return await self.handle.query(Fencing.record)

    async def until(self, condition: Callable[[EpisodeStatus], bool]) -> EpisodeStatus:
        """Wait until the status is as wished."""
        return await asked_until(self.env, self.status, condition)

    async def parked(self) -> EpisodeStatus:
        """Wait until it needs a person."""
        self.go_on()
        return await self.until(lambda status: status.phase is Phase.NEEDS_HUMAN)

    async def did(self, act: str) -> None:
        """Wait until the world has seen an act."""
        await eventually(self.env, lambda: act in self.world.acts)

    async def abort(self, *, power_on: bool = False) -> str:
        """A person aborts."""
        return await self.handle.execute_update(Fencing.abort, AbortRequest(who="ada", reason="drill", power_on=power_on))

    async def resume(self, reason: str = "it is mended") -> str:
        """A person has it go on."""
        return await self.handle.execute_update(Fencing.resume, await self.answer(reason))

    async def answer(self, reason: str = "it is mended") -> ResumeRequest:
        """A word that answers what is asked now."""
        return ResumeRequest(who="ada", reason=reason, question=(await self.status()).question)

    async def return_path(self, reason: str = "its processes are gone") -> None:
        """A person has a path given back."""
        await self.handle.execute_update(Fencing.return_path, await self.answer(reason))

    async def hold(self, reason: str = "we look first", *, until: datetime | None = None) -> str:
        """A person holds it."""
        return await self.handle.execute_update(Fencing.hold, HoldEpisodeRequest(who="ada", reason=reason, until=until))

    async def acknowledge(self, reason: str = "pulled the plug", *, override: str = "") -> None:
        """A person says that the machine is off."""
        word = AcknowledgeRequest(who="ada", reason=reason, question=(await self.status()).question, override=override)
        await self.handle.execute_update(Fencing.acknowledge_off, word)

    async def sees(self, **changes: object) -> None:
        """The node changes so, and the scanner tells of it."""
        for name, value in changes.items():
            setattr(self.world, name, value)
        await self.tell(self.world.seen_node())

    async def tell(self, seen: SeenNode) -> None:
        """The scanner says how the node is now."""
        await self.handle.signal(Fencing.node_changed, seen)


STICKY = timedelta(milliseconds=500)
"""How long a task waits for a worker that has ended."""


@asynccontextmanager
async def fencing(
    env: WorkflowEnvironment,
    world: World,
    *,
    at: str = "",
    parks: bool = False,
    client: Client | None = None,
    id_ends: str = "",
    **changes: object,
) -> AsyncIterator[Run]:
    """Start a fencing of `NODE` in a cluster of its own, so that tests may run side by side. at: the act in whose middle it is
    stopped, until it is to go on. parks: it waits for a person before the test begins. client: of its workers, where it is not
    the environment's. id_ends: what follows the node's name in the workflow id."""
    stopped = asyncio.Event()
    if at:
        world.gates[at] = stopped
    cluster = f"c{uuid.uuid4().hex[:8]}"
    request = FencingInput(
        **({"cluster": cluster, "node": NODE, "need": world.need, "permit_granted": True, "holder": "us"} | changes)  # type: ignore[arg-type]
    )
    target = ScriptedTarget(world)
    common = {"workflow_failure_exception_types": [Exception], "sticky_queue_schedule_to_start_timeout": STICKY}
    async with AsyncExitStack() as stack:
        queue, running = f"{WORKFLOW_QUEUE}-{cluster}", await stack.enter_async_context(AsyncExitStack())

        async def restart_worker(*meanwhile: Callable[[], Awaitable[None]]) -> None:
            await running.aclose()
            for done in meanwhile:
                await done()
            await running.enter_async_context(
                worker(client or env.client, task_queue=queue, workflows=[Fencing], **common)  # type: ignore[arg-type]
            )

        await restart_worker()
        for activities_queue, contracts in queues_of(cluster):
            await stack.enter_async_context(
                worker(client or env.client, task_queue=activities_queue, activities=served_by(target, *contracts))
            )
        workflow_id = f"{episode_id(cluster, NODE)}{id_ends}"
        handle = await env.client.start_workflow(Fencing.run, request, id=workflow_id, task_queue=queue)
        run = Run(env, world, handle, restart_worker, stopped)
        try:
            if at:
                await run.did(at)
            if parks:
                await run.parked()
            yield run
            await keep_history(handle)
        finally:
            for gate in world.gates.values():
                gate.set()
            with contextlib.suppress(RPCError):  # it has ended by itself
                await handle.terminate("the test is over")


async def fenced(
    env: WorkflowEnvironment, world: World, outcome: Outcome = Outcome.RECOVERED, **changes: object
) -> EpisodeResult:
    """How a fencing ended that nobody interfered with: with this outcome."""
    async with fencing(env, world, **changes) as run:  # type: ignore[arg-type]
        return await run.result(outcome)


async def parked(env: WorkflowEnvironment, world: World, **changes: object) -> EpisodeStatus:
    """What a fencing says that nobody interfered with once it needs a person."""
    async with fencing(env, world, **changes) as run:  # type: ignore[arg-type]
        return await run.parked()


NOTHING: Mapping[str, Any] = MappingProxyType({})


async def told(
    env: WorkflowEnvironment,
    *,
    at: str = "",
    then: Mapping[str, Any] = NOTHING,
    sees: Mapping[str, Any] = NOTHING,
    abort: str = "",
    ends: Outcome | None = Outcome.RECOVERED,
    says: str = "",
    did: Mapping[str, int] = NOTHING,
    order: str = "",
    only: str = "",
    freed: Sequence[str] | None = None,
    leaves: Mapping[str, Any] = NOTHING,
    given: Mapping[str, Any] = NOTHING,
    **world: Any,
) -> tuple[World, Any]:
    """Play a row of a table of stories: a fencing in a world that is so, and what comes of it.

    at, then, sees: in the middle of that act the world changes, and the scanner tells of what it sees; then a person
    aborts, leaving the power "off" or switching it "on". ends: with which outcome;
    None: it waits for a person. says: part of what people are told by then. did: how often acts are done. order: acts that come
    one after the other. only: all there is of those acts. freed: by which acts. leaves: the world at the end. given: what
    the workflow is told.
    """
    played = World(**{name: copy.copy(value) for name, value in world.items()})
    async with fencing(env, played, at=at, **given) as run:
        for name, value in then.items():
            setattr(played, name, value)
        if sees:
            await run.sees(**sees)
        if abort:
            await run.abort(power_on=abort == "on")
        ended: Any = await run.parked() if ends is None else await run.result(ends)
    assert says in (ended.problem if ends is None else ended.message)
    assert {act: played.count(act) for act in did} == did
    rest, named = iter(played.acts), only.split(" > ")
    assert all(act in rest for act in filter(None, order.split(" > "))), played.acts
    assert not only or [act for act in played.acts if act in named] == named
    assert freed is None or played.consequences == freed
    assert {name: getattr(played, name) for name in leaves} == leaves
    assert played.broken == []
    return played, ended


def story(**row: Any) -> dict[str, Any]:
    """A row of a table of what is `told`."""
    return row
