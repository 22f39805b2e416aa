"""What dashboards and alerts can be made of: the flow of an episode, counted as it goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts import metrics
from policy.episode.messages import Need, NeedKind, Outcome
from tests.workflows.fencing_run import fencing
from tests.workflows.kept_machine import machine, preserving
from tests.workflows.surroundings import Measured
from tests.workflows.world import World, plan


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
    assert measured.of(metrics.EPISODE_PHASES, "cluster", "kind", "phase") == {
        (cluster, "Fencing", phase): 1 for phase in ("running", "done", "final")
    }
    assert measured.of(metrics.EPISODES_ENDED, "cluster", "kind", "outcome") == {(cluster, "Fencing", "recovered"): 1}
    assert measured.longest(metrics.EPISODES_ENDED) == pytest.approx((result.ended - result.started).total_seconds(), abs=1)
    acts = measured.of("temporal_activity_execution_latency", "activity_type")
    assert acts["isolation.mark-unschedulable",] == acts["power-management.power-off",] == acts["recovery.mark-schedulable",] == 1


async def test_how_long_a_node_was_of_no_use_is_measured_from_when_it_began_to_offend(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    """To its episode, to off, to service, in that order. Where nobody says since when, nothing is made up."""
    since = datetime.now(UTC) - timedelta(minutes=10)
    times = (metrics.TIME_TO_DETECT, metrics.TIME_TO_OFF, metrics.TIME_TO_SERVICE)
    async with fencing(env, World(), client=measured.client) as run:
        await run.result()
    assert [measured.updates(each) for each in times] == [[], [], []]
    need = Need(kind=NeedKind.CHECK, reason="NodeHealthCheck/workers: Ready is Unknown", since=since)
    async with fencing(env, World(need=need), client=measured.client) as run:
        await run.result()
    assert [len(measured.updates(each)) for each in times] == [1, 1, 1]
    detected, off, service = (measured.longest(each) for each in times)
    assert 590 <= detected <= off <= service


async def test_an_episode_that_needs_a_person_is_counted_though_it_never_ends(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, client=measured.client) as run:
        await run.parked()
    phases = measured.of(metrics.EPISODE_PHASES, "phase")
    assert phases["error",] == phases["needs-human",] == 1
    assert measured.of(metrics.EPISODES_ENDED, "outcome") == {}


async def test_a_preservation_is_counted_by_its_own_kind(env: WorkflowEnvironment, measured: Measured) -> None:
    world = machine("now")
    async with preserving(env, world, client=measured.client) as run:
        assert (await run.timeout()).outcome is Outcome.RELEASED
    assert measured.of(metrics.EPISODE_PHASES, "kind", "phase")["Preservation", "Running:Preserved"] == 1
    assert measured.of(metrics.EPISODES_ENDED, "kind", "outcome") == {("Preservation", "released"): 1}
    assert measured.longest(metrics.EPISODES_ENDED) >= 72 * 3600
