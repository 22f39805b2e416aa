"""The copy of a collection: through cuts, silence, expiry, outages and a server that went back in time (S18)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer as TestServer

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import CAPI_MACHINE_HEALTH_CHECKS, NODE_HEALTH_CHECKS, in_version
from activities.cluster.api.paths import NODES as NODE_KIND
from activities.cluster.objects.decoding import NODE_DECODING, OBJECT_DECODING
from activities.cluster.watch.reflector import Reflector, WatchLimits
from policy.objects.nodes import NodeView
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, definition, node, until

pytestmark = pytest.mark.timeout(10)

QUICK = WatchLimits(silence=0.3, first_pause=0.01, longest_pause=0.1, absence=0.05, logged_after=0.2)


class Copy:
    """What a listener was told."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.told: list[tuple[str, bool]] = []

    def __call__(self, key: str, value: NodeView | None) -> None:
        self.told.append((key, value is not None))
        if value is None:
            self.nodes.pop(key)
        else:
            self.nodes[key] = value


@pytest.fixture
def copy() -> Copy:
    return Copy()


@pytest.fixture
async def reflector(connection: ClusterConnection, copy: Copy) -> AsyncIterator[Reflector[NodeView]]:
    reflector = Reflector(connection, NODE_KIND, NODE_DECODING, on_change=copy, limits=QUICK)
    yield reflector
    await reflector.stop()


async def streams(reflector: Reflector[NodeView]) -> None:
    reflector.start()
    await until(lambda: reflector.streaming)


async def test_a_list_in_pages_then_every_change(
    connection: ClusterConnection, copy: Copy, api: ApiServer, person: ApiClient
) -> None:
    for number in range(5):
        await person.create(NODES, node(f"node-{number}"))
    reflector = Reflector(connection, NODE_KIND, NODE_DECODING, on_change=copy, limits=WatchLimits(page_size=2))
    await streams(reflector)
    assert sorted(copy.nodes) == [f"node-{number}" for number in range(5)]
    assert reflector.synced
    await person.create(NODES, node("node-9"))
    await person.patch(f"{NODES}/node-0", {"spec": {"unschedulable": True}})
    await person.delete(f"{NODES}/node-1")
    await until(lambda: "node-1" not in copy.nodes)
    assert copy.nodes["node-0"].unschedulable
    assert copy.nodes["node-9"].boot_id == "boot-node-9"
    assert reflector.keys == set(copy.nodes)
    assert (reflector.lists, api.requests.total("list", "nodes")) == (1, 3)
    await reflector.stop()


async def test_a_cut_watch_resumes_without_a_list_and_misses_nothing(
    reflector: Reflector[NodeView], copy: Copy, api: ApiServer, person: ApiClient
) -> None:
    await streams(reflector)
    for number in range(5):
        assert api.cut_watches(NODES) == 1
        await person.create(NODES, node(f"node-{number}"))
        await until(lambda: f"node-{number}" in copy.nodes)  # noqa: B023 - awaited within the turn
        await until(lambda: reflector.streaming and api.open_watches)
    assert reflector.lists == 1
    assert reflector.problem == ""


async def test_a_half_open_watch_is_noticed_by_its_silence(
    reflector: Reflector[NodeView], copy: Copy, api: ApiServer, person: ApiClient
) -> None:
    await streams(reflector)
    api.faults.add(Fault(accident=Accident.HALF_OPEN, count=1))
    await person.create(NODES, node("node-1"))
    assert not copy.nodes
    await until(lambda: "node-1" in copy.nodes)
    assert reflector.lists == 1


async def test_bookmarks_keep_a_quiet_watch_alive(connection: ClusterConnection, copy: Copy) -> None:
    async with ApiServer(bookmark_interval=timedelta(milliseconds=50)) as quiet:
        quiet_connection = ClusterConnection.to(quiet.url, token="abc")
        reflector = Reflector(quiet_connection, NODE_KIND, NODE_DECODING, on_change=copy, limits=QUICK)
        reflector.start()
        await until(lambda: reflector.streaming)
        first = reflector.resource_version
        async with ApiClient(ApiAddress(url=quiet.url, token="abc")) as somebody:
            await somebody.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        await until(lambda: reflector.resource_version != first)
        assert reflector.newest_change == 0
        assert reflector.silent_for() < QUICK.silence
        opened = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - opened > 2 * QUICK.silence)
        assert quiet.requests.total("watch", "nodes") <= 1
        assert reflector.streaming
        await reflector.stop()
        await quiet_connection.close()


async def test_an_expired_version_is_listed_again_and_tells_what_vanished(
    reflector: Reflector[NodeView], copy: Copy, api: ApiServer, person: ApiClient
) -> None:
    for name in ("node-1", "node-2"):
        await person.create(NODES, node(name))
    await streams(reflector)
    fault = api.faults.add(Fault(accident=Accident.STATUS, verb="watch", status=503))
    api.cut_watches()
    await person.delete(f"{NODES}/node-1")
    await person.create(NODES, node("node-3"))
    api.store.compact()
    api.faults.remove(fault)
    await until(lambda: sorted(copy.nodes) == ["node-2", "node-3"])
    assert ("node-1", False) in copy.told
    assert reflector.lists == 2


async def test_a_server_restored_from_an_older_backup_is_listed_again(
    reflector: Reflector[NodeView], copy: Copy, api: ApiServer, person: ApiClient
) -> None:
    """The resourceVersions that we know are given out again for other changes; a resumed watch would never tell."""
    await person.create(NODES, node("node-1"))
    backup = api.store.snapshot()
    await person.create(NODES, node("node-2"))
    await person.patch(f"{NODES}/node-1", {"spec": {"unschedulable": True}})
    await streams(reflector)
    newest = reflector.newest_change
    await api.stop()
    api.store.restore(backup)
    await api.start()
    await until(lambda: sorted(copy.nodes) == ["node-1"])
    assert not copy.nodes["node-1"].unschedulable
    assert reflector.newest_change < newest
    await until(lambda: reflector.streaming)
    assert reflector.synced


async def test_a_kind_that_comes_later_is_empty_until_then(
    connection: ClusterConnection, api: ApiServer, person: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told: dict[str, object] = {}
    limits = WatchLimits(first_pause=0.01, absence=30.0, logged_after=0.0, vanished=0.1)
    reflector = Reflector(
        connection, NODE_HEALTH_CHECKS, OBJECT_DECODING, on_change=told.__setitem__, optional=True, limits=limits
    )
    reflector.start()
    await until(lambda: reflector.absent)
    assert reflector.synced
    assert reflector.problem == ""
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check())
    reflector.wake()
    await until(lambda: told.get("workers"))
    assert not reflector.absent
    assert caplog.records == [], "a kind that nobody has installed is no news"
    await person.delete(f"{DEFINITIONS}/nodehealthchecks.remediation.medik8s.io")
    await until(lambda: told["workers"] is None)
    api.cut_watches(CHECKS)  # a real server ends the watches of a kind that is gone
    await until(lambda: reflector.absent)
    await reflector.stop()


class TwoVersions:
    """An API server that serves one health check of Cluster API, in these versions."""

    def __init__(self, *versions: str) -> None:
        self.served = set(versions)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        version = request.path.split("/")[3]
        metadata = {"name": "workers", "namespace": "clusters", "resourceVersion": "4"}
        item = {"apiVersion": f"cluster.x-k8s.io/{version}", "kind": "MachineHealthCheck", "metadata": metadata}
        if version not in self.served:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": [item]})
        response = web.StreamResponse()
        await response.prepare(request)
        while version in self.served:
            await asyncio.sleep(0.01)
        return response


class CheckCopy:
    """A reflector of Cluster API's health checks, and what it tells: the version of each, None once it is gone."""

    def __init__(self, server: TestServer) -> None:
        self.told: list[str | None] = []
        self.connection = ClusterConnection.to(str(server.make_url("")))
        self.reflector = Reflector(
            self.connection,
            CAPI_MACHINE_HEALTH_CHECKS,
            OBJECT_DECODING,
            on_change=lambda _, found: self.told.append(found and found["apiVersion"].rpartition("/")[2]),
            optional=True,
            alternatives=(in_version(CAPI_MACHINE_HEALTH_CHECKS, "v1beta1"),),
            # Long pauses, so that a gap between two versions would be seen.
            limits=WatchLimits(first_pause=0.3, longest_pause=0.3, absence=0.1, vanished=300.0),
        )

    async def __aenter__(self) -> CheckCopy:
        self.reflector.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reflector.stop()
        await self.connection.close()


async def test_a_served_version_that_goes_makes_no_object_vanish_on_the_way_to_the_next() -> None:
    """S17, S18: a check that is gone for a moment takes its open circuit breaker with it, and others act in that gap."""
    versions = TwoVersions("v1beta1")
    async with TestServer(versions) as server, CheckCopy(server) as copy:
        await until(lambda: copy.reflector.streaming and copy.told == ["v1beta1"])
        versions.served = {"v1beta2"}
        await until(lambda: copy.reflector.streaming and "v1beta2" in copy.told)
        versions.served = {"v1beta1"}
        await until(lambda: copy.reflector.streaming and copy.told[-1] == "v1beta1")
    assert copy.told == ["v1beta1", "v1beta2", "v1beta1"]


async def test_a_kind_that_had_objects_and_is_unknown_is_a_fault_of_the_view_until_that_lasts() -> None:
    """S18: between two served versions, or behind a server that lost its definitions, nothing says that the checks are gone."""
    versions = TwoVersions("v1beta1")
    async with TestServer(versions) as server, CheckCopy(server) as copy:
        await until(lambda: copy.reflector.streaming)
        versions.served = set()
        await until(lambda: "taken for gone once that has lasted 300 s" in copy.reflector.problem)
        assert not copy.reflector.streaming
        assert not copy.reflector.absent
        versions.served = {"v1beta2"}
        await until(lambda: copy.reflector.streaming)
        assert copy.reflector.problem == ""
    assert copy.told == ["v1beta1", "v1beta2"]


async def test_an_outage_is_bounded_in_attempts_and_log_lines(
    reflector: Reflector[NodeView], copy: Copy, api: ApiServer, person: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await streams(reflector)
    fault = api.faults.add(Fault(accident=Accident.REFUSE, path=NODES, user_agent="nodewarden/"))
    caplog.clear()
    api.cut_watches()
    await until(lambda: reflector.silent_for() > 1.0)
    assert 5 <= api.faults.hits(fault) <= 40
    assert reflector.problem
    assert not reflector.streaming
    assert reflector.synced, "what was known is still the best that is known; its age says the rest"
    api.faults.clear()
    await person.create(NODES, node("node-1"))
    await until(lambda: "node-1" in copy.nodes)
    await until(lambda: reflector.problem == "")
    assert [record.levelname for record in caplog.records if record.name.startswith("activities")] == ["WARNING", "INFO"]
    assert reflector.lists == 2, "after so long an absence a list is worth more than a resumed watch"


@pytest.mark.timeout(20)
async def test_a_kind_that_is_not_served_is_asked_for_again_soon_after_an_outage_and_rarely_otherwise() -> None:
    """S18: until it has been answered nobody knows whether the kind has come, and nothing is begun."""
    loop, away, tries = asyncio.get_running_loop(), False, list[float]()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        tries.append(loop.time())
        if away and request.transport is not None:
            request.transport.abort()
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)

    async def pass_by(seconds: float) -> int:
        before, end = len(tries), loop.time() + seconds
        await until(lambda: loop.time() > end, seconds=seconds + 1)
        return len(tries) - before

    limits = WatchLimits(first_pause=0.01, longest_pause=0.2, absence=6.0)
    async with TestServer(answer) as server, ClusterConnection.to(str(server.make_url(""))) as connection:
        reflector = Reflector(
            connection, NODE_HEALTH_CHECKS, OBJECT_DECODING, on_change=lambda *_: None, optional=True, limits=limits
        )
        reflector.start()
        await until(lambda: reflector.absent)
        away = True
        await until(lambda: reflector.problem, seconds=8)
        assert 15 <= await pass_by(4) <= 50, "each pause is 0.1 to 0.2 s"
        away, back = False, loop.time()
        await until(lambda: not reflector.problem, seconds=8)
        assert (loop.time() - back < 1, reflector.streaming) == (True, True)
        assert await pass_by(12) <= 4, "it is not served, and nothing says that it has come"
        await reflector.stop()


async def test_a_server_that_names_when_to_come_again_is_not_asked_before(
    reflector: Reflector[NodeView], api: ApiServer, connection: ClusterConnection
) -> None:
    """Whatever makes us hope that it would answer now."""
    loop = asyncio.get_running_loop()
    busy = api.faults.add(Fault(accident=Accident.STATUS, status=429, verb="list", path=NODES, retry_after=2))
    reflector.start()
    await until(lambda: reflector.problem)
    began = loop.time()
    while loop.time() - began < 1.5:
        reflector.retry(connection)
        await asyncio.sleep(0.1)
    assert api.faults.hits(busy) == 1
    await until(lambda: api.faults.hits(busy) == 2)


async def test_a_server_that_hangs_up_at_once_is_not_asked_in_a_tight_loop(copy: Copy) -> None:
    watches = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal watches
        watches += "watch" in request.query
        if "watch" in request.query:
            return web.Response(body=b"")
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})

    async with TestServer(answer) as server, ClusterConnection.to(str(server.make_url("/"))) as connection:
        reflector = Reflector(connection, NODE_KIND, NODE_DECODING, on_change=copy, limits=QUICK)
        reflector.start()
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - began > 0.6)
        assert 5 <= watches <= 25
        await reflector.stop()


async def test_an_event_of_a_version_before_ours_is_of_another_history_and_all_is_listed_again(copy: Copy) -> None:
    """S18: a server that was restored while we watched it goes on where its backup ended."""
    lists = iter([("50", "node-1"), ("21", "node-3")])
    event = {"type": "ADDED", "object": node("node-2") | {"metadata": {"name": "node-2", "resourceVersion": "20"}}}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            version, name = next(lists)
            return web.json_response({"metadata": {"resourceVersion": version}, "items": [node(name)]})
        response = web.StreamResponse()
        await response.prepare(request)
        if request.query["resourceVersion"] == "50":
            await response.write(json.dumps(event).encode() + b"\n")
        await asyncio.sleep(60)
        return response

    async with TestServer(answer) as server, ClusterConnection.to(str(server.make_url("/"))) as connection:
        reflector = Reflector(connection, NODE_KIND, NODE_DECODING, on_change=copy, limits=replace(QUICK, silence=60.0))
        reflector.start()
        await until(lambda: reflector.lists == 2)
        assert (set(copy.nodes), ("node-2", True) in copy.told) == ({"node-3"}, False)
        await reflector.stop()


async def test_a_server_that_waits_for_a_version_it_has_lost_is_listed_again(copy: Copy) -> None:
    """A restored server may take a watch from a version still to come, and leave out every change up to there."""
    versions, served = iter(["50", "20", "20"]), {"node-1"}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(60)
            return response
        items = [node(name) for name in served]
        return web.json_response({"metadata": {"resourceVersion": next(versions)}, "items": items})

    async with TestServer(answer) as server, ClusterConnection.to(str(server.make_url("/"))) as connection:
        reflector = Reflector(connection, NODE_KIND, NODE_DECODING, on_change=copy, limits=QUICK)
        reflector.start()
        await until(lambda: "node-1" in copy.nodes)
        served.clear()
        await until(lambda: not copy.nodes)
        assert reflector.resource_version == "20"
        assert reflector.lists == 2
        await reflector.stop()


async def test_refused_access_is_a_problem_not_an_empty_collection(
    reflector: Reflector[NodeView], copy: Copy, api: ApiServer
) -> None:
    api.faults.add(Fault(accident=Accident.STATUS, status=403, path=NODES))
    reflector.start()
    await until(lambda: reflector.problem)
    assert "403" in reflector.problem
    assert not reflector.synced


async def test_a_mistake_in_a_listener_shows_as_a_problem_and_heals(
    connection: ClusterConnection, api: ApiServer, person: ApiClient
) -> None:
    broken = True
    seen: list[str] = []

    def listener(key: str, value: NodeView | None) -> None:
        if broken:
            raise RuntimeError("a defect")
        seen.append(key)

    await person.create(NODES, node("node-1"))
    reflector = Reflector(connection, NODE_KIND, NODE_DECODING, on_change=listener, limits=QUICK)
    reflector.start()
    await until(lambda: "a defect" in reflector.problem)
    assert not reflector.synced
    broken = False
    await until(lambda: reflector.streaming)
    assert seen == ["node-1"]
    assert reflector.problem == ""
    await reflector.stop()
