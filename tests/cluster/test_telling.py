"""What a scan publishes on Machines, about mistakes in annotations and about fence policies: once, and each about its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import Happening
from activities.cluster.api.refusals import ATTEMPTS
from activities.cluster.report import alarms
from activities.cluster.report.status_writer import MOST_REFUSED, MachineConditions
from activities.errors import ErrorType, failure
from policy.dialects import parse
from policy.objects.machines import MachineView, WorkloadCluster
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import REASON
from policy.preservation.requests import PRESERVE_FOR_ANNOTATION
from policy.scan.ledger import Ledger
from policy.values import machine_apis
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, NODES, check, node, templates, until
from tests.cluster.machines import CLUSTER_API, CLUSTER_NAME
from tests.cluster.scans import Open, asked, fleet, observe, observe_until, with_policy
from tests.cluster.skipping import now
from tests.cluster.test_at_risk import Scans, ended, scans
from tests.cluster.test_preserving import world
from tests.policy.builders import NOW, a_node, ago

pytestmark = pytest.mark.timeout(20)

KEYS = {CLUSTER_API.check_ref().key}
LONG = 60.0


class Writer:
    """Tells the Machines of one ledger, as a publish does, and keeps the Events."""

    def __init__(self, person: ApiClient, connection: ClusterConnection) -> None:
        self.ledger = Ledger()
        self.told: list[str] = []
        self._person = person
        self._conditions = MachineConditions(connection, clock=now, record=self._tell)

    async def fleet(self, count: int, *, unhealthy: int = 0) -> None:
        """Machines in the API and in the ledger, the first few of them unhealthy."""
        await CLUSTER_API.install(self._person)
        cluster = WorkloadCluster(
            namespace=CLUSTER_API.namespace, name=CLUSTER_NAME, control_plane_initialized=True, infrastructure_ready=True
        )
        self.ledger.put_cluster(cluster, NOW)
        self.ledger.put_check(parse(CLUSTER_API.check(timeout=30)))
        for number in range(count):
            found = await CLUSTER_API.add_machine(self._person, f"machine-{number:02}", node=f"node-{number:02}")
            self.ledger.put_node(a_node(f"node-{number:02}", "False" if number < unhealthy else "True", 60), NOW)
            self.ledger.put_machine(a_machine(number, uid=found["metadata"]["uid"]), NOW)

    async def write(self, *, seconds: float = LONG) -> list[str]:
        """One publish. What it says it could not do."""
        return await self._conditions.write(self.ledger.known(NOW), KEYS, seconds=seconds)

    async def written(self) -> set[str]:
        """The Machines that have the condition."""
        machines = (await self._person.list(CLUSTER_API.path("machines")))["items"]
        return {
            machine["metadata"]["name"]
            for machine in machines
            if any(each["type"] == "HealthCheckSucceeded" for each in machine["status"].get("conditions") or ())
        }

    async def _tell(self, happening: Happening) -> str:
        self.told.append(happening.about.name)
        return ""


def a_machine(number: int, *, uid: str) -> MachineView:
    return MachineView(
        api=machine_apis.CLUSTER_API,
        namespace=CLUSTER_API.namespace,
        name=f"machine-{number:02}",
        uid=uid,
        labels={"role": "worker"},
        node_name=f"node-{number:02}",
        created=ago(9999),
        cluster_name=CLUSTER_NAME,
    )


@pytest.fixture
def writer(person: ApiClient, connection: ClusterConnection) -> Writer:
    return Writer(person, connection)


async def test_a_whole_fleet_is_told_at_once(writer: Writer) -> None:
    """Also one of more than fifty."""
    await writer.fleet(52, unhealthy=51)
    assert await writer.write() == []
    assert len(await writer.written()) == 52
    assert sorted(writer.told) == [f"machine-{number:02}" for number in range(51)]


async def test_what_there_was_no_time_for_is_said_to_wait(writer: Writer) -> None:
    await writer.fleet(3)
    assert await writer.write(seconds=0) == ["conditions of 3 Machines"]
    assert await writer.write() == []


async def test_machines_whose_conditions_are_refused_hold_up_no_others(writer: Writer, api: ApiServer) -> None:
    """A webhook may refuse all of one owner's. They are tried last from then on, and so many refusals are enough for one time."""
    await writer.fleet(70)
    api.faults.add(Fault(accident=Accident.STATUS, status=403, method="PATCH", path=r"machine-[0-5]\d/status"))
    before = api.requests.total("patch", "machines")
    assert await writer.write() == ["conditions of 70 Machines"]
    assert api.requests.total("patch", "machines") - before <= MOST_REFUSED + 8
    await writer.write()
    assert await writer.written() == {f"machine-{number}" for number in range(60, 70)}
    api.faults.clear()
    assert await writer.write() == []


async def test_a_machine_that_others_keep_writing_waits_for_its_turn(writer: Writer, api: ApiServer) -> None:
    await writer.fleet(2)
    api.faults.add(Fault(accident=Accident.STATUS, status=409, method="PATCH", path="machine-00/status", count=ATTEMPTS))
    assert await writer.write() == ["conditions of 1 Machines"]
    assert await writer.written() == {"machine-01"}


async def test_a_machine_that_was_made_anew_does_not_get_its_predecessors_verdict(writer: Writer) -> None:
    """S9: what was concluded of a Machine is about that one, whatever the next is called."""
    await writer.fleet(2, unhealthy=2)
    writer.ledger.put_machine(a_machine(0, uid="its-predecessor"), NOW)
    assert await writer.write() == []
    assert (await writer.written(), writer.told) == ({"machine-01"}, ["machine-01"])


# People hear that what they wrote to have a machine kept means nothing, over real HTTP: one Event for each value, no more.

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


async def test_wrong_annotations_of_a_whole_fleet_are_reported_little_by_little(
    person: ApiClient, scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what could not be told is told later: nothing is lost."""
    monkeypatch.setattr(alarms, "MOST", 4)
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
    monkeypatch.setattr(alarms, "TRY_AGAIN_SECONDS", 0.3)
    await person.create(NODES, node("node-1", **{PRESERVE_ANNOTATION: "noww"}))
    refusal = Fault(verb="create", path="/events$", accident=Accident.STATUS, status=500, count=3)
    api.faults.add(refusal)
    scan = await scans.open()
    watching = asyncio.create_task(scans.observe_until(scan, lambda _: False, wait=2.0))
    (event,) = await until_told(person, 1)
    await ended(watching)
    assert event["count"] == 1


# The check of fence devices hears of policies that name devices when they are written, and of none that it has heard of.


class DeviceCheck:
    """Is notified of policies, the first time in vain."""

    def __init__(self) -> None:
        self.notified: list[str] = []
        self.away = True

    async def notify(self, policies: str) -> None:
        if self.away:
            self.away = False
            raise failure(ErrorType.UNREACHABLE, "Temporal is away")
        self.notified.append(policies)


async def test_a_policy_that_is_new_or_says_something_else_is_told_once(person: ApiClient, open_scan: Open) -> None:
    """Also where Temporal was away meanwhile; a check's own change tells nothing of devices."""
    await fleet(person)
    device_check = DeviceCheck()
    scan = await open_scan(notify_device_check=device_check.notify)
    report = await observe(scan, asked())
    assert scan.view.fencing == ""
    await with_policy(person, duration="300s")
    report = await observe_until(scan, report, lambda _: len(device_check.notified) == 1, wait=0.2)
    await person.patch(f"{CHECKS}/workers", {"spec": check(duration="301s")["spec"]})
    power = [{"driver": "ipmi", "parameters": {"ip": "192.0.2.7"}}]
    await person.patch(f"{templates()}/default", {"spec": {"template": {"spec": {"power": power}}}})
    report = await observe_until(scan, report, lambda _: len(device_check.notified) == 2, wait=0.2)
    await observe(scan, asked(report, wait=0.2))
    assert len(set(device_check.notified)) == len(device_check.notified) == 2
