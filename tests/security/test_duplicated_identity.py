"""A kubelet chooses its providerID when it registers: whoever copies another's must not have that one switched off (S39).

The attacker has what a kubelet has: he registers a Node and writes its status. Workers run under the shipped rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from policy.episode.messages import Outcome
from simulator.bmc.bmc import start_bmc
from simulator.platforms.ipmi import Ipmi
from simulator.resources import NODES
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import CONSEQUENCES, acts, commands, events_about, is_open, parked
from tests.system.test_api_restarts import under_shipped_rights
from tests.system.test_storm import explained

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

IMPOSTOR = "impostor"
IDENTITIES = {"providerID": "providerID", "systemUUID": "system UUID", "bootID": "boot id"}
LONG_ENOUGH = 6.0
"""The check waits a second; then permit, look and off would take less than two."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4, zones=2, platform="gce") as running:
        await under_shipped_rights(running)
        await running.start_worker()
        await running.apply_policy(check={"minHealthy": 1})
        await running.start_scanner()
        yield running


async def register(system: System, victim: str, copied: str, *, impostor: str = IMPOSTOR) -> None:
    """A Node of the attacker's own that has fallen silent, with one thing that is another's."""
    healthy = await system.live_node(victim)
    info = {**healthy["status"]["nodeInfo"], "systemUUID": f"of-{impostor}", "bootID": f"boot-of-{impostor}"}
    provider = f"sim:///{impostor}"
    if copied == "providerID":
        provider = healthy["spec"]["providerID"]
    else:
        info[copied] = healthy["status"]["nodeInfo"][copied]
    long_ago = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": long_ago, "lastHeartbeatTime": long_ago}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": impostor, "labels": healthy["metadata"]["labels"]},
        "spec": {"providerID": provider},
        "status": {**healthy["status"], "nodeInfo": info, "conditions": [condition]},
    }
    await system.client.create(NODES.path(), node)


async def test_nodes_that_copy_healthy_ones_identity_are_told_of_and_nothing_is_switched_off(system: System) -> None:
    """Each copies something else of another victim, all at once."""
    victims = dict(zip(IDENTITIES, sorted(system.cluster.nodes), strict=False))
    words = {copied: f"the same {name} " for copied, name in IDENTITIES.items()}
    for copied, victim in victims.items():
        await register(system, victim, copied, impostor=f"{IMPOSTOR}-{victim}")

    async def all_are_told() -> bool:
        for copied, victim in victims.items():
            for name in (victim, f"{IMPOSTOR}-{victim}"):
                told = [each for each in await events_about(system, "Node", name) if each["reason"] == "IdentityContested"]
                if not any(words[copied] in each["message"] for each in told):
                    return False
        return True

    try:
        await system.until(all_are_told, "an Event on both names them", seconds=20)
        await asyncio.sleep(LONG_ENOUGH)
        assert [name for name in system.cluster.nodes if commands(system, name)] == []
        for copied, victim in victims.items():
            assert not await is_open(system, f"{IMPOSTOR}-{victim}")
            answer = str(await explained(system, f"{IMPOSTOR}-{victim}"))
            assert (victim in answer, words[copied] in answer) == (True, True), answer

        # Nor where a person asks for it by name: he has to say which of the two is that machine.
        victim, reason = victims["providerID"], "it is silent"
        asked_for = await system.warden.fence(system.cluster_name, f"{IMPOSTOR}-{victim}", reason=reason, requester="mallory")
        result = await asyncio.wait_for(asked_for.result(), 30)
        assert (result.outcome, words["providerID"] in result.message) == (Outcome.RELEASED, True)
        assert commands(system, victim) == []
    finally:
        for victim in victims.values():
            await system.client.delete(NODES.path(f"{IMPOSTOR}-{victim}"))


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


# The address of a BMC is given to another machine's: neither is switched off, and what it says frees nothing (S39).


@pytest.fixture
async def bare_metal(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4, zones=2, platform="ipmi") as running:
        await running.start_worker()
        await running.apply_policy(check={"minHealthy": 1})
        await running.start_scanner()
        yield running


async def test_the_bmc_of_another_machine_at_the_old_address_is_not_commanded(bare_metal: System, tmp_path: Path) -> None:
    victim = bare_metal.node_of_pod("demo/database-0")
    healthy = next(name for name in bare_metal.cluster.nodes if name != victim)
    platform = bare_metal.cluster.platform
    assert isinstance(platform, Ipmi)
    old = platform.bmcs[victim]
    await old.stop()
    moved = await start_bmc(
        bare_metal.cluster.chassis.url,
        healthy,
        platform.username,
        platform.password,
        state_dir=tmp_path,
        system_uuid=UUID((await bare_metal.live_node(healthy))["status"]["nodeInfo"]["systemUUID"]),
        port=old.port,
    )
    try:
        bare_metal.break_node(victim)
        found = await parked(bare_metal, victim)
    finally:
        await moved.stop()
    assert "is not the device of" in found.problem, found.problem
    assert commands(bare_metal, healthy) == commands(bare_metal, victim) == []
    assert not CONSEQUENCES & set(await acts(bare_metal, victim))
