"""What dashboards and alerts can be made of: the flow of an episode, counted as it goes."""

from __future__ import annotations

import pytest
from temporalio.testing import WorkflowEnvironment

from policy.episode.messages import Outcome
from tests.workflows.fencing_run import fencing
from tests.workflows.kept_machine import machine, preserving
from tests.workflows.surroundings import Measured
from tests.workflows.world import World, plan
from workflows.kit.measuring import ENDED, PHASES


@pytest.fixture
def env(server: WorkflowEnvironment) -> WorkflowEnvironment:
    """The real one: its workers measure by themselves how long acts take."""
    return server


async def test_the_flow_of_a_fencing_is_counted_and_each_act_measured_under_its_step(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    """The roadmap of the node-fencing proposal."""
    async with fencing(env, World(), client=measured.client) as run:
        result = await run.result()
        cluster = run.handle.id.split("/")[1]
    assert measured.of(PHASES, "cluster", "kind", "phase") == {
        (cluster, "Fencing", phase): 1 for phase in ("running", "done", "final")
    }
    assert measured.of(ENDED, "cluster", "kind", "outcome") == {(cluster, "Fencing", "recovered"): 1}
    assert measured.longest(ENDED) == pytest.approx((result.ended - result.started).total_seconds(), abs=1)
    acts = measured.of("temporal_activity_execution_latency", "activity_type")
    assert acts["isolation.mark-unschedulable",] == acts["power-management.power-off",] == acts["recovery.mark-schedulable",] == 1


async def test_an_episode_that_needs_a_person_is_counted_though_it_never_ends(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, client=measured.client) as run:
        await run.parked()
    phases = measured.of(PHASES, "phase")
    assert phases["error",] == phases["needs-human",] == 1
    assert measured.of(ENDED, "outcome") == {}


async def test_a_preservation_is_counted_by_its_own_kind(env: WorkflowEnvironment, measured: Measured) -> None:
    world = machine("now")
    async with preserving(env, world, client=measured.client) as run:
        assert (await run.timeout()).outcome is Outcome.RELEASED
    assert measured.of(PHASES, "kind", "phase")["Preservation", "Running:Preserved"] == 1
    assert measured.of(ENDED, "kind", "outcome") == {("Preservation", "released"): 1}
    assert measured.longest(ENDED) >= 72 * 3600
