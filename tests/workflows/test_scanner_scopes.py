"""Policies as a scanner lives them: a rack that fails as a whole, a node that was just switched on, or fails again and again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription
from activities.contracts.scan import ScanRequest
from policy.checks.fence_policies import FencePolicies, StormRule
from policy.episode.messages import episode_id
from policy.episode.permits import PermitDecision, PermitState
from policy.objects.nodes import Condition
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ScanReport
from tests.policy.builders import NOW, RACK, ago, in_rack, racks, report_of, tolerant_ledger
from tests.workflows.scanner_run import ScriptedCluster, scanning

CAP = 5


@dataclass
class Racks(ScriptedCluster):
    """A cluster whose reports are drawn up by a real ledger, for whatever nodes the scanner watches."""

    ledger: Ledger = field(default_factory=lambda: tolerant_ledger([]))
    watching: tuple[str, ...] = ()

    def look(self) -> None:
        """The cluster as it is now."""
        self.show(replace(report_of(self.ledger.report_parts(NOW, self.watching)), digest=""))

    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        if request.watching != self.watching:
            self.watching = request.watching
            self.look()
        return await super().observe_cluster(request)

    def repair(self, node: str) -> None:
        """An episode has ended well."""
        self.ledger.put_node(in_rack(node, node.partition("-")[0], "True", 1), NOW)


def failing(number: int, size: int, *down: str) -> Ledger:
    """So many racks of that size, in which these nodes are down."""
    gone = (Condition(type="Ready", status="Unknown", since=ago(600)),)
    return tolerant_ledger(replace(node, conditions=gone) if node.name in down else node for node in racks(number, size))


async def test_a_rack_that_fails_as_a_whole_is_not_fenced(env: WorkflowEnvironment) -> None:
    """S17: two hundred nodes of one rack, and everybody is told why. The node of another rack is fenced meanwhile."""
    down = [f"r0-{place}" for place in range(200)]
    world = Racks(ledger=failing(2, 200, *down, "r1-7"))
    world.ledger.follow(FencePolicies(storms=(StormRule(name="racks", percentage=50, scope=RACK),)))
    world.look()
    async with scanning(env, world, cap=CAP) as scan:
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
        world.known["r0-0"] = EpisodeDescription(
            node="r0-0", known=True, open=True, workflow_id=episode_id(scan.cluster, "r0-0"), incident="by-hand", by_person=True
        )
        assert (await scan.ask("r0-0")).decision is PermitDecision.GRANTED
        status = await scan.until(lambda status: not status.held_off)
        assert [permit.state for permit in status.permits] == [PermitState.OPEN]


async def test_a_node_that_was_just_switched_on_keeps_its_quiet_time(env: WorkflowEnvironment) -> None:
    """O07, by the scanner's own memory, which it carries over."""
    world = Racks(ledger=failing(1, 5, "r0-0"))
    world.ledger.follow(FencePolicies(quiet_time=timedelta(days=7)))
    world.look()
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], powered_on_at=await env.get_current_time(scan.handle))
        world.look()
        status = await scan.until(lambda status: any(refused.reason == "QuietTime" for refused in status.refused))
        assert "was switched on at" in status.refused[0].message
        assert len(world.opened) == 1
