"""The scanner's table keeps what a line counts under, whatever its episode asks meanwhile (S14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription, FoundOpen
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


@pytest.mark.parametrize("is_candidate", [False, True])
async def test_whose_checks_nobody_knows_counts_under_each_until_a_report_tells_them(
    env: WorkflowEnvironment, is_candidate: bool
) -> None:
    """S14: an episode that a new scanner has found open, and that asks for its permit."""
    open_one = EpisodeDescription(
        node="node-1", known=True, open=True, workflow_id="episode", incident="i-1", control_plane=False, node_uid="uid-node-1"
    )
    limited = replace(candidate("node-2"), in_flight=((CHECK.key, 1),))
    others = (candidate("node-1"),) if is_candidate else ()
    world = ScriptedCluster(report(), found=[FoundOpen(nodes=("node-1",))], known={"node-1": open_one})
    async with scanning(env, world, concurrency=5) as scan:
        await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.PARKED])
        world.show(report(candidates=others))
        await scan.until(lambda status: status.report is not None and len(status.report.candidates) == len(others))
        assert (await scan.ask("node-1", "i-1")).decision is PermitDecision.GRANTED
        world.show(report(candidates=(*others, limited)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 1)
        assert [each.reason for each in status.refused] == ([] if is_candidate else ["InFlightLimit"])
