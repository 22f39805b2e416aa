"""A permit that is given back by a signal: it is free once Temporal shows that its episode has none (S14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import FencingInput, Phase
from policy.episode.permits import PermitDecision, PermitState, Release
from tests.workflows.scanner_run import Scan, ScriptedCluster, report, scanning
from tests.workflows.surroundings import eventually, let_pass
from workflows.definitions.scanner import HealthScanner
from workflows.scanner.permits import DESCRIBE_EVERY
from workflows.scanner.releases import CONFIRMED_WITHIN

HOW = [{"outcome": "recovered"}, {"outcome": "aborted", "problem": "by ada"}, {"parked": True}, {"held": True}]


def holding(episode: FencingInput, **changes: Any) -> EpisodeDescription:
    """What Temporal shows of an episode that is at work."""
    plain = EpisodeDescription(
        node=episode.node, known=True, open=True, workflow_id="w", incident=episode.incident, permit=True, control_plane=False
    )
    return replace(plain, **changes)


async def forge(scan: Scan, node: str, incident: str, **said: Any) -> None:
    """What any client of Temporal can send."""
    await scan.client_handle().signal(HealthScanner.release, Release(node=node, incident=incident, **said))


async def came(scan: Scan) -> None:
    """All that was signalled before this has been looked at."""
    asked = len(scan.world.described)
    await eventually(scan.env, lambda: len(scan.world.described) > asked)


@pytest.mark.parametrize("said", HOW, ids=["recovered", "aborted", "parked", "held"])
async def test_s14_what_a_stranger_says_in_an_episodes_name_frees_no_permit(
    env: WorkflowEnvironment, said: dict[str, Any]
) -> None:
    """Its budget is one. The episode itself says what is so; once that has given it back, another node has it at once."""
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world, cap=1) as scan:
        await scan.has_opened(1)
        (first,) = world.opened
        world.known[first.node] = holding(first)
        await forge(scan, first.node, first.incident, **said)
        await came(scan)
        await let_pass(env, scan.handle, CONFIRMED_WITHIN + DESCRIBE_EVERY)
        status = await scan.until(lambda status: len(status.permits) == 1)
        assert [(each.incident, each.state) for each in status.permits] == [(first.incident, PermitState.OPEN)]
        assert status.held_off == ()
        assert len(world.opened) == 1
        await scan.release(first)
        await scan.has_opened(2)


@pytest.mark.parametrize("said", HOW[:3], ids=["recovered", "aborted", "parked"])
async def test_s14_an_episode_that_is_held_has_not_ended(env: WorkflowEnvironment, said: dict[str, Any]) -> None:
    """It holds no permit, and its node."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        (first,) = world.opened
        world.known[first.node] = holding(first, permit=False, phase=Phase.RUNNING)
        await forge(scan, first.node, first.incident, held=True)
        await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.PARKED])
        await forge(scan, first.node, first.incident, **said)
        await came(scan)
        await let_pass(env, scan.handle, CONFIRMED_WITHIN)
        status = await scan.until(lambda status: bool(status.permits))
        assert [(each.incident, each.state) for each in status.permits] == [(first.incident, PermitState.PARKED)]
        assert (status.held_off, world.requests[-1].need_person) == ((), 0)


async def test_s14_a_release_waits_until_it_is_known_what_became_of_opening_its_episode(env: WorkflowEnvironment) -> None:
    """Before that Temporal knows of no such episode, and would show that it has ended."""
    world = ScriptedCluster(report("node-1", "node-2"))
    world.may_open.clear()
    async with scanning(env, world, cap=1) as scan:
        await eventually(env, lambda: bool(world.asked))
        (permit,) = (await scan.until(lambda status: bool(status.permits))).permits
        await forge(scan, permit.node, permit.incident, outcome="recovered")
        await let_pass(env, scan.handle, timedelta(seconds=5))
        world.known[permit.node] = holding(FencingInput(cluster=scan.cluster, node=permit.node, incident=permit.incident))
        world.may_open.set()
        await came(scan)
        assert [each.node for each in (await scan.until(lambda status: bool(status.opened))).permits] == [permit.node]
        assert set(world.asked) == {(permit.node,)}


async def test_s14_an_answer_from_before_a_grant_takes_it_from_no_episode(env: WorkflowEnvironment) -> None:
    """It is held, and goes on while Temporal is asked for that."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, cap=1) as scan:
        await scan.has_opened(1)
        (first,) = world.opened
        world.known[first.node] = holding(first, permit=False)
        world.may_describe.clear()
        await forge(scan, first.node, first.incident, held=True)
        await came(scan)
        assert (await scan.ask(first.node, first.incident)).decision is PermitDecision.GRANTED
        world.may_describe.set()
        await let_pass(env, scan.handle, timedelta(seconds=5))
        (permit,) = (await scan.until(lambda status: bool(status.permits))).permits
        assert permit.state is PermitState.OPEN


async def test_s14_while_temporal_can_t_be_asked_a_permit_counts(env: WorkflowEnvironment) -> None:
    """And is free as soon as it can."""
    world = ScriptedCluster(report("node-1", "node-2"), fails={"describe": 2})
    async with scanning(env, world, cap=1) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0])
        await eventually(env, lambda: not world.fails["describe"])
        assert len(world.opened) == 1
        await scan.has_opened(2)


@pytest.mark.parametrize("incident", ["of-another", "of-long-ago"])
async def test_s19_no_node_is_left_alone_for_what_is_said_of_no_episode(env: WorkflowEnvironment, incident: str) -> None:
    """Nor of one that has ended long ago: that it was aborted kept a node from every repair until it is well."""
    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        now = await env.get_current_time(scan.handle)
        world.known["node-1"] = EpisodeDescription(
            node="node-1", known=True, open=False, workflow_id="w", incident="of-long-ago", ended=now - timedelta(hours=1)
        )
        await forge(scan, "node-1", incident, outcome="aborted", problem="by ada")
        await came(scan)
        world.show(report("node-1"))
        await scan.has_opened(1)
