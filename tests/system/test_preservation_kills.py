"""Workers and the Temporal server are killed before, at and after the end of preservations: nothing is lost, or done twice.

Four machines are kept for seconds, two of which fail meanwhile. One story, and after it each of its ends is looked at:

    the first two expire     the worker dies with what it has written and not reported: the ends are on the objects already
    the failed one of them   is handed over, and the next worker dies with the permit for its deletion in its hand
    the other two expire     while neither a server nor a worker runs
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policy.episode.messages import EpisodeResult, Outcome, episode_id
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import CONDITION, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_OURS
from policy.preservation.requests import PRESERVE_FOR_ANNOTATION
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import condition_of
from simulator.resources import NODES
from tests.system.harness import System
from tests.system.nursery import Nursery
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import KillOrder, When

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, health_timeout=1.0)
FIRST, SECOND = ("node-2", "node-3"), ("node-4", "node-5")
"""Of each two the first runs on and the second fails."""
HOLD = timedelta(seconds=8)
MINE = {"example.com/mine": "as it was", SCALE_DOWN_DISABLED: "false"}
"""A user's own word, which is overruled while the machine is kept, and put back (S28)."""


@dataclass
class Story:
    """What was seen of each node: its Machine, every expiry that ever stood on that, and how its episode ended."""

    system: System
    machines: dict[str, str]
    expiries: dict[str, set[str]] = field(default_factory=dict)
    results: dict[str, EpisodeResult] = field(default_factory=dict)

    def expiry(self, node: str) -> str:
        found = self.system.cluster.machines.machine(self.machines[node]) or {}
        return str((found.get("status") or {}).get("currentStatus", {}).get("preserveExpiryTime") or "")

    async def look_on(self) -> None:
        """All the time, in memory."""
        while True:
            for node in self.machines:
                if expiry := self.expiry(node):
                    self.expiries.setdefault(node, set()).add(expiry)
            await asyncio.sleep(0.05)

    async def kept(self, node: str, *, fails: bool = False) -> None:
        words = {PRESERVE_ANNOTATION: "now", PRESERVE_FOR_ANNOTATION: f"{HOLD.seconds}s"}
        await self.system.client.patch(NODES.path(node), {"metadata": {"annotations": MINE | words}})
        await self.system.until(lambda: bool(self.expiry(node)), f"{node} is preserved", seconds=30)
        if fails:
            fleet, machine = self.system.cluster.machines, self.machines[node]
            self.system.break_node(node)
            await self.system.until(lambda: fleet.phase(machine) == "Failed", f"{machine} has failed")

    async def until_before(self, nodes: tuple[str, ...], seconds: float) -> None:
        """So long before the first of their ends."""
        end = min(datetime.fromisoformat(next(iter(self.expiries[node]))) for node in nodes)
        left = end - datetime.now(UTC) - timedelta(seconds=seconds)
        assert left > timedelta(0), "this computer is too slow for these holds"
        await asyncio.sleep(left.total_seconds())

    async def over(self, nodes: tuple[str, ...]) -> None:
        """Until their time is over, with nothing of ours there."""
        ends = [datetime.fromisoformat(next(iter(self.expiries[node]))) for node in nodes]
        await asyncio.sleep(max((max(ends) - datetime.now(UTC)).total_seconds(), 0) + 0.2)
        assert all(self.expiry(node) for node in nodes), "nobody was there to end it"

    async def ended(self, node: str) -> None:
        handle = self.system.warden.client.get_workflow_handle(episode_id("sim", node), result_type=EpisodeResult)
        self.results[node] = await asyncio.wait_for(handle.result(), 60)

    async def replaced(self, node: str) -> None:
        machine, fleet = self.machines[node], self.system.cluster.machines
        await self.system.until(lambda: machine not in fleet.names, f"{machine} is replaced", seconds=40)


@pytest.fixture(scope="module")
async def story(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Story]:
    folder = tmp_path_factory.mktemp("preservation-kills")
    workers = MachineOptions(system="gardener", settings=QUICK)
    async with (
        TemporalServer(folder) as temporal,
        System(
            folder / "system", temporal=temporal, nursery=nursery, nodes=5, zones=1, workers_as=workers, demo_workloads=False
        ) as system,
    ):
        fleet = system.cluster.machines
        told = Story(system, {node: fleet.of_node(node) for node in (*FIRST, *SECOND)})
        watching = asyncio.create_task(told.look_on())
        try:
            await _kill_and_restart(told)
            yield told
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _kill_and_restart(story: Story) -> None:
    system = story.system
    worker = await system.start_worker()
    await system.warden.start_scanner(system.cluster_name, cap=2)
    await asyncio.gather(story.kept(FIRST[0]), story.kept(FIRST[1], fails=True))
    await story.until_before(FIRST, 1)
    worker.obey(KillOrder(when=When.AFTER, activity="preservation.hold"))
    await asyncio.wait_for(worker.wait(), 20)
    worker = await system.start_worker()
    worker.obey(KillOrder(when=When.AFTER, activity="episodes.request-permit"))
    await asyncio.wait_for(worker.wait(), 30)
    worker = await system.start_worker()
    await asyncio.gather(story.kept(SECOND[0]), story.kept(SECOND[1], fails=True))
    await story.until_before(SECOND, 1)
    await asyncio.gather(worker.kill(), system.temporal.kill())
    await story.over(SECOND)
    await asyncio.gather(system.temporal.start(), system.start_worker())
    await asyncio.gather(*(story.ended(pair[0]) for pair in (FIRST, SECOND)))
    await asyncio.gather(*(story.replaced(pair[1]) for pair in (FIRST, SECOND)))


@pytest.mark.parametrize("node", [*FIRST, *SECOND])
async def test_the_end_was_never_moved(story: Story, node: str) -> None:
    """S22: by no death, by no repetition, and not by the failure."""
    assert len(story.expiries[node]) == 1


@pytest.mark.parametrize("node", [FIRST[0], SECOND[0]])
async def test_one_that_runs_is_let_go_once_and_left_as_it_was(story: Story, node: str) -> None:
    """S28; and people are told of its end: twice at most, where the worker was killed between telling and its answer."""
    assert story.results[node].outcome is Outcome.RELEASED
    assert story.expiry(node) == ""
    there = await story.system.live_node(node)
    annotations = there["metadata"]["annotations"]
    assert {key: annotations.get(key) for key in MINE} == MINE
    assert {PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, SCALE_DOWN_DISABLED_OURS}.isdisjoint(annotations)
    condition = condition_of(there, CONDITION)
    assert condition is not None
    assert condition["status"] == "False"
    assert await _told(story, node, "PreservationEnded") in {1, 2}
    assert story.system.cluster.machines.deletions(story.machines[node]) == []


@pytest.mark.parametrize("node", [FIRST[1], SECOND[1]])
async def test_one_that_has_failed_is_deleted_by_exactly_one_request(story: Story, node: str) -> None:
    """S25, S33: neither lost with the worker that knew of it, nor asked for again."""
    asked = story.system.cluster.machines.deletions(story.machines[node])
    assert [each.status for each in asked] == [200]
    assert asked[0].uid
    assert asked[0].at >= datetime.fromisoformat(next(iter(story.expiries[node])))


async def _told(story: Story, node: str, reason: str) -> int:
    """How often an Event of that reason was told about the node."""
    listed: list[dict[str, Any]] = (await story.system.client.list("/api/v1/events"))["items"]
    mine = [each for each in listed if each["involvedObject"]["name"] == node and each["reason"] == reason]
    return sum(int(each.get("count") or 1) for each in mine)
