"""People hear that what they wrote to have a machine kept means nothing, over real HTTP: one Event for each value, no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from activities.cluster.report import mistakes
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.kept_machine import REASON
from policy.preservation.requests import PRESERVE_FOR_ANNOTATION
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import NODES, node, until
from tests.cluster.test_at_risk import Scans, ended, scans
from tests.cluster.test_preserving import world

pytestmark = pytest.mark.timeout(20)

EVENTS = "/api/v1/events"


__all__ = ["scans", "world"]  # fixtures


async def told(person: ApiClient) -> list[dict[str, Any]]:
    return [event for event in (await person.list(EVENTS))["items"] if event["reason"] == REASON]


async def annotate(person: ApiClient, name: str, **values: str | None) -> None:
    await person.patch(f"{NODES}/{name}", {"metadata": {"annotations": values}})


async def until_told(person: ApiClient, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(8):
        while len(found := await told(person)) < count:
            await asyncio.sleep(0.02)
    return found


async def test_each_value_is_told_once_and_by_no_other_worker_again(person: ApiClient, scans: Scans, api: ApiServer) -> None:
    """No episode is open; and while nothing changes the API is asked for nothing."""
    await person.create(NODES, node("node-1", **{PRESERVE_ANNOTATION: "noww"}))
    scan = await scans.open()
    watching = asyncio.create_task(scans.observe_until(scan, lambda _: False, wait=1.0))
    (event,) = await until_told(person, 1)
    assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Warning", "Node", "node-1")
    assert event["involvedObject"]["uid"] == (await person.get(f"{NODES}/node-1"))["metadata"]["uid"]
    assert "expected one of now, true, when-failed, auto-preserved, false, got 'noww'; it changes nothing" in event["message"]
    await annotate(person, "node-1", **{PRESERVE_ANNOTATION: "nowww"})
    assert len(await until_told(person, 2)) == 2
    asked = asked_of_events(api)
    await annotate(person, "node-1", note="of somebody else")
    seen = scan.view.stamp
    await until(lambda: scan.view.stamp > seen, 4)
    await annotate(person, "node-1", note=None)
    assert asked_of_events(api) == asked

    second = await scans.open()
    again = asyncio.create_task(scans.observe_until(second, lambda _: False, wait=1.0))
    await until(lambda: second._mistakes._seen == second._mistakes._versions() != (0, 0), 4)
    await annotate(person, "node-1", **{PRESERVE_ANNOTATION: None, PRESERVE_FOR_ANNOTATION: "a while"})
    events = await until_told(person, 3)
    await until(lambda: second._mistakes._seen == second._mistakes._versions(), 4)
    assert [event["count"] for event in events] == [1, 1, 1], "after a restart, the server still has what was told"
    await ended(watching, again)


def asked_of_events(api: ApiServer) -> int:
    """By whomever but the test itself."""
    return sum(
        count for (agent, _, resource), count in api.requests.counts.items() if resource == "events" and agent != "a-person"
    )


async def test_whoever_annotates_a_whole_fleet_wrongly_is_told_little_by_little(
    person: ApiClient, scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what could not be told is told later: nothing is lost."""
    monkeypatch.setattr(mistakes, "MOST", 4)
    for number in range(9):
        await person.create(NODES, node(f"node-{number}", **{PRESERVE_ANNOTATION: "noww"}))
    scan = await scans.open()
    scan._mistakes._pause = 0.5
    watching = asyncio.create_task(scans.observe_until(scan, lambda _: False, wait=2.0))
    first = await until_told(person, 1)
    await until(lambda: scan._mistakes._working is None and scan._mistakes._not_before > 0, 4)
    assert len(first) <= len(await told(person)) == 4
    assert len(await until_told(person, 9)) == 9
    await ended(watching)


async def test_what_could_not_be_told_is_told_later(
    person: ApiClient, scans: Scans, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mistakes, "TRY_AGAIN_SECONDS", 0.3)
    await person.create(NODES, node("node-1", **{PRESERVE_ANNOTATION: "noww"}))
    refusal = Fault(verb="create", path="/events$", accident=Accident.STATUS, status=500, count=3)
    api.faults.add(refusal)
    scan = await scans.open()
    watching = asyncio.create_task(scans.observe_until(scan, lambda _: False, wait=2.0))
    (event,) = await until_told(person, 1)
    await ended(watching)
    assert event["count"] == 1
