"""The scanner's part in preservation: whom it begins one for, whom it tells, and when it leaves them all alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import NotifyResult, Opened
from policy.episode.messages import Kind, SeenNode, episode_id
from policy.episode.permits import Permit, PermitDecision, PermitRequest, PermitState, ScannerAnswer, ScannerQuestion
from policy.preservation.preservation_index import PreservationNeed
from policy.scan.report_builder import stamp_of
from policy.scan.scan_report import ClusterLease, ViewState
from tests.workflows.scanner_run import NOW, Scan, ScriptedCluster, candidate, report, scanning
from tests.workflows.surroundings import eventually
from workflows.definitions.scanner import HealthScanner
from workflows.scanner.state import ScannerInput, ScannerState


def need(victim: str, stamp: str = "one", **changes: object) -> PreservationNeed:
    plain = PreservationNeed(victim=victim, action="preserve", reason="asked for by annotation", stamp=stamp)
    return replace(plain, **changes)  # type: ignore[arg-type]


def stamps(world: ScriptedCluster) -> list[tuple[str, str]]:
    """Who was begun or told."""
    return [(each.victim, each.stamp) for request in world.preserved for each in request.needs]


async def until(scan: Scan, count: int) -> None:
    """Wait until so many were begun or told."""
    await eventually(scan.env, lambda: len(stamps(scan.world)) >= count)


async def test_each_change_is_told_once_and_what_is_settled_is_forgotten(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report(preservations=(need("node-1"), need("node-2"))))
    async with scanning(env, world) as scan:
        await until(scan, 2)
        world.show(report(preservations=(need("node-1"), need("node-2", "two"))))
        await until(scan, 3)
        world.show(report())
        await scan.until(lambda status: status.scans >= 3)
        world.show(report(preservations=(need("node-1"),)))
        await until(scan, 4)
    assert stamps(world) == [("node-1", "one"), ("node-2", "one"), ("node-2", "two"), ("node-1", "one")]
    assert {(request.holder, request.decided is None) for request in world.preserved} == {("us", False)}
    assert world.opened == [], "a preservation takes no permit and opens no fencing"


async def test_what_failed_is_tried_again_with_the_next_report(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report(preservations=(need("node-1"),)), fails={"preserve": 1})
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        world.show(report("node-9", preservations=(need("node-1"),)))
        await until(scan, 1)


async def test_on_a_stale_view_or_without_the_lease_nothing_is_begun(env: WorkflowEnvironment) -> None:
    """S18, S38."""
    world = ScriptedCluster()
    stale = ViewState(synced=True, stale="nothing was heard from the API server")
    world.show(report(view=stale, preservations=(need("node-1"),)))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        world.show(report(lease=ClusterLease(held=False, holder="them"), preservations=(need("node-1"),)))
        await scan.until(lambda status: status.scans >= 2)
        assert world.preserved == []
        world.show(report(preservations=(need("node-1"),)))
        await until(scan, 1)


async def test_one_report_has_one_node_kept_and_another_fenced(env: WorkflowEnvironment) -> None:
    """S13, S21, S23: of two that a health check calls failed, whom the pool keeps is never let at, however often it is decided;
    who is kept is named to the next scan, so that the place is not given to another before that is written."""
    world = ScriptedCluster()
    chosen = need("node-1", automatic=True, unhealthy="workers calls it unhealthy: ReadyUnknown")
    kept = replace(candidate("node-1"), refused="it is preserved: it has failed, and the pool keeps failed machines")
    world.show(report("node-2", candidates=(kept, candidate("node-2")), preservations=(chosen,)))
    async with scanning(env, world) as scan:
        await until(scan, 1)
        await scan.has_opened(1)
        assert world.order == ["preserve", "open"], "who is to be kept is begun with before anybody is let at any node"
        world.show(report("node-2", candidates=(kept, candidate("node-2"))))
        await scan.until(lambda status: status.scans >= 2)
        refused = {each.node: each.message for each in (await scan.until(lambda status: bool(status.refused))).refused}
        await scan.release(world.opened[0])
        await scan.until(lambda status: not status.permits)
        world.show(report("node-1"))
        await scan.has_opened(2)
    assert [need.victim for request in world.preserved for need in request.needs] == ["node-1"]
    assert "preserved" in refused["node-1"]
    assert [episode.node for episode in world.opened] == ["node-2", "node-1"], "released, it is fenced"
    assert [request.begun for request in world.requests][:3] == [(), ("node-1",), ()]


async def test_who_holds_the_node_is_not_refused_for_an_episode_that_comes_to_nothing(env: WorkflowEnvironment) -> None:
    """S13: a machine whose preservation has ended is being given up, and the scan calls its node failed as well: what is opened
    for that is refused by the id, and until then the one that has the id is not sent away for minutes."""
    world = ScriptedCluster(report("node-1"), outcomes={"node-1": Opened.REFUSED})
    world.may_open.clear()
    async with scanning(env, world) as scan:
        await eventually(env, lambda: bool(world.asked))
        await scan.until(lambda status: any(permit.state is PermitState.RESERVED for permit in status.permits))
        request = PermitRequest(node="node-1", workflow_id=episode_id(scan.cluster, "node-1"), incident="of-the-remediation")
        question = ScannerQuestion(id="q", permit=request)
        await scan.client_handle().signal(HealthScanner.ask, question)
        assert await scan.client_handle().query(HealthScanner.answer, question) == ScannerAnswer()
        world.may_open.set()
        answer = await scan.put(question)
    assert answer.decision is PermitDecision.GRANTED


# Which episodes the scanner notifies of their nodes.

SEEN = SeenNode(node="n", ready=True)


@pytest.mark.parametrize(("stale", "notified"), [("", ["n"]), ("nothing was heard for a minute", [])])
async def test_what_a_stale_view_shows_of_a_node_is_no_change(
    stale: str, notified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18: an episode would take its node for well, or gone."""
    asked = list[str]()

    async def tell(_: object, request: Any, **__: object) -> NotifyResult:
        asked.extend(each.node for each in request.seen_nodes)
        return NotifyResult()

    monkeypatch.setattr(workflow, "now", lambda: NOW)
    monkeypatch.setattr(workflow, "execute_activity_method", tell)
    permit = Permit(node="n", workflow_id="w", incident="i", kind=Kind.FENCING, state=PermitState.OPEN, granted_at=NOW)
    seen = report(seen_nodes=(SEEN,), view=ViewState(synced=True, stale=stale))
    state = ScannerState(started=NOW, report=seen, permits={"n": permit}, notified={"n": "as it was"})
    await HealthScanner(ScannerInput(cluster="c", state=state))._story._notify_episodes()
    assert asked == notified
    assert state.notified == {"n": "as it was" if stale else stamp_of(SEEN)}
