"""A server that stops, comes back, and may come back with an older memory."""

from __future__ import annotations

from simulator.api.server import ApiServer
from tests.simulator.api.client import CONFIG_MAPS, Client, config_map


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
