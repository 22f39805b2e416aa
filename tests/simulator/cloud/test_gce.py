"""The simulated Compute Engine: a machine follows its instance, an instance its machine, and nothing is carried out twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from simulator.cloud.gce import GceEndpoint

NODE = "/compute/v1/projects/p/zones/z/instances/node-1"


@pytest.fixture
async def cloud() -> AsyncIterator[GceEndpoint]:
    async with GceEndpoint(anonymous=True) as running:
        yield running


@pytest.fixture
async def http(cloud: GceEndpoint) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cloud.url) as session:
        yield session


async def status(http: aiohttp.ClientSession, path: str = NODE) -> str:
    async with http.get(path) as answer:
        return str((await answer.json()).get("status", answer.status))


async def command(http: aiohttp.ClientSession, verb: str, **query: str) -> tuple[int, dict[str, object]]:
    async with http.post(f"{NODE}/{verb}", params=query) as answer:
        return answer.status, await answer.json()


async def test_an_instance_follows_a_machine_that_lost_its_power_by_itself(
    cloud: GceEndpoint, http: aiohttp.ClientSession
) -> None:
    instance = cloud.add_instance("p", "z", "node-1")
    await instance.machine.set_power("off")
    assert await status(http) == "TERMINATED"
    await instance.machine.set_power("on")
    assert await status(http) == "RUNNING"


async def test_a_request_id_is_carried_out_once(cloud: GceEndpoint, http: aiohttp.ClientSession) -> None:
    instance = cloud.add_instance("p", "z", "node-1")
    _, first = await command(http, "reset", requestId="one")
    _, again = await command(http, "reset", requestId="one")
    _, other = await command(http, "reset", requestId="two")
    assert first["name"] == again["name"] != other["name"]
    async with asyncio.timeout(5):
        while len(instance.machine.log) < 2:
            await asyncio.sleep(0.005)
    assert [entry.command for entry in instance.machine.log] == ["reset", "reset"]
    assert await status(http, f"/compute/v1/projects/p/zones/z/operations/{first['name']}") == "DONE"
