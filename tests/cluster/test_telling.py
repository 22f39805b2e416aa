"""Cluster API's condition on Machines: one that can't be written holds up no other, and nobody gets another one's."""

from __future__ import annotations

import pytest

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import Happening
from activities.cluster.api.refusals import ATTEMPTS
from activities.cluster.report.status_writer import MOST_REFUSED, MachineConditions
from policy.dialects import parse
from policy.objects.machines import MachineView, WorkloadCluster
from policy.scan.ledger import Ledger
from policy.values import machine_apis
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.machines import CLUSTER_API, CLUSTER_NAME
from tests.cluster.skipping import now
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
