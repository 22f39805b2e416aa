"""A kubelet chooses its providerID when it registers: whoever copies another's must not have that one switched off (S39).

The attacker has what a kubelet has: he registers a Node and writes its status. Workers run under the shipped rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from policy.episode.messages import Outcome
from simulator.resources import NODES
from tests.system.harness import System
from tests.system.questions import commands, events_about, is_open, standing
from tests.system.temporal_server import TemporalServer
from tests.system.test_api_restarts import under_shipped_rights
from tests.system.test_storm import explained

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

IMPOSTOR = "impostor"
IDENTITIES = {"providerID": "providerID", "systemUUID": "system UUID", "bootID": "boot id"}
LONG_ENOUGH = 6.0
"""The check waits a second; then permit, look and off would take less than two."""


@pytest.fixture(scope="module")
async def system(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    async with standing(temporal, free_namespaces, tmp_path_factory, nodes=4, zones=2, platform="gce") as running:
        await under_shipped_rights(running)
        await running.start_worker()
        await running.apply_policy(check={"minHealthy": 1})
        await running.start_scanner()
        yield running


async def register(system: System, victim: str, copied: str) -> None:
    """A Node of the attacker's own that has fallen silent, with one thing that is another's."""
    healthy = await system.live_node(victim)
    info = {**healthy["status"]["nodeInfo"], "systemUUID": "attacker-1", "bootID": "attacker-boot-1"}
    provider = "sim:///attacker"
    if copied == "providerID":
        provider = healthy["spec"]["providerID"]
    else:
        info[copied] = healthy["status"]["nodeInfo"][copied]
    long_ago = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": long_ago, "lastHeartbeatTime": long_ago}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": IMPOSTOR, "labels": healthy["metadata"]["labels"]},
        "spec": {"providerID": provider},
        "status": {**healthy["status"], "nodeInfo": info, "conditions": [condition]},
    }
    await system.client.create(NODES.path(), node)


@pytest.mark.parametrize("copied", IDENTITIES)
async def test_a_node_that_copies_a_healthy_ones_identity_is_told_of_and_nothing_is_switched_off(
    copied: str, system: System
) -> None:
    victim = min(system.cluster.nodes)
    await register(system, victim, copied)
    words = f"the same {IDENTITIES[copied]} "

    async def both_are_told() -> bool:
        told = [await events_about(system, "Node", name) for name in (victim, IMPOSTOR)]
        return all(any(each["reason"] == "IdentityContested" and words in each["message"] for each in some) for some in told)

    try:
        await system.until(both_are_told, "an Event on both names them", seconds=20)
        await asyncio.sleep(LONG_ENOUGH)
        assert not await is_open(system, IMPOSTOR)
        for name in system.cluster.nodes:
            assert commands(system, name) == []
        answer = await explained(system, IMPOSTOR)
        assert victim in str(answer)
        assert words in str(answer)

        # Nor where a person asks for it by name: he has to say which of the two is that machine.
        if copied == "providerID":
            asked_for = await system.warden.fence(system.cluster_name, IMPOSTOR, reason="it is silent", requester="mallory")
            result = await asyncio.wait_for(asked_for.result(), 30)
            assert (result.outcome, words in result.message) == (Outcome.RELEASED, True)
            assert commands(system, victim) == []
    finally:
        await system.client.delete(NODES.path(IMPOSTOR))


async def test_once_the_copy_is_gone_the_machine_is_fenced_as_any_other(system: System) -> None:
    """Last, as it breaks one."""
    victim = system.node_of_pod("demo/database-0")
    await register(system, victim, "providerID")
    before = system.break_node(victim)

    async def is_told() -> bool:
        return any(
            each["reason"] == "FencingSkipped" or each["reason"] == "IdentityContested"
            for each in await events_about(system, "Node", victim)
        )

    await system.until(is_told, "it is told of the victim", seconds=20)
    await asyncio.sleep(LONG_ENOUGH)
    assert commands(system, victim) == []
    await system.client.delete(NODES.path(IMPOSTOR))
    result = await system.ended(before)
    assert [each.command for each in commands(system, victim)] == ["off", "on"]
    assert await system.judge(before, result) == []
