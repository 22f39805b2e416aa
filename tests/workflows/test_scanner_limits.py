"""The scanner's table keeps what a line counts under, whatever its episode asks meanwhile (S14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import WorkflowEnvironment

from policy.episode.permits import PermitDecision, PermitState
from tests.workflows.scanned import CHECK, ScriptedCluster, candidate, report, scanning


@pytest.mark.parametrize("gives_back", [False, True], ids=["granted again", "held and asked anew"])
async def test_a_check_counts_an_episode_that_has_asked_for_its_permit_again(env: WorkflowEnvironment, gives_back: bool) -> None:
    """S14: `max-in-flight` of a check; a person's hold that ends, or a question that is asked twice, makes nobody uncounted."""
    one_at_once = ((CHECK.key, 1),)
    first, second = (replace(candidate(node), in_flight=one_at_once) for node in ("node-1", "node-2"))
    world = ScriptedCluster(report("node-1", candidates=(first,)))
    async with scanning(env, world, concurrency=5) as scan:
        await scan.has_opened(1)
        await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.OPEN])
        if gives_back:
            await scan.release(world.opened[0], held=True, outcome="")
            await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.PARKED])
        answer = await scan.ask("node-1", world.opened[0].incident, by_person=False)
        assert answer.decision is PermitDecision.GRANTED
        world.show(report("node-1", "node-2", candidates=(first, second)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 2)
        assert {each.node: each.reason for each in status.refused} == {"node-2": "InFlightLimit"}
