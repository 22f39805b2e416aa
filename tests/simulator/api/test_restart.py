"""A server that stops, comes back, and may come back with an older memory."""

from __future__ import annotations

import aiohttp
import pytest

from simulator.api.server import ApiServer
from tests.simulator.api.client import CONFIG_MAPS, DEFINITIONS, GADGETS, PODS, Client, config_map, definition, gadget, pod


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


async def test_a_restore_takes_definitions_and_indexes_along(api: ApiServer, client: Client) -> None:
    empty = api.store.snapshot()
    await client.made(DEFINITIONS, definition())
    await client.made(GADGETS, gadget("g"))
    await client.made(PODS, pod("p1", "n1"))
    full = api.store.snapshot()
    async with client.watch(PODS) as events:
        await events.told(1)
        api.store.restore(empty)
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await events.next()
    assert (await client.get(GADGETS)).status == 404
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName=n1")).names == []
    api.store.restore(full)
    assert (await client.get(GADGETS)).names == ["g"]
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName=n1")).names == ["p1"]
