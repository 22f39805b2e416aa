"""The server alone, as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.api.server import ApiServer
from tests.simulator.api.client import CONFIG_MAPS, NODES, Client, config_map


@pytest.mark.system
async def test_it_says_where_it_listens_and_ends_on_a_signal(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "simulator.api",
        "--kubeconfig-out",
        str(kubeconfig),
        "--token",
        "secret=admin",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            told = (await process.stdout.readline()).decode().split()
        url = next(word for word in told if word.startswith("http://"))
        secure = next(word for word in told if word.startswith("https://"))
        assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == secure
        async with aiohttp.ClientSession() as session:
            assert (await Client(url, session, "secret").get(NODES)).status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0


# A server that stops, comes back, and may come back with an older memory.


async def test_a_restored_backup_is_older_than_what_clients_know(api: ApiServer, client: Client) -> None:
    """S18: such a server must not be mistaken for one whose objects were deleted."""
    await client.made(CONFIG_MAPS, config_map("a"))
    backup = api.store.snapshot()
    since = (await client.made(CONFIG_MAPS, config_map("b")))["metadata"]["resourceVersion"]
    api.store.restore(backup)
    assert (await client.get(CONFIG_MAPS)).names == ["a"]
    assert (await client.get(f"{CONFIG_MAPS}?resourceVersion={since}")).status == 504
    async with client.watch(CONFIG_MAPS, f"&resourceVersion={since}&allowWatchBookmarks=true") as events:
        again = (await client.made(CONFIG_MAPS, config_map("c")))["metadata"]["resourceVersion"]
        assert again == since
        await client.made(CONFIG_MAPS, config_map("d"))
        told = []
        while not told or told[-1]["type"] == "BOOKMARK":
            told.append(await events.next())
        # The number given out twice is not told to who believes to have seen it; nor is any bookmark below it.
        assert told[-1]["object"]["metadata"]["name"] == "d"
        assert all(int(event["object"]["metadata"]["resourceVersion"]) >= int(since) for event in told)
