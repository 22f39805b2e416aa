"""Properties of the store: any list plus the watch that follows it is the truth, whatever happened in between."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api.storage.kinds import Catalogue
from simulator.api.storage.selectors import select
from simulator.api.storage.store import Store
from simulator.api.wire.views import PlainView
from simulator.api.wire.watch import Watch, WatchRequest
from simulator.api.writes.registry import Registry

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
