"""All nodes on one page, machines that are kept, and fence devices: what each says first, and what it costs."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from activities.cluster.watch.offline import ClusterSnapshot
from policy.episode.messages import Phase
from policy.fence.device_check import (
    DeviceReport,
    DeviceRow,
    DeviceToCheck,
    NodeToCheck,
    Reachability,
    checked,
    report_of,
)
from policy.fence.plan import PowerDevice
from starter.errors import SilentError
from starter.handles.episodes import NodeEpisodes
from starter.handles.status import PreservedNodes
from starter.web import views as views_module
from starter.web.views import Shared, Views
from tests import report as told
from tests.starter.builders import episode, status
from tests.starter.test_web import CLUSTER, ScriptedWarden, text
from tests.starter.test_web import scripted as scripted  # noqa: PLC0414 - a fixture
from tests.starter.test_web_api import conforms
from tests.unlocked import unlocked
from tests.web.night import NOW, devices, preserved
from tests.web.objects import NightCluster

OF = f"/api/v1/clusters/{CLUSTER}"
FLEET = f"/c/{CLUSTER}/fleet"


@pytest.fixture
def cluster() -> NightCluster:
    return NightCluster(now=NOW)


@pytest.fixture
async def page(scripted: ScriptedWarden, cluster: NightCluster) -> AsyncIterator[aiohttp.ClientSession]:
    views = Views(scripted, (CLUSTER,), reading=cluster)  # type: ignore[arg-type]
    async with unlocked(views) as url, aiohttp.ClientSession(url) as session:
        yield session


async def asked(page: aiohttp.ClientSession, by: str = "pool") -> Any:
    async with page.get(f"{OF}/fleet", params={"by": by}) as answer:
        found = await answer.json()
        assert answer.status == 200, found
    conforms("/api/v1/clusters/{cluster}/fleet", found)
    return found


async def test_nodes_stand_in_their_zone_and_group_and_the_odd_ones_by_name(page: aiohttp.ClientSession) -> None:
    found = await asked(page)
    counts = {"unhealthy": 3, "soon": 1, "in-hand": 3, "cordoned": 1, "healthy": 16}
    assert (found["nodes"], found["counts"]) == (24, counts)
    groups = {(each["zone"], each["name"]): each for each in found["groups"]}
    gpu = groups["zone-b", "pool=gpu"]
    assert [(each["node"], each["state"]) for each in gpu["odd"]] == [("node-22", "unhealthy"), ("node-16", "soon")]
    assert [(each["state"], each["nodes"]) for each in gpu["cells"]] == [("soon", 1), ("unhealthy", 1)]
    by_rack = await asked(page, "rack")
    assert {each["name"] for each in by_rack["groups"]} == {f"rack=rack-{number}" for number in range(9)}
    assert {each["name"] for each in (await asked(page, "nosuch"))["groups"]} == {"nosuch="}


async def test_without_temporal_it_is_not_known_which_nodes_need_a_person(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S37: the nodes are read from the cluster, and shown."""
    scripted.answer = SilentError("Temporal is away")
    found = await asked(page)
    assert (found["nodes"], found["unread"][0]) == (24, "which nodes need a person is not known: Temporal is away")


async def test_a_cordoned_node_does_not_look_failed(page: aiohttp.ClientSession) -> None:
    """By its shape and its word, for whoever sees no colours; one that is sick, too, is both."""
    body = await text(page, FLEET)
    assert "16 of 24 nodes are healthy, 1 more is well and cordoned" in body
    well, sick = (re.search(rf"<li [^>]*><a [^>]*>{name}</a>.*?</li>", body, re.DOTALL) for name in ("node-20", "node-9"))
    assert well is not None
    assert sick is not None
    assert "◇" in well[0]
    assert "cordoned" in well[0]
    assert "■" not in well[0]
    assert "▶" in sick[0]
    assert "in-hand</span>, cordoned" in sick[0]


async def test_a_node_that_needs_a_person_is_not_in_hand(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: its mark is on the Node, but nothing goes on until a person answers; once one has, the same reading says in-hand."""
    monkeypatch.setattr(views_module, "FRESH", timedelta(0))
    waits = episode("node-9", phase=Phase.NEEDS_HUMAN, problem="off is not proven within 60 s")
    scripted.answer = dataclasses.replace(status(), episodes=(waits, episode("node-12", phase=Phase.NEEDS_HUMAN)))
    found = await asked(page)
    states = {each["node"]: (each["state"], each["said"]) for group in found["groups"] for each in group["odd"]}
    assert states["node-9"] == ("needs-a-person", "off is not proven within 60 s")
    assert (next(iter(found["counts"])), found["counts"]["needs-a-person"]) == ("needs-a-person", 2)
    (line,) = re.findall(r"<li [^>]*><a [^>]*>node-9</a>.*?</li>", await text(page, FLEET), re.DOTALL)
    assert "needs-a-person</span>, cordoned" in line
    assert "in-hand" not in line
    scripted.answer = dataclasses.replace(status(), episodes=(episode("node-9"),))
    assert (await asked(page))["counts"].get("needs-a-person") is None


async def test_what_can_not_group_and_what_can_not_be_read_is_said(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, cluster: NightCluster
) -> None:
    """S44: a page without nodes is not a cluster without nodes."""
    assert "by: expected pool or the key of a node label" in await text(page, f"{FLEET}?by=a%20b")
    async with page.get(f"{OF}/fleet?by=a%20b") as answer:
        assert answer.status == 422

    async def refuse(_: str) -> ClusterSnapshot:
        raise SilentError("the objects of the cluster prod can't be read from here: nodes is forbidden")

    views = Views(scripted, (CLUSTER,), reading=refuse)  # type: ignore[arg-type]
    async with unlocked(views) as url, aiohttp.ClientSession(url) as blind:
        assert "nodes is forbidden" in await text(blind, FLEET)
        body = await text(blind, f"/c/{CLUSTER}/nodes/node-2")
        assert "nodes is forbidden" in body
        assert "unhealthy" in body  # what the scanner says is shown all the same


async def test_five_thousand_nodes_are_read_once_for_all_and_answered_in_no_time(
    scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "READ_FRESH", views_module.LINGERS * 60)
    large = NightCluster(5000)
    views = Views(scripted, (CLUSTER,), reading=large)  # type: ignore[arg-type]
    took = []
    async with unlocked(views) as url, aiohttp.ClientSession(url) as page:
        await asyncio.gather(*(text(page, FLEET) for _ in range(5)))
        for _ in range(20):
            began = time.perf_counter()
            body = await text(page, FLEET)
            took.append(time.perf_counter() - began)
        assert "4992 of 5000 nodes are healthy" in body
        assert len(body) < 50_000
        assert large.asked == 1
    best = min(took)
    told.table("The fleet of 5,000 nodes", ("answers", "fastest"), [("20", f"{best * 1000:.1f} ms")])
    assert best < 0.05


async def test_without_a_reader_nothing_is_read(scripted: ScriptedWarden, cluster: NightCluster) -> None:
    """A reading is a whole cluster's: it is never begun by a clock, nor by pages that do not show it."""
    views = Views(scripted, (CLUSTER,), reading=cluster)  # type: ignore[arg-type]
    async with unlocked(views) as url, aiohttp.ClientSession(url) as page:
        for path in ("", "/checks", "/history", "/kept", "/devices"):
            await text(page, f"/c/{CLUSTER}{path}")
        assert cluster.asked == 0
        await text(page, FLEET)
        assert cluster.asked == 1


async def test_a_refusal_is_shared_as_an_answer_is() -> None:
    asked = 0

    async def refuse() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise SilentError("away")

    shared = Shared(refuse, fresh=views_module.LINGERS)
    found = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
    assert {str(each) for each in found} == {"away"}
    with pytest.raises(SilentError):
        await shared.get()
    assert asked == 1
    stale = Shared(refuse, fresh=views_module.FRESH * 0)
    for _ in range(2):
        with pytest.raises(SilentError):
            await stale.get()
    assert asked == 3


async def test_what_is_dear_is_asked_for_less_often() -> None:
    """A reading of a large cluster takes a while of a processor: pages may have a share of it, and no more."""
    asked = 0

    async def slow() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.05)
        return asked

    shared = Shared(slow, fresh=views_module.FRESH * 0, times_as_long=10)
    began = time.monotonic()
    while await shared.get() == 1:
        await asyncio.sleep(0.01)
    assert time.monotonic() - began >= 0.5
    assert asked == 2


async def test_a_reading_that_failed_is_tried_anew_within_a_second_however_long_it_took() -> None:
    """The API server was back for minutes, and a node's page said that it gave no connection in time."""
    asked = 0

    async def away_at_first() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.1)
        if asked == 1:
            raise SilentError("no connection in time")
        return asked

    shared = Shared(away_at_first, fresh=views_module.READ_FRESH, times_as_long=views_module.REST)
    began = time.monotonic()
    with pytest.raises(SilentError):
        await shared.get()
    while True:
        try:
            assert await shared.get() == 2
            break
        except SilentError:
            await asyncio.sleep(0.05)
    assert 1 <= time.monotonic() - began < 3, "who does not answer is not asked by each page"


# Kept machines and devices ----------------------------------------------------------------------------------------------


async def test_kept_machines_say_until_when_by_which_person_and_what_ends_it(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = await text(page, f"/c/{CLUSTER}/kept")
    assert "No machine is kept" in empty
    assert "None: <code>nodewarden preserve NODE</code> keeps one." in empty

    async def kept(cluster: str) -> PreservedNodes:
        return dataclasses.replace(preserved(), at=NOW)

    monkeypatch.setattr(scripted, "preserved", kept)
    await asyncio.sleep(views_module.FRESH.total_seconds())
    body = await text(page, f"/c/{CLUSTER}/kept")
    assert "2 machines are kept; the first one, node-5" in body
    assert "by bob: kernel panic, vendor case 4711" in body
    assert f"/c/{CLUSTER}/acts/release?node=node-3" in body


async def test_devices_say_first_whether_all_nodes_could_be_fenced(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "have not been checked yet" in await text(page, f"/c/{CLUSTER}/devices")
    monkeypatch.setattr(scripted, "devices", devices(300))
    await asyncio.sleep(0)
    views_of_it = Views(scripted, (CLUSTER,))  # type: ignore[arg-type]
    async with unlocked(views_of_it) as url, aiohttp.ClientSession(url) as anew:
        body = await text(anew, f"/c/{CLUSTER}/devices")
    assert "Not all: 2 lines below have a problem" in body
    assert "refuses the credentials of Secret/bmc-node-14" in body
    assert "… and 100 more, no worse than these" in body


async def test_a_device_that_answers_and_does_not_obey_is_not_called_well(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S44: readings alone made it the last place where anybody saw that three power-offs had come to nothing."""
    scripted.devices = devices(24)
    strange = episode("node-12", problem="off is not proven within 60 s: ipmi://10.7.0.12:623 says on", try_number=3, tries=3)
    first = episode("node-13", problem="ipmi://10.7.0.13:623 says on", tries=3)
    another = episode("node-16", problem="the cluster Lease is another's", try_number=2, tries=3)
    scripted.answer = dataclasses.replace(status(), episodes=(strange, first, another))
    async with page.get(f"/api/v1/clusters/{CLUSTER}/devices") as answer:
        found = await answer.json()
    conforms("/api/v1/clusters/{cluster}/devices", found)
    assert (found["problems"], [each["node"] for each in found["rows"] if each["problem"]]) == (
        3,
        ["node-9", "node-12", "node-14"],
    )
    body = await text(page, f"/c/{CLUSTER}/devices")
    assert "Not all: 3 lines below have a problem" in body
    (row_of_it,) = re.findall(r'<tr data-key="node-12 .*?</tr>', body, re.DOTALL)
    assert '<span class="mark mark-red">has a problem</span>' in row_of_it
    assert f"its open fencing: {strange.problem}; try 3 of 3" in row_of_it
    scripted.episodes = NodeEpisodes(episode=strange)
    assert "has a problem" in await text(page, f"/c/{CLUSTER}/nodes/node-12")


async def test_a_device_that_could_not_be_read_is_not_green(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    row_of_it = DeviceRow(node="node-1", endpoint="ipmi://10.7.0.1:623", answer=Reachability.UNREAD)
    scripted.devices = DeviceReport(cluster=CLUSTER, began=NOW, ended=NOW, devices=1, rows=(row_of_it,))
    body = await text(page, f"/c/{CLUSTER}/devices")
    assert '<span class="mark mark-yellow">unread</span>' in body
    assert "Yes: every device" not in body
    assert "Not known of all: 1 device of 1 was not read" in body


async def test_the_device_of_a_node_that_could_not_be_fenced_has_a_problem_though_a_check_leaves_it_alone(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S44: a check of all devices does not read those of a node with an open episode, and the page said Yes beside a dead BMC."""
    dead, well = "ipmi://10.7.0.12:623", "ipmi://10.7.0.13:623"
    to_check = tuple(
        NodeToCheck(node=node, held=f"inc-{node}", devices=(DeviceToCheck(device=PowerDevice(driver="ipmi", endpoint=endpoint)),))
        for node, endpoint in (("node-12", dead), ("node-13", well))
    )
    rows = [row for node in to_check for row in checked(node, ()).rows]
    scripted.devices = report_of(CLUSTER, rows, began=NOW, ended=NOW, nodes=2)
    assert "Not known of all: 2 devices of 2 were not read" in await text(page, f"/c/{CLUSTER}/devices")
    waits = episode("node-12", phase=Phase.NEEDS_HUMAN, problem=f"off is not proven within 60 s: {dead}: no answer")
    scripted.answer = dataclasses.replace(status(), episodes=(waits,))
    async with unlocked(Views(scripted, (CLUSTER,))) as url, aiohttp.ClientSession(url) as anew:  # type: ignore[arg-type]
        body = await text(anew, f"/c/{CLUSTER}/devices")
    assert "Not all: 1 line below has a problem" in body
    assert f"its open fencing: {waits.problem}" in body


async def test_where_no_check_of_devices_runs_it_is_said(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    async def none() -> DeviceReport | None:
        raise SilentError("no worker answers for the device check of prod")

    scripted.last_report = none  # type: ignore[method-assign]
    assert "no worker answers" in await text(page, f"/c/{CLUSTER}/devices")
    assert "Fence devices" not in await text(page, f"/c/{CLUSTER}/nodes/node-2")
