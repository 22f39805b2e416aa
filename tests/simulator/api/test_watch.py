"""Watches: nothing missed, nothing twice, in order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api.server import ApiServer
from simulator.api.storage.kinds import Catalogue
from simulator.api.storage.selectors import select
from simulator.api.storage.store import Store
from simulator.api.wire.views import PlainView
from simulator.api.wire.watch import Watch, WatchRequest
from simulator.api.writes.registry import Registry
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


# Properties of the store: any list plus the watch that follows it is the truth, whatever happened in between.

STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "label", "touch", "delete"]), st.sampled_from("abc"), st.sampled_from("xy")),
    min_size=1,
    max_size=30,
)


class _World:
    def __init__(self) -> None:
        self.store, self.catalogue = Store(), Catalogue()
        self.registry = Registry(self.store, self.catalogue, random.Random(0))
        self.resource = self.catalogue.named("configmaps")
        self.registry.create(self.catalogue.named("namespaces"), "", {"metadata": {"name": "default"}})

    def step(self, act: str, name: str, label: str) -> None:
        exists = self.store.get(self.resource.storage, "default", name) is not None
        if act == "create" and not exists:
            self.registry.create(self.resource, "default", {"metadata": {"name": name, "labels": {"l": label}}})
        elif act in ("label", "touch") and exists:
            field = ("metadata", {"labels": {"l": label}}) if act == "label" else ("data", {"t": label})

            def change(document: dict[str, Any]) -> dict[str, Any]:
                return {**document, field[0]: {**document.get(field[0], {}), **field[1]}}

            self.registry.patch(self.resource, "default", name, change)
        elif act == "delete" and exists:
            self.registry.delete(self.resource, "default", name)

    def state(self, label: str) -> dict[str, str]:
        """Name and version of everything with this label; all where there is none."""
        documents = self.store.documents("configmaps", namespace="default")
        chosen = [each["metadata"] for each in documents if not label or each["metadata"]["labels"]["l"] == label]
        return {metadata["name"]: metadata["resourceVersion"] for metadata in chosen}


@settings(deadline=None)
@given(STEPS, st.integers(0, 29), st.sampled_from(["", "x", "y"]))
def test_a_list_and_its_watch_add_up_to_the_present(steps: list[tuple[str, str, str]], at: int, label: str) -> None:
    """S18: a cache that follows list and watch is never wrong, from whatever moment it begins."""

    async def run() -> None:
        world = _World()
        for step in steps[:at]:
            world.step(*step)
        copy, revision = world.state(label), world.store.revision
        for step in steps[at : at + 5]:
            world.step(*step)
        collection = world.store.collection(world.resource.storage)
        request = WatchRequest(
            resource=world.resource,
            namespace="default",
            selection=select(world.resource, f"l={label}" if label else "", ""),
            revision=revision,
            initial_events=False,
            initial_events_end=False,
            bookmarks=False,
            timeout_seconds=0.0,
        )
        watch = Watch(world.store, collection, request, PlainView(world.resource, world.resource), bookmark_seconds=60)
        watch.begin(list)
        for step in steps[at + 5 :]:
            world.step(*step)
        sent: list[bytes] = []

        async def write(chunk: bytes) -> None:
            sent.append(chunk)

        await watch.stream(write)
        seen = revision
        for line in b"".join(sent).splitlines():
            event = orjson.loads(line)
            metadata = event["object"]["metadata"]
            assert int(metadata["resourceVersion"]) > seen
            seen = int(metadata["resourceVersion"])
            if event["type"] == "DELETED":
                del copy[metadata["name"]]
            else:
                assert (event["type"] == "ADDED") is (metadata["name"] not in copy)
                copy[metadata["name"]] = metadata["resourceVersion"]
        assert copy == world.state(label)

    asyncio.run(run())
