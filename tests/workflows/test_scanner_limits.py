"""The scanner's table keeps what a line counts under, whatever its episode asks meanwhile (S14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription, FoundOpen
from policy.checks.health_check import HealthCheck
from policy.episode.permits import PermitDecision, PermitState
from policy.objects.nodes import Condition, NodeView
from policy.values.fields import Threshold
from tests.policy import builders
from tests.policy.builders import a_check, a_node, ago, put
from tests.workflows.scanned import CHECK, ScriptedCluster, candidate, check, report, report_of, scanning

ONE_AT_ONCE = replace(check(), at_once=1)


@pytest.mark.parametrize("gives_back", [False, True], ids=["granted again", "held and asked anew"])
async def test_a_check_counts_an_episode_that_has_asked_for_its_permit_again(env: WorkflowEnvironment, gives_back: bool) -> None:
    """S14: `max-in-flight` of a check; a person's hold that ends, or a question that is asked twice, makes nobody uncounted."""
    first, second = (replace(candidate(node), checks=(CHECK.key,)) for node in ("node-1", "node-2"))
    world = ScriptedCluster(report("node-1", candidates=(first,), checks=(ONE_AT_ONCE,)))
    async with scanning(env, world, concurrency=5) as scan:
        await scan.has_opened(1)
        await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.OPEN])
        if gives_back:
            await scan.release(world.opened[0], held=True, outcome="")
            await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.PARKED])
        answer = await scan.ask("node-1", world.opened[0].incident, by_person=False)
        assert answer.decision is PermitDecision.GRANTED
        world.show(report("node-1", "node-2", candidates=(first, second), checks=(ONE_AT_ONCE,)))
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
    limited = replace(candidate("node-2"), checks=(CHECK.key,))
    others = (candidate("node-1"),) if is_candidate else ()
    world = ScriptedCluster(report(), found=[FoundOpen(nodes=("node-1",))], known={"node-1": open_one})
    async with scanning(env, world, concurrency=5) as scan:
        await scan.until(lambda status: [each.holding for each in status.permits] == [PermitState.PARKED])
        world.show(report(candidates=others))
        await scan.until(lambda status: status.report is not None and len(status.report.candidates) == len(others))
        assert (await scan.ask("node-1", "i-1")).decision is PermitDecision.GRANTED
        world.show(report(candidates=(*others, limited), checks=(ONE_AT_ONCE,)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 1)
        assert [each.reason for each in status.refused] == ([] if is_candidate else ["InFlightLimit"])


WORKERS = a_check("workers", minHealthy=None, maxUnhealthy="100%")
DISKS = a_check(
    "disks",
    minHealthy=None,
    maxUnhealthy="100%",
    unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "10s"}],
)


def limited(check: HealthCheck, most: int) -> HealthCheck:
    return replace(check, max_in_flight=Threshold(value=most))


def sick(number: int) -> NodeView:
    """Not Ready; of several the one with the lower number for longer."""
    return a_node(f"node-{number}", "Unknown", age=1000 - number)


def bad_disk(number: int) -> NodeView:
    conditions = [Condition(type=kind, status="True", since=ago(1000 - number)) for kind in ("Ready", "DiskPressure")]
    return a_node(f"node-{number}", conditions=tuple(conditions))


async def test_a_limit_that_is_written_while_as_many_are_under_way_counts_them(env: WorkflowEnvironment) -> None:
    """S14: also one whose Machine and Node are gone by then."""
    ledger = builders.ledger_of(WORKERS, *map(sick, (1, 2, 3)))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world, concurrency=9) as scan:
        await scan.has_opened(3)
        ledger.remove_node("node-3")
        put(ledger, limited(WORKERS, 3))
        put(ledger, sick(4))
        world.show(report_of(ledger, ("node-1", "node-2", "node-3")))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 4)
        assert {each.node: each.reason for each in status.refused} == {"node-4": "InFlightLimit"}


async def test_a_target_that_is_remediated_under_another_check_counts(env: WorkflowEnvironment) -> None:
    """S14: the limit is of the check's targets, whoever has asked; and it holds up whoever else asks."""
    ledger = builders.ledger_of(limited(WORKERS, 1), DISKS, bad_disk(1))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world, concurrency=9) as scan:
        await scan.has_opened(1)
        put(ledger, sick(2))
        put(ledger, bad_disk(3))
        world.show(report_of(ledger, ("node-1",)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 1)
        assert {each.node: each.reason for each in status.refused} == dict.fromkeys(("node-2", "node-3"), "InFlightLimit")


@pytest.mark.parametrize("is_told", [True, False], ids=["told by the report", "not told yet"])
async def test_one_that_asks_while_more_wait_than_a_report_names_is_held_to_its_checks(
    env: WorkflowEnvironment, is_told: bool
) -> None:
    """S14: whoever is not named is not free of limits. A report that does not tell anything of the node yet speaks of all."""
    ledger = builders.ledger_of(limited(WORKERS, 1), *map(sick, range(1, 60)))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world, concurrency=90) as scan:
        await scan.has_opened(1)
        world.show(report_of(ledger, ("node-1", "node-59") if is_told else ("node-1",)))
        await scan.until(lambda status: len(status.report.observations if status.report is not None else ()) == 1 + is_told)
        answer = await scan.ask("node-59")
        assert (answer.decision, answer.reason) == (
            PermitDecision.QUEUED,
            "NodeHealthCheck/workers lets 1 be remediated at once: node-1",
        )
        await scan.release(world.opened[0])
        put(ledger, a_node("node-1"))
        world.show(report_of(ledger, ("node-59",)))
        status = await scan.until(lambda status: "node-59" in [each.node for each in status.permits] or status.opened > 1)
        assert [each.node for each in status.permits] == ["node-59"]
