"""What a scanner has forgotten counts all the same: a reset of its workflow takes back what it knew of its permits (S14)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription, FoundOpen
from policy.checks.inventory import ControlPlane
from policy.episode.messages import Kind, Observation
from policy.episode.permits import PermitDecision, PermitQuestion, PermitQuestions
from policy.scan.scan_report import ScanReport
from policy.values.object_refs import ObjectRef
from tests.policy.builders import a_permit
from tests.workflows.scanned import NOW, ScriptedCluster, check, report, scanning
from tests.workflows.surroundings import let_pass
from workflows.definitions.scanner import HealthScanner
from workflows.scanner.permits import DESCRIBE_EVERY, LIST_LAG
from workflows.scanner.state import ScannerState

AFTER_RESET = ScannerState(started=NOW, known=True, described_at=NOW)
"""It believes that it knows all open episodes."""
LOST = Observation(node="node-1", uid="uid-node-1", unhealthy=True, incident="i-1", provider_id="sim:///1")
OPEN = EpisodeDescription(
    node="node-1", known=True, open=True, workflow_id="episode", incident="i-1", permit=True, control_plane=False
)


def marked(*nodes: str, **changes: object) -> ScanReport:
    """node-1 carries a mark, these are candidates."""
    return report(*nodes, **({"observations": (LOST,)} | changes))


async def test_a_marked_node_without_a_line_counts_until_its_episode_is_described_as_closed(env: WorkflowEnvironment) -> None:
    """S14: in the very report that is acted on, also against who asks."""
    world = ScriptedCluster(marked("node-2"), known={"node-1": OPEN})
    async with scanning(env, world, concurrency=1, state=AFTER_RESET) as scan:
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 0)
        assert {each.node: each.reason for each in status.refused} == {"node-2": "CapReached"}
        assert (await scan.ask("node-3")).decision is PermitDecision.QUEUED
        assert world.opened == []
        world.known = {}
        await let_pass(env, scan.handle, DESCRIBE_EVERY)
        world.show(marked("node-2"))
        await scan.has_opened(1)


async def test_an_episode_that_is_found_again_counts_while_it_waits_for_its_permit(env: WorkflowEnvironment) -> None:
    """S14, S17: a circuit breaker refuses it its permit; its machine may be off all the same."""
    other = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="others")
    checks = (check(), replace(check(allowed=False, message="9 of 12 are unhealthy"), ref=other))
    world = ScriptedCluster(marked("node-2", checks=checks), known={"node-1": OPEN})
    async with scanning(env, world, concurrency=1, state=AFTER_RESET) as scan:
        status = await scan.until(lambda status: (bool(status.queue) and bool(status.refused)) or status.opened > 0)
        assert ([each.node for each in status.queue], world.opened) == (["node-1"], [])
        scans = len(world.requests)
        world.show(marked("node-2", "node-3", checks=checks))
        status = await scan.until(
            lambda status: (len(world.requests) > scans + 1 and len(status.refused) == 2) or status.opened > 0
        )
        assert {each.node: each.reason for each in status.refused} == dict.fromkeys(("node-2", "node-3"), "CapReached")


@pytest.mark.parametrize("later", [False, True], ids=["to its beginning", "to a later moment"])
async def test_a_real_reset_has_the_table_built_anew_before_anything_is_granted(
    server: WorkflowEnvironment, *, later: bool
) -> None:
    """S14: of a history that began with carried state, before its first report; node-1 holds a permit and bears no mark."""
    world = ScriptedCluster(report(), known={"node-1": OPEN})
    async with scanning(server, world, concurrency=1, state=AFTER_RESET) as scan:
        await scan.until(lambda status: status.scans > 0)
        assert world.listed == 0
        run = (await scan.client_handle().describe()).run_id
        done = [
            each.event_id
            async for each in scan.client_handle().fetch_history_events()
            if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        await asyncio.sleep(0 if later else LIST_LAG.total_seconds())
        world.found = [FoundOpen(nodes=("node-1",))]
        world.show(report("node-2"))
        await server.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=server.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=scan.handle.id, run_id=run),
                reason="test",
                request_id="test",
                workflow_task_finish_event_id=done[1 if later else 0],
            )
        )
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 0)
        assert {each.node: each.reason for each in status.refused} == {"node-2": "CapReached"}


@pytest.mark.parametrize(
    "description",
    [None, replace(OPEN, kind=Kind.PRESERVATION, permit=False)],
    ids=["its episode was terminated", "it is kept"],
)
async def test_a_mark_that_nobody_disrupts_its_node_for_counts_no_longer_than_it_takes_to_ask(
    env: WorkflowEnvironment, description: EpisodeDescription | None
) -> None:
    world = ScriptedCluster(marked("node-2"), known={"node-1": description} if description is not None else {})
    async with scanning(env, world, concurrency=1, state=AFTER_RESET) as scan:
        before = await scan.env.get_current_time()
        await scan.has_opened(1)
        assert [episode.node for episode in world.opened] == ["node-2"]
        assert await scan.env.get_current_time() - before < DESCRIBE_EVERY
        assert world.described[:1] == [("node-1",)]


async def test_a_stranger_counts_in_the_last_look_at_a_member_of_the_control_plane(env: WorkflowEnvironment) -> None:
    """S15, S14: its line was lost, and it may have off the one member that the others can spare."""
    own = a_permit("cp-1", control_plane=True)
    seen = report(observations=(LOST,), control_plane=ControlPlane(members=3, ready=3))
    world = ScriptedCluster(seen, known={"node-1": OPEN, "cp-1": replace(OPEN, node="cp-1", incident=own.incident)})
    asked = PermitQuestions(questions=(PermitQuestion(node="cp-1", incident=own.incident),))
    async with scanning(env, world, concurrency=5, state=replace(AFTER_RESET, permits={own.node: own})) as scan:
        await scan.until(lambda status: status.scans > 0)
        (answer,) = (await scan.handle.query(HealthScanner.holds_permits, asked)).questions
        assert (answer.held, "node-1" in answer.reason) == (False, True), answer.reason
