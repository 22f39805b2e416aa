"""When the scanner begins to clean up what others have left: marks without an episode, objects that nobody needs (S35)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import WorkflowEnvironment

from policy.episode.messages import Observation
from policy.episode.permits import PermitState
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategies import Strategy
from policy.scan.scan_report import ClusterLease, LeftOver, ViewState
from tests.workflows.scanned import CHECK, ScriptedCluster, candidate, report, scanning
from tests.workflows.surroundings import eventually

STEP = EscalationStep(strategy=Strategy.DELETE_MACHINE, name=Strategy.DELETE_MACHINE.value)
MARK = Observation(node="node-1", uid="u", ready=True, incident="old")
OBJECT = LeftOver(node="node-1", check=CHECK, step=STEP, name="node-1", reason="it is left over: its node is well")
LEFT: list[dict[str, object]] = [{"observations": (MARK,)}, {"left_over": (OBJECT,)}]
each_left = pytest.mark.parametrize("left", LEFT, ids=["a mark", "an object"])


@pytest.mark.parametrize(
    "blind",
    [
        {"view": ViewState(synced=True, stale="nothing was heard for a minute")},
        {"lease": ClusterLease(held=False, holder="another deployment")},
    ],
    ids=["stale view", "no Lease"],
)
@each_left
async def test_nothing_is_cleaned_up_on_a_stale_view_or_without_the_lease(
    env: WorkflowEnvironment, left: dict[str, object], blind: dict[str, object]
) -> None:
    """S18, S38: the mark may be of an episode of the deployment that holds the Lease."""
    world = ScriptedCluster(report(**left, **blind))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        await scan.ask("node-9", by_person=False)  # whatever is to be begun has been by then
        world.show(report("node-2", **left, **blind))
        await scan.until(lambda status: [each.node for each in status.refused] == ["node-2"])
        assert world.asked == []
        world.show(report(**left))
        await scan.until(lambda status: world.asked == [("node-1",)])


@each_left
async def test_nothing_is_cleaned_up_where_an_episode_is_open_or_has_just_ended(
    env: WorkflowEnvironment, left: dict[str, object]
) -> None:
    """S13, S35: it removes itself what it has added; a report from before its end shows that still."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, concurrency=2) as scan:
        await scan.has_opened(1)
        await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.OPEN])
        shown = report("node-2", candidates=(replace(candidate("node-2"), refused="not now"),), **left)
        world.show(shown)
        await scan.until(lambda status: [each.node for each in status.refused] == ["node-2"])
        assert world.asked == [("node-1",)]
        await scan.release(world.opened[0])
        await scan.until(lambda status: not status.permits)
        if "observations" in left:
            await eventually(env, lambda: bool(world.described))  # till then it could be the mark of somebody else
        for incident in ("by-hand", "again"):
            await scan.ask("node-9", incident)
        assert world.asked == [("node-1",)], "the next scan decides"
        world.show(shown)
        await scan.until(lambda status: world.asked == [("node-1",), ("node-1",)])


async def test_an_object_of_a_node_that_is_held_off_is_left_alone(env: WorkflowEnvironment) -> None:
    """S19: a person has ended its episode, and perhaps looks at what that has left."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="aborted", problem="aborted by ada")
        world.show(report("node-1", left_over=(OBJECT,)))
        await scan.until(lambda status: ["aborted by ada" in each.message for each in status.refused] == [True])
        assert world.asked == [("node-1",)]
        world.show(report(left_over=(OBJECT,), observations=(replace(MARK, incident=""),)))
        await scan.until(lambda status: world.asked == [("node-1",), ("node-1",)])
