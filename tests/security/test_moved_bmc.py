"""The address of a BMC is given to another machine's: neither is switched off, and what it says frees nothing (S39)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from simulator.bmc.bmc import start_bmc
from simulator.platforms.ipmi import Ipmi
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import CONSEQUENCES, acts, commands, parked

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4, zones=2, platform="ipmi") as running:
        await running.start_worker()
        await running.apply_policy(check={"minHealthy": 1})
        await running.start_scanner()
        yield running


async def test_the_bmc_of_another_machine_at_the_old_address_is_not_commanded(system: System, tmp_path: Path) -> None:
    victim = system.node_of_pod("demo/database-0")
    healthy = next(name for name in system.cluster.nodes if name != victim)
    platform = system.cluster.platform
    assert isinstance(platform, Ipmi)
    old = platform.bmcs[victim]
    await old.stop()
    moved = await start_bmc(
        system.cluster.chassis.url,
        healthy,
        platform.username,
        platform.password,
        state_dir=tmp_path,
        system_uuid=UUID((await system.live_node(healthy))["status"]["nodeInfo"]["systemUUID"]),
        port=old.port,
    )
    try:
        system.break_node(victim)
        found = await parked(system, victim)
    finally:
        await moved.stop()
    assert "is not the device of" in found.problem, found.problem
    assert commands(system, healthy) == commands(system, victim) == []
    assert not CONSEQUENCES & set(await acts(system, victim))
