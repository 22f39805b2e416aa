"""The scanner remembers what its episodes were about, and says when it is always the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.testing import WorkflowEnvironment

from activities.contracts import metrics
from policy.episode.messages import FencingInput, Need, NeedKind, scanner_id
from policy.episode.permits import Release
from policy.scan.repeat_alarm import RepeatAlarm
from tests.workflows.fencing_run import fencing
from tests.workflows.scanned import Scan, ScriptedCluster, report, scanning
from tests.workflows.surroundings import Measured, eventually, worker
from tests.workflows.world import World

TWICE = RepeatAlarm(count=2, window=timedelta(hours=24))


async def told(scan: Scan, count: int) -> None:
    """Wait until so many repetitions have been told."""
    await eventually(scan.env, lambda: len(scan.world.repetitions) >= count)


async def end(scan: Scan, number: int, **fields: object) -> FencingInput:
    """The number-th episode is opened and ends."""
    await scan.has_opened(number)
    episode = scan.world.opened[number - 1]
    assert episode.need is not None
    await scan.release(episode, **({"cause": episode.need.cause} | fields))
    await scan.until(lambda status: all(permit.incident != episode.incident for permit in status.permits))
    scan.world.show(report("node-1"))
    return episode


async def test_a_node_that_fails_again_and_again_is_told_with_what_was_there_each_time(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, repeat_alarm=TWICE) as scan:
        first = await end(scan, 1, workloads=("default/db-0", "default/web"), node_uid="uid-node-1")
        assert world.repetitions == []
        second = await end(scan, 2, workloads=("default/db-0",), node_uid="uid-node-1")
        await told(scan, 1)
    [request] = world.repetitions
    again = request.repetition
    assert (request.cluster, again.node, again.node_uid, again.cause) == (scan.cluster, "node-1", "uid-node-1", "Ready")
    assert again.incidents == (first.incident, second.incident)
    assert again.workloads == ("default/db-0",)


async def test_an_alarm_that_cant_be_told_holds_up_nothing(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("node-1"), fails={"tell": 1})
    async with scanning(env, world, repeat_alarm=TWICE) as scan:
        for number in (1, 2, 3):
            await end(scan, number)
        await told(scan, 1)
        await scan.has_opened(4)
    assert world.repetitions[0].repetition.count == 3


@workflow.defn(sandboxed=False)
class Listener:
    """In the scanner's place: ends with the first release that it hears."""

    def __init__(self) -> None:
        self._heard: Release | None = None

    @workflow.run
    async def run(self) -> Release:
        await workflow.wait_condition(lambda: self._heard is not None)
        assert self._heard is not None
        return self._heard

    @workflow.signal
    def release(self, release: Release) -> None:
        self._heard = release


async def heard_from(env: WorkflowEnvironment, world: World) -> Release:
    """What the scanner hears of an episode."""
    world.gates["pin"] = asyncio.Event()
    async with fencing(env, world) as run:
        cluster = run.handle.id.split("/")[1]
        async with worker(env.client, task_queue=f"listeners-{cluster}", workflows=[Listener]):
            listener = await env.client.start_workflow(
                Listener.run, id=scanner_id(cluster), task_queue=f"listeners-{cluster}", result_type=Release
            )
            world.gates["pin"].set()
            return await asyncio.wait_for(listener.result(), 20)


async def test_an_episode_says_at_its_end_what_ailed_the_node_and_what_stood_there(env: WorkflowEnvironment) -> None:
    need = Need(kind=NeedKind.CHECK, reason="Ready is Unknown since noon", cause="ReadyUnknown")
    release = await heard_from(env, World(need=need))
    assert (release.outcome, release.cause, release.node_uid) == ("recovered", "ReadyUnknown", "uid-1")
    assert release.workloads == ("pod-0", "pod-1", "pod-2")


async def test_an_alarm_is_counted_once_by_a_metric(server: WorkflowEnvironment, measured: Measured) -> None:
    """Also where no Event can be written."""
    world = ScriptedCluster(report("node-1"), fails={"tell": 1})
    async with scanning(server, world, client=measured.client, repeat_alarm=TWICE) as scan:
        for number in (1, 2):
            await end(scan, number)
        await scan.has_opened(3)
    counted = measured.updates(metrics.REPEATED_FENCING)
    assert [(update.value, update.attributes["node"], update.attributes["cause"]) for update in counted] == [
        (1, "node-1", "Ready")
    ]
