"""What any client of Temporal asks the scanner in an open episode's name: its permit stays what it is (S14, S15)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import FencingInput, Kind, episode_id
from policy.episode.permits import PermitAnswer, PermitDecision, PermitRequest, ScannerQuestion
from policy.scan.scan_report import ControlPlane, ScanReport
from tests.workflows.scanner_run import CHECK, Scan, ScriptedCluster, candidate, check, report, scanning
from tests.workflows.surroundings import let_pass


def two(**changes: Any) -> ScanReport:
    """Two sick nodes of a check that has one remediated at once, of three members of a control plane that are Ready."""
    nodes = tuple(replace(candidate(name), checks=(CHECK.key,), **changes) for name in ("node-1", "node-2"))
    limited = replace(check(unhealthy=2), at_once=None if changes else 1)
    return report(candidates=nodes, checks=(limited,), control_plane=ControlPlane(members=3, ready=3))


async def asks(scan: Scan, incident: str, **said: Any) -> PermitAnswer:
    """For the first node, in the name of that incident."""
    request = PermitRequest(node="node-1", workflow_id=episode_id(scan.cluster, "node-1"), incident=incident, **said)
    return await scan.put(ScannerQuestion(id=uuid.uuid4().hex, permit=request))


async def opened(scan: Scan, *, parked: bool = False, member: bool = False) -> FencingInput:
    """The first of them, as Temporal shows it."""
    await scan.has_opened(1)
    (first,) = scan.world.opened
    if parked:
        await scan.release(first, outcome="", parked=True)
        await scan.has_opened(2)
    else:
        scan.world.known[first.node] = EpisodeDescription(
            node=first.node, known=True, open=True, workflow_id="w", incident=first.incident, permit=True, control_plane=member
        )
    return first


async def begins_no_other(scan: Scan) -> None:
    await let_pass(scan.env, scan.handle, timedelta(seconds=100))
    assert [each.node for each in scan.world.opened] == ["node-1"]


async def test_s14_no_stranger_makes_a_repair_a_preservation_which_its_check_does_not_count(env: WorkflowEnvironment) -> None:
    """A second node of the check was remediated beside it."""
    async with scanning(env, ScriptedCluster(two()), cap=5) as scan:
        first = await opened(scan)
        assert (await asks(scan, first.incident, kind=Kind.PRESERVATION)).decision is PermitDecision.GRANTED
        await begins_no_other(scan)


async def test_s14_a_parked_repair_that_is_called_a_preservation_waits_for_room_all_the_same(env: WorkflowEnvironment) -> None:
    async with scanning(env, ScriptedCluster(two()), cap=5) as scan:
        first = await opened(scan, parked=True)
        assert (await asks(scan, first.incident, kind=Kind.PRESERVATION)).decision is PermitDecision.QUEUED


async def test_s14_what_was_granted_to_a_preservation_is_no_leave_for_a_repair(env: WorkflowEnvironment) -> None:
    """A stranger asks before the episode does, which a person has begun."""
    world = ScriptedCluster(two())
    async with scanning(env, world, cap=5) as scan:
        await scan.has_opened(1)
        begun = scan.world.opened[0].node
        world.show(replace(world.current, candidates=()))
        request = PermitRequest(node="node-9", workflow_id=episode_id(scan.cluster, "node-9"), incident="by-hand", by_person=True)
        for kind, decision in ((Kind.PRESERVATION, PermitDecision.GRANTED), (Kind.FENCING, PermitDecision.QUEUED)):
            asked = ScannerQuestion(id=uuid.uuid4().hex, permit=replace(request, kind=kind))
            seen = await scan.put(asked)
            assert seen.decision is decision, (kind, seen, begun)


async def test_s14_what_a_stranger_has_asked_for_in_a_held_episodes_name_keeps_no_other_node_waiting(
    env: WorkflowEnvironment,
) -> None:
    """It does not know of that permit, and so never gave it back: no other node was repaired until it ended."""
    both = two()
    async with scanning(env, ScriptedCluster(replace(both, candidates=both.candidates[:1])), cap=1) as scan:
        await scan.has_opened(1)
        (first,) = scan.world.opened
        await scan.release(first, outcome="", held=True)
        await let_pass(scan.env, scan.handle, timedelta(seconds=5))
        assert (await asks(scan, first.incident)).decision is PermitDecision.GRANTED
        for _ in range(3):
            await let_pass(scan.env, scan.handle, timedelta(seconds=65))
            scan.world.show(replace(both, digest=uuid.uuid4().hex))
        await let_pass(scan.env, scan.handle, timedelta(seconds=5))
        assert "node-2" in {each.node for each in scan.world.opened}


async def test_s15_no_stranger_makes_a_member_of_the_control_plane_another_node(env: WorkflowEnvironment) -> None:
    """A second member had its episode beside the first one's."""
    async with scanning(env, ScriptedCluster(two(control_plane=True, ready=True)), cap=5) as scan:
        first = await opened(scan, member=True)
        assert (await asks(scan, first.incident, control_plane=False)).decision is PermitDecision.GRANTED
        await begins_no_other(scan)
