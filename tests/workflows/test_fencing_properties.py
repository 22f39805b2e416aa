"""Random mishaps, words and kills against a whole fencing: the safety rules hold at every moment, and it always comes to an end.

`NODEWARDEN_TEST_EPISODES` sets how many are tried (a bounded number in `make test`), `NODEWARDEN_TEST_SEED` from which on; a
failing one prints its seed. Not hypothesis: an episode depends on the order in which a server hands out its tasks, which no
shrinking can keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random

import pytest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.contracts.episodes import EpisodeActivities
from activities.contracts.mirror import MirrorActivities
from activities.contracts.power import PowerActivities
from activities.contracts.target import FreeingActivities, IsolationActivities, TargetActivities
from policy import episodes
from policy.episodes import EpisodeResult, FencingInput, Need, NeedKind, Outcome
from policy.ids import episode_id
from policy.plan import CORDON, UNCORDON, Act, FencingPlan, Freeing, PlannedMethod, PowerDevice
from policy.power import PowerState
from tests.workflows.adversary import SPOKEN, AdversarialActivities, Adversary, Mishap
from tests.workflows.world import plan
from workflows.fencing import Fencing
from workflows.ids import WORKFLOW_QUEUE, cluster_queue, power_queue
from workflows.messages import AbortRequest, AcknowledgeRequest, PersonRequest

EPISODES = int(os.environ.get("NODEWARDEN_TEST_EPISODES", "10"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
SIDE_BY_SIDE = 8
"""Waiting is nearly all that an episode does."""
CLUSTER = "adversity"
QUEUES = (f"{WORKFLOW_QUEUE}-{CLUSTER}", f"{WORKFLOW_QUEUE}-{CLUSTER}-forgetful")
"""The workers of the second forget every workflow at once: each of its tasks replays the history, as after a kill."""
ASK_AGAIN = 2.0
"""Seconds after which an episode is asked whether it waits for a person, in case the Event that says so was lost."""

BMC = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
PDUS = tuple(PowerDevice(driver="fence_apc_snmp", endpoint=f"fence_apc_snmp://pdu-{name}/7") for name in "ab")
PORT = PowerDevice(driver="fence_brocade", endpoint="fence_brocade://switch/7")
FC_OFF = PlannedMethod(name="fc-off", act=Act.CUT_PATH, device=PORT)
FC_ON = PlannedMethod(name="fc-on", act=Act.RESTORE_PATH, device=PORT)
FREE = PlannedMethod(name="free", act=Act.FREE_CUT_PODS)

PLANS = (
    plan(tries=2, restarts=1),
    plan(levels=((BMC,), PDUS), tries=1, restarts=1),
    plan(levels=(PDUS,), freeing=Freeing.DELETION),
    plan(isolation=(CORDON, FC_OFF), recovery=(FC_ON, UNCORDON)),
    plan(levels=(), isolation=(CORDON, FC_OFF, FREE), recovery=(FC_ON, UNCORDON), boot_timeout=timedelta(minutes=1)),
    plan(power_on=False),
    plan(wait_before_power=timedelta(minutes=5)),
)
NEEDS = (
    Need(kind=NeedKind.CHECK, reason="NodeHealthCheck/workers: Ready is Unknown"),
    Need(kind=NeedKind.PERSON, reason="drill"),
)
REACTIONS = ("resume", "acknowledge", "abort", "abort-on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One episode, as its seed has it."""

    seed: int
    plan: FencingPlan
    need: Need
    script: tuple[Mishap, ...]
    reactions: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> Drawn:
        random = Random(seed)
        calm = random.choice((0.5, 0.75, 0.9))
        length = random.randint(10, 60)
        script = (Mishap.NOTHING if random.random() < calm else random.choice(list(Mishap)) for _ in range(length))
        return cls(
            seed=seed,
            plan=random.choice(PLANS),
            need=random.choice(NEEDS),
            script=tuple(script),
            reactions=tuple(random.choices(REACTIONS, k=random.randint(0, 4))),
        )


Handle = WorkflowHandle[Fencing, EpisodeResult]


@pytest.fixture(scope="module")
async def activities(env: WorkflowEnvironment) -> AsyncIterator[AdversarialActivities]:
    """Workers for all episodes."""
    target = AdversarialActivities()
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
        for queue, contracts in (
            (WORKFLOW_QUEUE, (EpisodeActivities,)),
            (power_queue("default"), (PowerActivities,)),
            (cluster_queue(CLUSTER), (TargetActivities, IsolationActivities, FreeingActivities, MirrorActivities)),
        ):
            names = sorted(name for contract in contracts for name in contract.__abstractmethods__)
            await stack.enter_async_context(
                Worker(
                    env.client,
                    task_queue=queue,
                    activities=[getattr(target, name) for name in names],
                    max_concurrent_activities=1000,
                    graceful_shutdown_timeout=timedelta(0),
                )
            )
        yield target
        for world in target.worlds.values():
            world.never.set()


@pytest.mark.timeout(7200)
async def test_whatever_happens_the_rules_hold_and_every_episode_ends(
    env: WorkflowEnvironment, activities: AdversarialActivities
) -> None:
    """S1-S6, S8, S9, S20, S32, S33, S34, S35."""
    seeds = iter(range(FIRST_SEED, FIRST_SEED + EPISODES))
    problems: list[str] = []

    async def lane() -> None:
        for seed in seeds:
            problems.extend(await one_episode(env, activities, Drawn.of(seed)))

    await asyncio.gather(*(lane() for _ in range(SIDE_BY_SIDE)))
    assert problems == [], "\n".join(problems)


async def one_episode(env: WorkflowEnvironment, activities: AdversarialActivities, drawn: Drawn) -> list[str]:
    """Run one to its end, whatever it takes; answers which rules it broke."""
    node = f"node-{drawn.seed}-{uuid.uuid4().hex[:6]}"
    workflow_id = episode_id(CLUSTER, node)
    world = Adversary(plan=drawn.plan, need=drawn.need, script=deque(drawn.script))
    activities.worlds[workflow_id] = world
    tasks: set[asyncio.Task[None]] = set()
    request = FencingInput(cluster=CLUSTER, node=node, need=drawn.need, permit_granted=True, holder="us")
    queue = QUEUES[drawn.seed % len(QUEUES)]
    handle: Handle = await env.client.start_workflow(Fencing.run, request, id=workflow_id, task_queue=queue)

    def say(mishap: Mishap) -> None:
        task = asyncio.ensure_future(speak(handle, mishap))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    world.say = say
    try:
        result = await asyncio.wait_for(drive(handle, world, deque(drawn.reactions)), 300)
    except TimeoutError:
        status = await handle.query(Fencing.status)
        found = [f"never ended: {status.phase}, {status.doing}, {status.problem}"]
    else:
        found = [*world.broken, *problems_of_the_end(world, result)]
        found = [f"{each} (ended {result.outcome}: {result.message})" for each in found]
    finally:
        world.never.set()
        await asyncio.gather(*tasks, return_exceptions=True)
    script = ", ".join(each.value for each in drawn.script)
    return [f"seed {drawn.seed}: {each}\n  did: {world.acts}\n  script: {script}\n  {drawn.reactions}" for each in found]


async def drive(handle: Handle, world: Adversary, reactions: deque[str]) -> EpisodeResult:
    """Wait for the end; where a person is asked for, react as drawn, and in the end mend everything and go on."""
    ended = asyncio.ensure_future(handle.result())
    mended = False
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(ended), 0.1 if world.asks.is_set() else ASK_AGAIN)
            if not await waits_for_a_person(handle, world):
                continue
            if not reactions and not mended:
                world.script.clear()
                world.heal()
                mended = True
            await react(handle, world, reactions.popleft() if reactions else "abort-on" if mended else "resume")
    finally:
        ended.cancel()


async def waits_for_a_person(handle: Handle, world: Adversary) -> bool:
    """Asked rarely: a query replays the whole history where nothing is cached."""
    world.asks.clear()
    try:
        status = await handle.query(Fencing.status)
    except RPCError:
        return False
    return status.phase is episodes.Phase.NEEDS_HUMAN or status.doing.startswith("held by")


async def react(handle: Handle, world: Adversary, reaction: str) -> None:
    """A person's word; one that is not wanted just now is refused, which is no failure."""
    why = {"who": "ada", "reason": "drawn"}
    with contextlib.suppress(Exception):
        match reaction:
            case "resume":
                world.word = True
                await handle.execute_update(Fencing.resume, PersonRequest(**why))
            case "acknowledge":
                if world.runs() and world.plan.levels:
                    return  # a person who says so of a machine that runs is beyond every rule
                world.word = True
                await handle.execute_update(Fencing.acknowledge_off, AcknowledgeRequest(**why))
            case "abort" | "abort-on":
                await handle.execute_update(Fencing.abort, AbortRequest(**why, power_on=reaction == "abort-on"))


async def speak(handle: Handle, mishap: Mishap) -> None:
    """What somebody says in the middle of it."""
    assert mishap in SPOKEN
    why = {"who": "bob", "reason": "drawn"}
    with contextlib.suppress(Exception):
        if mishap is Mishap.HOLD:
            await handle.execute_update(Fencing.hold, PersonRequest(**why))
        else:
            await handle.execute_update(Fencing.abort, AbortRequest(**why, power_on=mishap is Mishap.ABORT_ON))


def problems_of_the_end(world: Adversary, result: EpisodeResult) -> list[str]:
    """S35: one of the ends, with its compensation done."""
    problems = []
    if world.present and world.marked == result.incident and "left cut" not in result.message:
        problems.append("S35: our mark is left")
    if world.present and world.tainted:
        problems.append("S32: our taint is left")
    proven = result.outcome is Outcome.RECOVERED and result.off_proof is not None
    if proven and not world.late and not world.meddled and not world.runs():
        problems.append("S35: recovered, and the machine is off")
    open_paths = [each for each in world.cut if world.states[each] is PowerState.OFF]
    if open_paths and result.outcome is not Outcome.REPLACED and "left cut" not in result.message:
        problems.append(f"S35: {open_paths} are left cut and nobody is told")
    return problems
