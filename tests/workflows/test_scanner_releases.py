"""What an episode says of its end and what others say of it, the server or a scan, reach the scanner in any order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import Kind
from policy.episode.permits import PermitDecision, PermitState, Release
from tests.workflows.scanned import ScriptedCluster, report, scanning
from tests.workflows.surroundings import eventually, let_pass
from workflows.definitions.scanner import HealthScanner
from workflows.scanner import backoff, permits
from workflows.scanner.state import REMIND_EVERY


async def test_the_scan_is_told_how_many_wait_for_a_person_and_for_a_permit(env: WorkflowEnvironment) -> None:
    """For the metrics: a preservation that has no line counts, one that is held does not, and who goes on counts no more."""
    keeper = EpisodeDescription(node="kept", known=True, open=True, workflow_id="w", incident="i", kind=Kind.PRESERVATION)
    world = ScriptedCluster(report("node-1", "node-2"), known={"kept": replace(keeper, parked=True)})

    async def told(*numbers: int) -> None:
        def as_expected() -> bool:
            world.show(world.current)
            last = world.requests[-1]
            return (last.need_person, last.permits, last.queued) == numbers

        await eventually(env, as_expected)

    async with scanning(env, world, concurrency=1) as scan:
        await scan.has_opened(1)
        await told(0, 1, 0)
        assert (await scan.ask("node-3")).decision is PermitDecision.QUEUED
        await told(0, 1, 1)
        await scan.client_handle().signal(HealthScanner.release, Release(node="kept", incident="i", parked=True))
        await told(1, 1, 1)
        await scan.release(world.opened[0], parked=True, problem="off is not proven")
        await told(2, 1, 0)
        asking = [each.node for each in world.requests[-1].in_flight or () if each.needs_person]
        assert asking == [world.opened[0].node], "its check says so, too"
        await scan.has_opened(2)
        await scan.release(world.opened[1], held=True)
        await told(2, 0, 0)
        world.known, world.current = {}, report()  # when they are described next, both have ended
        await let_pass(env, scan.handle, permits.DESCRIBE_EVERY)
        await told(0, 0, 0)


async def test_people_are_told_every_half_hour_that_somebody_still_waits_for_them(env: WorkflowEnvironment) -> None:
    """S44: with a long poll that begins anyway; and for as long as he waits."""
    keeper = EpisodeDescription(node="kept", known=True, open=True, workflow_id="w", incident="i", kind=Kind.PRESERVATION)
    world = ScriptedCluster(known={"kept": replace(keeper, parked=True)})

    since = list[str]()

    async def reminded() -> list[str]:
        """By two polls after another."""
        first = len(world.requests)
        for count in (1, 2):
            world.show(world.current)
            await eventually(env, lambda count=count: len(world.requests) >= first + count)
        since.extend(each.since for request in world.requests[first:] for each in request.remind)
        return [each.node for request in world.requests[first:] for each in request.remind]

    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.report is not None)
        await scan.client_handle().signal(HealthScanner.release, Release(node="kept", incident="i", parked=True))
        assert await reminded() == []
        for _ in range(2):
            await let_pass(env, scan.handle, REMIND_EVERY)
            assert await reminded() == ["kept"]
        world.known = {}
        await let_pass(env, scan.handle, REMIND_EVERY)
        await reminded()  # it is described now
        await let_pass(env, scan.handle, REMIND_EVERY)
        assert await reminded() == []
    assert len(set(since)) == 1, "since when he waits, whenever people were told"


@pytest.mark.parametrize(
    ("lasts", "least", "most"),
    [
        (None, timedelta(seconds=30), backoff.AFTER_REFUSAL),
        (timedelta(seconds=-5), timedelta(seconds=30), backoff.AFTER_REFUSAL),
        (timedelta(minutes=6), timedelta(minutes=5), timedelta(minutes=6)),
        (timedelta(hours=1), timedelta(minutes=9), backoff.AFTER_VETO),
    ],
    ids=["no lease", "lapsed", "short", "long"],
)
async def test_a_node_under_somebody_else_s_lease_gets_no_new_episode_while_that_lasts(
    env: WorkflowEnvironment, lasts: timedelta | None, least: timedelta, most: timedelta
) -> None:
    """One episode a minute, each begun only to be vetoed, would be all that people see. Who holds it is told meanwhile."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        now = await env.get_current_time(scan.handle)
        until = now + lasts if lasts is not None else None
        vetoed = "given up before power-off: the node's lease is held by 'node-maintenance'"
        await scan.release(world.opened[0], outcome="released", problem=vetoed, vetoed_until=until)
        world.show(report("node-1"))
        status = await scan.until(lambda status: bool(status.held_off) and bool(status.refused))
        (held,) = status.held_off
        assert held.until is not None
        assert least <= held.until - now <= most + timedelta(seconds=5)
        assert "node-maintenance" in status.refused[0].message


async def test_a_held_episode_makes_room_and_has_not_failed(env: WorkflowEnvironment) -> None:
    """S14, S19: it keeps its node, and nobody is left alone for it."""
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="", held=True)
        await scan.has_opened(2)
        status = await scan.until(lambda status: len(status.permits) == 2)
        assert {permit.node: permit.holding for permit in status.permits}["node-1"] is PermitState.PARKED
        carried = await scan.handle.query(HealthScanner.status)
        assert carried.held_off == ()
        assert (await scan.ask("node-1", world.opened[0].incident)).decision is PermitDecision.QUEUED
