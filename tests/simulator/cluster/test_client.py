"""The raw client, its watch and the cache: what survives refused, cut and expired connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, Change, ChangeType, list_then_watch
from simulator.informer import Informer
from simulator.resources import NAMESPACES, NODES

pytestmark = pytest.mark.timeout(20)

PATH = NAMESPACES.path()


def named(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(tokens={"abc": "admin"}) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAddress(url=server.url, token="abc"), user_agent="the-test/1") as opened:
        yield opened


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def beside(endless: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    running = asyncio.create_task(endless)
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def follow(client: ApiClient, changes: list[Change], *, watch_seconds: int = 60) -> None:
    async for change in list_then_watch(client, PATH, watch_seconds=watch_seconds):
        changes.append(change)  # noqa: PERF401 - it has no end, and is looked at while it grows


async def test_a_watch_survives_being_cut_and_told_that_it_is_too_old(server: ApiServer, client: ApiClient) -> None:
    changes: list[Change] = []

    def names(kind: ChangeType) -> set[str]:
        return {each["metadata"]["name"] for change in changes if change.type is kind for each in change.objects}

    async with beside(follow(client, changes)):
        await until(lambda: bool(changes) and server.open_watches > 0)
        await client.create(PATH, named("first"))
        await until(lambda: "first" in names(ChangeType.ADDED))
        assert server.cut_watches() == 1
        await client.create(PATH, named("second"))
        await until(lambda: "second" in names(ChangeType.REPLACED) | names(ChangeType.ADDED))
        expired = server.faults.add(Fault(accident=Accident.EXPIRE, verb="watch", count=1))
        server.cut_watches()
        await until(lambda: server.faults.hits(expired) == 1)
        await until(lambda: server.open_watches > 0)
        await client.create(PATH, named("third"))
        await until(lambda: "third" in names(ChangeType.ADDED))


async def test_a_cache_forgets_what_was_deleted_while_it_could_not_see(server: ApiServer, client: ApiClient) -> None:
    await client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    informer = Informer(client, NODES)
    seen: list[tuple[bool, bool]] = []
    informer.subscribe(lambda before, after: seen.append((before is not None, after is not None)))
    async with beside(informer.run()):
        await informer.synced.wait()
        assert informer.objects["a"]["kind"] == "Node"
        # Both the list and the watch are away for a while; meanwhile the node goes.
        blind = [
            server.faults.add(Fault(accident=Accident.STATUS, status=503, verb=verb, path="/nodes")) for verb in ("watch", "list")
        ]
        expire = server.faults.add(Fault(accident=Accident.EXPIRE, verb="watch", path="/nodes"))
        server.cut_watches()
        await client.delete(f"{NODES.path()}/a")
        for fault in blind:
            server.faults.remove(fault)
        await until(lambda: "a" not in informer.objects)
        server.faults.remove(expire)
        assert seen[-1] == (True, False)


async def test_an_own_write_is_seen_at_once_and_an_older_answer_never_wins(server: ApiServer, client: ApiClient) -> None:
    informer = Informer(client, NODES)
    async with beside(informer.run()):
        await informer.synced.wait()
        old = await client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
        informer.remember(old)
        assert "a" in informer.objects
        new = await client.patch(NODES.path("a"), {"metadata": {"labels": {"a": "new"}}})
        informer.remember(new)
        informer.remember(old)
        assert informer.objects["a"]["metadata"]["labels"]["a"] == "new"
        await client.delete(NODES.path("a"))
        await until(lambda: "a" not in informer.objects)
        informer.remember(new)
        assert "a" not in informer.objects, "a deleted object does not come back by a late answer"
