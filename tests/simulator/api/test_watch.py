"""Watches: nothing missed, nothing twice, in order."""

from __future__ import annotations

import pytest

from simulator.api.server import ApiServer
from tests.simulator.api.client import CONFIG_MAPS, PODS, Client, config_map, pod


async def version(client: Client, path: str = CONFIG_MAPS) -> str:
    return (await client.get(f"{path}?limit=1")).version


@pytest.mark.parametrize("query", ["", "&resourceVersion=0", "&resourceVersion="])
async def test_a_watch_from_anywhere_begins_with_the_present(client: Client, query: str) -> None:
    await client.made(CONFIG_MAPS, config_map("b"))
    await client.made(CONFIG_MAPS, config_map("a"))
    async with client.watch(CONFIG_MAPS, query) as events:
        assert await events.told(2) == [("ADDED", "a"), ("ADDED", "b")]
        await client.delete(f"{CONFIG_MAPS}/a")
        assert await events.told(1) == [("DELETED", "a")]


async def test_a_streamed_list_ends_with_its_bookmark(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("a"))
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with client.watch(CONFIG_MAPS, query) as events:
        assert await events.told(1) == [("ADDED", "a")]
        end = await events.next()
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert end["object"]["metadata"]["resourceVersion"] == await version(client)


async def test_the_log_is_bounded(client: Client) -> None:
    small = ApiServer(history=5)
    async with small:
        here = Client(small.url, client.session, "abc")
        since = await version(here)
        for number in range(7):
            await here.made(CONFIG_MAPS, config_map(f"a{number}"))
        async with here.watch(CONFIG_MAPS, f"&resourceVersion={since}") as events:
            assert (await events.next())["object"]["code"] == 410


async def test_field_selectors_names_and_namespaces_narrow_a_watch(client: Client) -> None:
    since = await version(client, PODS)
    query = f"&resourceVersion={since}"
    async with (
        client.watch("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", query) as on_node,
        client.watch(f"{PODS}/p3", query) as of_one,
        client.watch("/api/v1/namespaces/kube-system/pods", query) as elsewhere,
    ):
        for name, on in (("p1", "n1"), ("p2", "n2"), ("p3", "n2")):
            await client.made(PODS, pod(name, on))
        await client.made("/api/v1/namespaces/kube-system/pods", pod("p4", "n1"))
        assert await on_node.told(2) == [("ADDED", "p1"), ("ADDED", "p4")]
        assert await of_one.told(1) == [("ADDED", "p3")]
        assert await elsewhere.told(1) == [("ADDED", "p4")]
