"""A Node object that is not the one it was, before the off and while the machine is off; a mark that a restored backup has lost.

The machine is the same each time, and it comes back without a person (S9, S35). Real workers, API, BMCs and Temporal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from policy.episode.messages import Outcome, Phase
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL
from simulator.objects import uid_of
from simulator.resources import NODES
from tests.system.harness import System
from tests.system.questions import CONSEQUENCES, acts, commands, in_phase, standing, status, traces
from tests.system.temporal_server import TemporalServer
from tests.system.witness import Before

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

WHO = "ada@rack-7"
PLAN = {"waitBeforePower": "5s", "offTimeout": "30s", "bootTimeout": "30s"}


@pytest.fixture(scope="module")
async def system(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    async with standing(temporal, free_namespaces, tmp_path_factory, nodes=6, zones=3) as running:
        await running.start_worker()
        await running.apply_policy(plan=PLAN, check={"minHealthy": 1})
        await running.start_scanner()
        yield running


def victims(system: System) -> list[str]:
    """Nodes with a volume to free, each for one test."""
    return list(dict.fromkeys(system.node_of_pod(f"demo/database-{number}") for number in range(3)))


async def recreate(system: System, name: str) -> None:
    """As a cloud controller, a person or a backup does it: the same machine behind a new Node object."""
    old = await system.live_node(name)
    await system.client.delete(NODES.path(name))
    kept = {key: old["metadata"][key] for key in ("name", "labels")}
    new = {"apiVersion": "v1", "kind": "Node", "metadata": kept, "spec": {"providerID": old["spec"]["providerID"]}}
    created = await system.client.create(NODES.path(), {**new, "status": old["status"]})
    assert uid_of(created) != uid_of(old)


async def held_while_off(system: System, name: str) -> Before:
    """A node that is proven off, and whose episode a person holds before anything is freed: its BMC takes the off and ignores
    it until somebody pulls the plug."""
    before = Before.of(system.cluster, name)
    system.cluster.break_node(name, "bmc-ignores-off")
    system.cluster.break_node(name, "kubelet-stops")
    await in_phase(system, name, Phase.RUNNING, doing="waits until off is read back")
    await system.warden.episode(system.cluster_name, name).hold(who=WHO, reason="a backup is restored")
    await system.cluster.chassis.machine(name).set_power("off")

    async def is_proven() -> bool:
        now = await status(system, name)
        return now is not None and now.off_proof is not None and "held by" in now.doing

    await system.until(is_proven, f"{name} is off, and its episode is held")
    return before


async def go_on(system: System, before: Before) -> Outcome:
    await system.warden.resume(system.cluster_name, before.node, who=WHO, reason="the backup is restored")
    return (await system.ended(before)).outcome


async def test_a_node_that_is_made_anew_before_the_off_is_fenced_under_its_new_uid(system: System) -> None:
    """S9: adopted, and not left waiting for a person."""
    (node, *_) = victims(system)
    before = system.break_node(node, "kubelet-stops")
    await in_phase(system, node, Phase.RUNNING, doing="waits before power-management")
    await recreate(system, node)
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert [each.command for each in commands(system, node)] == ["off", "on"]
    assert await traces(system, node) == []


async def test_a_machine_whose_node_is_made_anew_while_it_is_off_comes_back(system: System) -> None:
    """S9: nothing is freed in the name of a Node that is gone, and the machine is not stranded."""
    (_, node, *_) = victims(system)
    before = await held_while_off(system, node)
    await recreate(system, node)
    assert await go_on(system, before) is Outcome.RECOVERED
    assert [each.command for each in commands(system, node)] == ["off", "on"]
    assert await traces(system, node) == []


async def test_a_mark_that_a_restored_backup_has_lost_is_written_again(system: System) -> None:
    """S35: the node is freed and comes back, as long as the episode is open."""
    node = victims(system)[-1]
    before = await held_while_off(system, node)
    lost = {"metadata": {"annotations": {MARK_ANNOTATION: None}, "labels": {MARK_LABEL: None}}, "spec": {"unschedulable": None}}
    await system.client.patch(NODES.path(node), lost)
    assert await go_on(system, before) is Outcome.RECOVERED
    assert not CONSEQUENCES.isdisjoint(await acts(system, node))
    assert any("demo/database" in each.name for each in system.witness.of(node, before.at))
    assert [each.command for each in commands(system, node)] == ["off", "on"]
    assert await traces(system, node) == []
    assert system.cluster.storage.violations == []
