"""The scanner's part in preservation: whom it begins one for, whom it tells, and when it leaves them all alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from temporalio import activity
from temporalio.client import WorkflowUpdateStage
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import Opened, OpenRequest, OpenResult
from activities.contracts.preservation import PreservationStarts, PreserveOutcome, PreserveRequest, PreserveResult
from activities.errors import ErrorType, failure
from policy.episode.messages import FencingInput
from policy.episode.permits import PermitDecision, PermitRequest, PermitState
from policy.preservation.book import PreservationNeed
from policy.scan.report import ClusterLease, ViewState
from tests.workflows.surroundings import eventually, worker
from tests.workflows.test_scanner import Scan, ScriptedCluster, candidate, report
from workflows.definitions.scanner import HealthScanner
from workflows.kit.ids import WORKFLOW_QUEUE, cluster_queue, episode_id, scanner_id
from workflows.kit.messages import ScannerInput


def need(victim: str, stamp: str = "one", **changes: object) -> PreservationNeed:
    plain = PreservationNeed(victim=victim, action="preserve", reason="asked for by annotation", stamp=stamp)
    return replace(plain, **changes)  # type: ignore[arg-type]


@dataclass
class Keepers(PreservationStarts):
    """Who was begun or told."""

    told: list[PreserveRequest] = field(default_factory=list)
    errors: int = 0
    order: list[str] = field(default_factory=list)

    @activity.defn(name="episodes.preserve")
    async def preserve(self, request: PreserveRequest) -> PreserveResult:
        if self.errors:
            self.errors -= 1
            raise failure(ErrorType.INVALID_CONFIG, "Temporal is away")
        self.told.append(request)
        self.order.append("preserve")
        return PreserveResult(
            outcomes=tuple(PreserveOutcome(victim=each.victim, opened=Opened.STARTED) for each in request.needs)
        )

    def stamps(self) -> list[tuple[str, str]]:
        return [(each.victim, each.stamp) for request in self.told for each in request.needs]

    async def until(self, env: WorkflowEnvironment, count: int) -> None:
        await eventually(env, lambda: len(self.stamps()) >= count)


@asynccontextmanager
async def scanning(env: WorkflowEnvironment, world: ScriptedCluster, keepers: Keepers, name: str) -> AsyncIterator[Scan]:
    """A scanner whose queue of workflows has the keepers as well: activities are told apart by queue, so it has its own."""
    queue = f"scanners-{name}"
    acts = [world.observe_cluster, world.release_lease, world.tell_repetition]
    starts = [world.open, world.describe, world.find_open, world.name_deployment, keepers.preserve]
    async with (
        worker(env.client, task_queue=queue, workflows=[HealthScanner], workflow_failure_exception_types=[Exception]),
        worker(env.client, task_queue=WORKFLOW_QUEUE, activities=starts),
        worker(env.client, task_queue=cluster_queue(name), activities=acts),
    ):
        request = ScannerInput(cluster=name, holder="us")
        handle = await env.client.start_workflow(HealthScanner.run, request, id=scanner_id(name), task_queue=queue)
        try:
            yield Scan(env, name, world, handle, lambda: env.client.get_workflow_handle_for(HealthScanner.run, scanner_id(name)))
        finally:
            await handle.terminate("the test is over")


async def test_each_change_is_told_once_and_what_is_settled_is_forgotten(env: WorkflowEnvironment) -> None:
    world, keepers = ScriptedCluster(), Keepers()
    world.show(report(preservations=(need("node-1"), need("node-2"))))
    async with scanning(env, world, keepers, "keepone") as scan:
        await keepers.until(env, 2)
        world.show(report(preservations=(need("node-1"), need("node-2", "two"))))
        await keepers.until(env, 3)
        world.show(report())
        await scan.until(lambda status: status.scans >= 3)
        world.show(report(preservations=(need("node-1"),)))
        await keepers.until(env, 4)
    assert keepers.stamps() == [("node-1", "one"), ("node-2", "one"), ("node-2", "two"), ("node-1", "one")]
    assert {request.holder for request in keepers.told} == {"us"}
    assert world.opened == [], "a preservation takes no permit and opens no fencing"


async def test_what_failed_is_tried_again_with_the_next_report(env: WorkflowEnvironment) -> None:
    world, keepers = ScriptedCluster(), Keepers(errors=1)
    world.show(report(preservations=(need("node-1"),)))
    async with scanning(env, world, keepers, "keeptwo") as scan:
        await scan.until(lambda status: status.scans >= 1)
        world.show(report("node-9", preservations=(need("node-1"),)))
        await keepers.until(env, 1)


async def test_on_a_stale_view_or_without_the_lease_nothing_is_begun(env: WorkflowEnvironment) -> None:
    """S18, S38."""
    world, keepers = ScriptedCluster(), Keepers()
    stale = ViewState(synced=True, stale="nothing was heard from the API server")
    world.show(report(view=stale, preservations=(need("node-1"),)))
    async with scanning(env, world, keepers, "keepthree") as scan:
        await scan.until(lambda status: status.scans >= 1)
        world.show(report(lease=ClusterLease(held=False, holder="them"), preservations=(need("node-1"),)))
        await scan.until(lambda status: status.scans >= 2)
        assert keepers.told == []
        world.show(report(preservations=(need("node-1"),)))
        await keepers.until(env, 1)


async def test_who_is_to_be_kept_is_begun_with_before_anybody_is_let_at_its_node(env: WorkflowEnvironment) -> None:
    """S13, S21: of a node that a check calls unhealthy and a person wants kept, the preservation has the id first."""
    world, keepers = ScriptedCluster(), Keepers()
    order: list[str] = []
    keepers.order, world.opened = order, _Noting(order)
    world.show(report("node-1", preservations=(need("node-1"),)))
    async with scanning(env, world, keepers, "keepfour") as scan:
        await keepers.until(env, 1)
        await scan.has_opened(1)
    assert order == ["preserve", "open"]


async def test_one_report_has_one_node_kept_and_another_fenced(env: WorkflowEnvironment) -> None:
    """S21, S23: of two that a health check calls failed, whom the pool keeps is never let at, however often the scanner decides;
    who is kept is named to the next scan, so that the place is not given to another before that is written."""
    world, keepers = ScriptedCluster(), Keepers()
    chosen = need("node-1", automatic=True, unhealthy="workers calls it unhealthy: ReadyUnknown")
    kept = replace(candidate("node-1"), refused="it is preserved: it has failed, and the pool keeps failed machines")
    world.show(report("node-2", candidates=(kept, candidate("node-2")), preservations=(chosen,)))
    async with scanning(env, world, keepers, "keepfive") as scan:
        await keepers.until(env, 1)
        await scan.has_opened(1)
        world.show(report("node-2", candidates=(kept, candidate("node-2"))))
        await scan.until(lambda status: status.scans >= 2)
        refused = {each.node: each.message for each in (await scan.until(lambda status: bool(status.refused))).refused}
        await scan.release(world.opened[0])
        await scan.until(lambda status: not status.permits)
        world.show(report("node-1"))
        await scan.has_opened(2)
    assert [need.victim for request in keepers.told for need in request.needs] == ["node-1"]
    assert "preserved" in refused["node-1"]
    assert [episode.node for episode in world.opened] == ["node-2", "node-1"], "released, it is fenced"
    assert [request.begun for request in world.requests][:3] == [(), ("node-1",), ()]


@dataclass
class _Slow(ScriptedCluster):
    """Episodes take until `go` to be opened."""

    opening: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="episodes.open")
    async def open(self, request: OpenRequest) -> OpenResult:
        self.opening.set()
        async with asyncio.timeout(10):
            await self.go.wait()
        return await super().open(request)


async def test_who_holds_the_node_is_not_refused_for_an_episode_that_comes_to_nothing(env: WorkflowEnvironment) -> None:
    """S13: a machine whose preservation has ended is being given up, and the scan calls its node failed as well: what is opened
    for that is refused by the id, and until then the one that has the id is not sent away for minutes."""
    world, keepers = _Slow(outcomes={"node-1": Opened.REFUSED}), Keepers()
    world.show(report("node-1"))
    async with scanning(env, world, keepers, "keepsix") as scan:
        await eventually(env, world.opening.is_set)
        await scan.until(lambda status: any(permit.holding is PermitState.RESERVED for permit in status.permits))
        request = PermitRequest(node="node-1", workflow_id=episode_id("keepsix", "node-1"), incident="of-the-remediation")
        accepted = WorkflowUpdateStage.ACCEPTED
        asked = await scan.client_handle().start_update(HealthScanner.request_permit, request, wait_for_stage=accepted)
        world.go.set()
        answer = await asyncio.wait_for(asked.result(), 20)
    assert answer.decision is PermitDecision.GRANTED


class _Noting(list[FencingInput]):
    """Notes when somebody is opened."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def append(self, episode: FencingInput) -> None:
        self._order.append("open")
        super().append(episode)
