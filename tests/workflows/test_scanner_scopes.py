"""Scopes as a scanner lives them: a rack that fails as a whole, and racks that are served one node at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import OpenRequest, OpenResult
from activities.contracts.scan import ScanRequest
from policy.checks.fence_policies import FencePolicies, ScopeCap, StormRule
from policy.episode.permits import PermitDecision, PermitState
from policy.objects.nodes import Condition
from policy.scan.ledger import Ledger
from policy.scan.report import ScanReport
from tests.policy.builders import NOW, ago
from tests.policy.fencing_builders import RACK, in_rack, ledger_of, racks, report_of
from tests.workflows.scanned import Scan, ScriptedCluster, scanning
from tests.workflows.surroundings import moment

CAP = 5


@dataclass
class Racks(ScriptedCluster):
    """A cluster whose reports are drawn up by a real ledger, for whatever nodes the scanner watches."""

    ledger: Ledger = field(default_factory=lambda: ledger_of([]))
    watching: tuple[str, ...] = ()
    open_now: set[str] = field(default_factory=set)
    most: int = 0
    most_in_a_rack: int = 0

    def look(self) -> None:
        """The cluster as it is now."""
        self.show(replace(report_of(self.ledger.report_parts(NOW, self.watching)), digest=""))

    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        if request.watching != self.watching:
            self.watching = request.watching
            self.look()
        return await super().observe_cluster(request)

    async def open(self, request: OpenRequest) -> OpenResult:
        for episode in request.episodes:
            self.open_now.add(episode.node)
        by_rack = Counter(node.partition("-")[0] for node in self.open_now)
        self.most = max(self.most, len(self.open_now))
        self.most_in_a_rack = max(self.most_in_a_rack, *by_rack.values())
        return await super().open(request)

    def repair(self, node: str) -> None:
        """An episode has ended well."""
        self.open_now.discard(node)
        self.ledger.put_node(in_rack(node, node.partition("-")[0], "True", 1), NOW)


def failing(number: int, size: int, *down: str) -> Ledger:
    """So many racks of that size, in which these nodes are down."""
    gone = (Condition(type="Ready", status="Unknown", since=ago(600)),)
    return ledger_of(replace(node, conditions=gone) if node.name in down else node for node in racks(number, size))


async def test_a_rack_that_fails_as_a_whole_is_not_fenced(env: WorkflowEnvironment) -> None:
    """S17: two hundred nodes of one rack, and everybody is told why. The node of another rack is fenced meanwhile."""
    down = [f"r0-{place}" for place in range(200)]
    world = Racks(ledger=failing(2, 200, *down, "r1-7"))
    world.ledger.follow(FencePolicies(storms=(StormRule(name="racks", percentage=50, scope=RACK),)))
    world.look()
    async with scanning(env, world, concurrency=CAP) as scan:
        await scan.has_opened(1)
        status = await scan.until(lambda status: bool(status.refused))
        assert {refused.reason for refused in status.refused} == {"ScopeStorm"}
        assert "200 of 200 nodes, 100%, are unresponsive" in status.refused[0].message
        by_hand = await scan.ask("r0-5")
        assert by_hand.decision is PermitDecision.REFUSED
        assert "the policy racks fences below 50%" in by_hand.reason
        for node in down[:101]:
            world.repair(node)
        world.look()
        await scan.has_opened(CAP)
        assert world.opened[0].node == "r1-7"


async def test_thirty_nodes_of_ten_racks_are_served_five_at_once_and_one_of_a_rack(env: WorkflowEnvironment) -> None:
    """S14, counted where the episodes are opened; all of them are repaired in the end."""
    down = [f"r{rack}-{place}" for rack in range(10) for place in range(3)]
    world = Racks(ledger=failing(10, 10, *down))
    world.ledger.follow(FencePolicies(cap=CAP, caps=(ScopeCap(scope=RACK, cap=1),)))
    world.look()
    async with scanning(env, world) as scan:
        repairing = asyncio.create_task(_repair_each(scan, world))
        try:
            status = await scan.until(
                lambda status: not status.permits and {episode.node for episode in world.opened} == set(down)
            )
        finally:
            repairing.cancel()
            await asyncio.gather(repairing, return_exceptions=True)
        assert (world.most, world.most_in_a_rack) == (CAP, 1)
        assert status.concurrency == CAP


async def _repair_each(scan: Scan, world: Racks) -> None:
    """End every episode soon after it was opened, the younger ones first. A scan that was on its way when an episode ended may
    give its node another one, which ends as its first look finds the node well."""
    ended = 0
    while True:
        batch = world.opened[ended:]
        ended += len(batch)
        for episode in reversed(batch):
            world.repair(episode.node)
            world.look()
            await scan.release(episode)
        await moment(scan.env)


@pytest.mark.parametrize("by_hand", [False, True], ids=["from a check", "by hand"])
async def test_a_node_that_was_just_switched_on_keeps_its_quiet_time(env: WorkflowEnvironment, *, by_hand: bool) -> None:
    """O07, by the scanner's own memory, which it carries over."""
    world = Racks(ledger=failing(1, 5, "r0-0"))
    world.ledger.follow(FencePolicies(quiet_time=timedelta(days=7)))
    world.look()
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], powered_on_at=await env.get_current_time(scan.handle))
        world.look()
        if by_hand:
            answer = await scan.ask("r0-0")
            assert (answer.decision, "it is left alone for another" in answer.reason) == (PermitDecision.REFUSED, True)
        status = await scan.until(lambda status: any(refused.reason == "QuietTime" for refused in status.refused))
        assert "was switched on at" in status.refused[0].message
        assert len(world.opened) == 1


async def test_after_so_many_failures_a_node_is_left_alone_until_the_pause_is_over_or_a_person_asks(
    env: WorkflowEnvironment,
) -> None:
    """S19: each attempt that could not begin counts; the other node has none of it."""
    world = Racks(ledger=failing(1, 5, "r0-0"))
    world.ledger.follow(FencePolicies(maximum_attempts=1, attempts_pause=timedelta(days=5)))
    world.look()
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="refused", problem="no template")
        status = await scan.until(lambda status: bool(status.held_off))
        (held,) = status.held_off
        assert held.reason == "attempts failed in a row: 1, the last one with: no template"
        assert held.until is not None
        assert held.until - await env.get_current_time(scan.handle) > timedelta(days=4)
        assert (await scan.ask("r0-0")).decision is PermitDecision.GRANTED
        status = await scan.until(lambda status: not status.held_off)
        assert [permit.holding for permit in status.permits] == [PermitState.OPEN]
