"""Health checks over Machines, on live watches: what a scan says of them, what is written back, and what that costs others.

Each test speaks for OpenShift and for Cluster API, in both versions where its status differs (`machines.py`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.report.status_writer import Published
from activities.cluster.watch.view import ClusterView
from policy.checks.fence_policies import PolicySource
from policy.checks.verdict import Health
from policy.scan.scan_report import CheckReport, ScanReport
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, definition, node, of_kind, stamp, until, with_templates
from tests.cluster.machines import (
    CLUSTER_API,
    CLUSTER_API_OLDER,
    CLUSTER_NAME,
    CLUSTER_VERSIONS,
    COUNTING,
    MACHINE_CONFIG_POOLS,
    OF_CLUSTER_API,
    OPENSHIFT,
    PAUSED,
    SYSTEMS,
    System,
    management_cluster,
    turn,
)
from tests.cluster.scans import LIVE, OURS, WATCHES, Open, asked, observe, observe_until
from tests.cluster.skipping import now

TRUSTED = PolicySource(templates=("nodewarden", *COUNTING), machines=COUNTING)
pytestmark = pytest.mark.timeout(20)

every_system = pytest.mark.parametrize("system", SYSTEMS, ids=str)
one_of_each = pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
both_versions = pytest.mark.parametrize("system", OF_CLUSTER_API, ids=str)

HOUR = timedelta(hours=1)


class Management(NamedTuple):
    """A management cluster: its API server, and a person at it."""

    server: ApiServer
    person: ApiClient


@pytest.fixture
async def management() -> AsyncIterator[Management]:
    async with management_cluster() as (server, person, _):
        yield Management(server, person)


async def reported(scan: ClusterScan, condition: Callable[[ScanReport], object], known: ScanReport | None = None) -> ScanReport:
    return await observe_until(scan, known, condition)


async def add_check(person: ApiClient, system: System, name: str = "workers", **fields: Any) -> None:
    await person.create(system.path("machinehealthchecks"), system.check(name, **fields))


async def furnish(person: ApiClient, system: System, *, count: int = 4, nodes: ApiClient | None = None, **fields: Any) -> None:
    """So many Machines and their Nodes, under one check."""
    await system.install(person)
    await system.fleet(person, count, nodes=nodes)
    await add_check(person, system, **fields)


async def followed(open_scan: Open, person: ApiClient, system: System, **fields: Any) -> tuple[ClusterScan, ScanReport]:
    """The same, and a scan that finds all of them healthy."""
    await furnish(person, system, **fields)
    scan = await open_scan()
    return scan, await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].healthy == 4)


def of(report: ScanReport, key: str) -> CheckReport:
    return next(each for each in report.checks if each.ref.key == key)


def counts(check_report: CheckReport) -> dict[str, int]:
    """Those that are not 0."""
    names = ("total", "healthy", "soon", "starting", "unhealthy", "deleting", "left_out")
    found = {name: getattr(check_report, name) for name in names}
    return {name: count for name, count in found.items() if count}


async def publish(scan: ClusterScan, report: ScanReport) -> Published:
    return await scan.publishing.publish(report)


async def events(person: ApiClient, system: System, kind: str = "MachineHealthCheck") -> list[str]:
    """The reasons of all Events about objects of that kind, once for each time they were told."""
    listed = (await person.list(f"/api/v1/namespaces/{system.namespace}/events"))["items"]
    told = [event for event in listed if event["involvedObject"]["kind"] == kind]
    return sorted(reason for event in told for reason in [event["reason"]] * int(event["count"]))


def written(api: ApiServer) -> list[str]:
    """What we asked to be changed, but for our Lease: the plurals, one for each time."""
    return [write.resource for write in api.requests.log if write.user_agent.startswith(OURS) and write.resource != "leases"]


class TestVerdicts:
    @one_of_each
    async def test_a_machine_is_a_candidate_within_milliseconds_of_its_deadline(
        self, system: System, person: ApiClient, open_scan: Open
    ) -> None:
        await system.install(person)
        await system.fleet(person)
        await add_check(person, system, timeout=3)  # a node that may soon be unhealthy is told of within a second
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].healthy == 4)
        assert report.checks[0].ref == system.check_ref()
        assert report.checks[0].allowed
        await turn(person, "node-1", "Unknown", since=now() - timedelta(seconds=0.3))
        report = await observe(scan, asked(report))
        assert counts(report.checks[0]) == {"total": 4, "healthy": 3, "soon": 1}
        assert not report.candidates
        due = report.next_due
        assert due is not None
        assert due > now()
        report = await observe(scan, asked(report, wait=5.0))
        late = (now() - due).total_seconds()
        assert 0 <= late < 0.2
        assert counts(report.checks[0]) == {"total": 4, "healthy": 3, "unhealthy": 1}
        [candidate] = report.candidates
        assert (candidate.node, candidate.machine) == ("node-1", f"{system.namespace}/machine-1")
        assert candidate.template is not None
        assert candidate.template.namespace == system.namespace
        assert candidate.refused == ""

    @one_of_each
    async def test_a_node_that_is_deleted_makes_its_machine_unhealthy_at_once(
        self, system: System, person: ApiClient, open_scan: Open
    ) -> None:
        """No timeout runs: whoever deleted the Node knows that it does not come back. A Machine that is deleted or relabelled
        leaves the check."""
        scan, report = await followed(open_scan, person, system, timeout=3600)
        await person.delete(f"{NODES}/node-1")
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        assert counts(report.checks[0]) == {"total": 4, "healthy": 3, "unhealthy": 1}
        [candidate] = report.candidates
        assert (candidate.reason, candidate.machine) == ("NodeDeleted", f"{system.namespace}/machine-1")
        assert candidate.refused, "there is nothing left that could be fenced"
        await person.delete(system.path("machines", "machine-1"))
        report = await reported(scan, lambda seen: not seen.candidates, report)
        assert counts(report.checks[0]) == {"total": 3, "healthy": 3}
        await person.patch(system.path("machines", "machine-2"), {"metadata": {"labels": {"role": "other"}}})
        report = await reported(scan, lambda seen: seen.checks[0].total == 2, report)
        assert counts(report.checks[0]) == {"total": 2, "healthy": 2}

    async def test_a_node_that_is_not_here_is_not_gone_where_no_node_here_is_of_its_cluster(
        self, person: ApiClient, open_scan: Open
    ) -> None:
        """S18: the Nodes of another workload cluster are in its own API, where we do not look."""
        system = CLUSTER_API
        await system.install(person)
        await system.add_cluster(person)
        await person.create(NODES, node("node-9"))
        for number in range(2):
            await system.add_machine(person, f"machine-{number}", node=f"node-{number}")
        await add_check(person, system, timeout=0)
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].total == 2)
        assert not report.candidates
        assert counts(report.checks[0]) == {"total": 2, "starting": 2}
        rows = {row.machine: row for row in report.rows if row.machine}
        assert {row.reason for row in rows.values()} == {"NodeUnseen"}
        assert {row.health for row in rows.values()} == {Health.SKIPPED}
        # The first Node that says it belongs there shows that this is the place to look.
        await person.create(NODES, system.node("node-0"))
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        assert counts(report.checks[0]) == {"total": 2, "healthy": 1, "unhealthy": 1}
        assert report.candidates[0].reason == "NodeDeleted"


class TestCircuitBreakers:
    async def test_a_cluster_that_is_paused_or_gone_admits_nothing(self, person: ApiClient, open_scan: Open) -> None:
        system = CLUSTER_API
        await furnish(person, system, timeout=0)
        await turn(person, "node-1", "False", since=now() - HOUR)
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.candidates))
        cluster = system.path("clusters", CLUSTER_NAME)
        await person.patch(cluster, {"spec": {"paused": True}})
        report = await reported(scan, lambda seen: not seen.candidates, report)
        assert (report.checks[0].reason, "spec.paused" in report.checks[0].message) == ("Paused", True)
        await person.patch(cluster, {"spec": {"paused": None}})
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        await person.delete(cluster)
        report = await reported(scan, lambda seen: not seen.candidates, report)
        assert report.checks[0].reason == "ClusterNotFound"

    @pytest.mark.parametrize(
        ("path", "kind", "name"),
        [(CLUSTER_VERSIONS, "ClusterVersion", "version"), (MACHINE_CONFIG_POOLS, "MachineConfigPool", "worker")],
    )
    async def test_an_upgrade_opens_every_circuit_breaker_until_it_is_over(
        self, path: str, kind: str, name: str, person: ApiClient, open_scan: Open
    ) -> None:
        """S17: nodes that an upgrade reboots are no failures; checks of nodes alone wait as well."""
        await OPENSHIFT.install(person)
        await person.create(DEFINITIONS, definition())
        await OPENSHIFT.fleet(person)
        await turn(person, "node-1", "False", since=now() - HOUR)
        await add_check(person, OPENSHIFT, timeout=0)
        await person.create(CHECKS, check("nodes", duration="0s"))
        spec = {"clusterID": "0000"} if path == CLUSTER_VERSIONS else {"paused": False}
        await person.create(path, of_kind(kind, path, name=name, spec=spec))
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.candidates) and len(seen.checks) == 2)
        await person.patch(f"{path}/{name}/status", {"status": progress(path, "True", "on the way to 4.21")})
        report = await reported(scan, lambda seen: not seen.candidates, report)
        assert {(each.allowed, each.reason) for each in report.checks} == {(False, "UpgradeInProgress")}
        assert all(f"{kind} {name}" in each.message and "4.21" in each.message for each in report.checks)
        await person.patch(f"{path}/{name}/status", {"status": progress(path, "False", "done")})
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        assert all(each.allowed for each in report.checks)


class TestStatus:
    @one_of_each
    async def test_while_it_is_paused_cluster_api_says_so_and_all_the_rest_is_left(
        self, system: System, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        scan, report = await followed(open_scan, person, system, timeout=0)
        await publish(scan, report)
        before, writes = await system.check_status(person), written(api)
        await system.annotate(person, "machinehealthchecks", "workers", {PAUSED: "until monday"})
        await turn(person, "node-1", "False", since=now() - HOUR)
        report = await reported(scan, lambda seen: seen.checks[0].reason == "Paused" and seen.checks[0].unhealthy == 1, report)
        assert await publish(scan, report) == Published(written=int(system.of_cluster_api))
        after = await system.check_status(person)
        assert after["currentHealthy"] == before["currentHealthy"] == 4
        assert system.older_conditions(after) == system.older_conditions(before)
        if system.of_cluster_api:
            assert set(written(api)[len(writes) :]) == {"machinehealthchecks"}
            paused = system.newer_conditions(after)["Paused"]
            assert (paused["status"], paused["reason"]) == ("True", "Paused")
        else:
            assert (after, written(api)) == (before, writes)

    @pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API_OLDER], ids=str)
    async def test_a_check_that_cannot_be_used_says_so_once_and_holds_up_no_other(
        self, system: System, person: ApiClient, open_scan: Open
    ) -> None:
        """Whatever the schema takes may reach us; S7: what cannot be read as written is refused, never guessed. What is said
        names the object as it is now: `kubectl describe` looks for Events by uid, tools wait for the generation that they have
        written."""
        await furnish(person, system, timeout=0)
        await turn(person, "node-1", "False", since=now() - HOUR)
        await person.create(system.path("machinehealthchecks"), system.bad_check())
        scan = await open_scan()
        report = await reported(scan, lambda seen: len(seen.checks) == 2 and bool(seen.candidates))
        bad, good = of(report, system.check_ref("bad").key), of(report, system.check_ref().key)
        assert (bool(bad.error), bad.allowed) == (True, False)
        assert (good.error, good.allowed) == ("", True)
        for _ in range(3):
            await publish(scan, report)
        found = await person.get(system.path("machinehealthchecks", "bad"))
        allowed = system.conditions(found["status"])["RemediationAllowed"]
        assert (allowed["status"], allowed["reason"], allowed["message"]) == ("False", "InvalidConfiguration", bad.error)
        assert system.conditions(await system.check_status(person))["RemediationAllowed"]["status"] == "True"
        assert await events(person, system) == ["InvalidMachineHealthCheck"]
        listed = (await person.list(f"/api/v1/namespaces/{system.namespace}/events"))["items"]
        (event,) = [each for each in listed if each["reason"] == "InvalidMachineHealthCheck"]
        assert event["involvedObject"]["uid"] == found["metadata"]["uid"]
        if system.of_cluster_api:
            generation = found["metadata"]["generation"]
            assert found["status"]["observedGeneration"] == generation
            newer = system.newer_conditions(found["status"]).values()
            assert {each["observedGeneration"] for each in newer} == {generation}
            good = await system.check_status(person)
            assert good["targets"] == [f"machine-{number}" for number in range(4)]
            assert set(system.newer_conditions(good)) == {"Paused", "RemediationAllowed"}
            assert set(system.older_conditions(good)) == {"RemediationAllowed"}

    @every_system
    async def test_a_short_circuit_is_one_event_and_its_end_another(
        self, system: System, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        """S17: an open circuit breaker has its severity and its reason where people look; all of it is written once, and again
        only when it differs."""

        async def status(*counts: int) -> dict[str, Any]:
            found = await system.check_status(person)
            assert (found["expectedMachines"], found["currentHealthy"], found["remediationsAllowed"]) == counts
            return system.older_conditions(found)["RemediationAllowed"]

        scan, report = await followed(open_scan, person, system, timeout=0, most=1)
        assert [(await publish(scan, report)).written for _ in range(4)] == [1, 0, 0, 0]
        patches = api.requests.total("patch", "machinehealthchecks", OURS)
        assert patches <= 2, "at most one, against our own older copy"
        allowed = await status(4, 4, 1)
        assert (allowed["status"], "severity" in allowed) == ("True", False)
        for name in ("node-1", "node-2"):
            await turn(person, name, "False", since=now() - HOUR)
        report = await reported(scan, lambda seen: seen.checks[0].unhealthy == 2, report)
        assert not report.candidates
        for _ in range(3):
            await publish(scan, report)
        allowed = await status(4, 2, 0)
        assert (allowed["status"], allowed["severity"], allowed["reason"]) == ("False", "Warning", "TooManyUnhealthy")
        assert "unhealthy: 2" in allowed["message"]
        assert await events(person, system) == ["RemediationRestricted"]
        await turn(person, "node-3", "False", since=now() - HOUR)
        report = await reported(scan, lambda seen: seen.checks[0].unhealthy == 3, report)
        await publish(scan, report)
        assert await events(person, system) == ["RemediationRestricted"], "still closed: other numbers are no news"
        for name in ("node-2", "node-3"):
            await turn(person, name, "True")
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        for _ in range(2):
            await publish(scan, report)
        assert await events(person, system) == ["RemediationAllowed", "RemediationRestricted"]

    @both_versions
    async def test_every_machine_says_what_its_check_thinks_of_it(
        self, system: System, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        """Cluster API's HealthCheckSucceeded, in both generations, and as its schemas take it."""
        await furnish(person, system, count=3, timeout=0)
        await turn(person, "node-1", "False", since=now() - HOUR)
        await person.delete(f"{NODES}/node-2")
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].unhealthy == 2)
        assert (await publish(scan, report)).failed == ()
        said = {}
        for number in range(3):
            status = (await person.get(system.path("machines", f"machine-{number}")))["status"]
            newer, older = system.newer_conditions(status), system.older_conditions(status)
            assert newer["HealthCheckSucceeded"]["status"] == older["HealthCheckSucceeded"]["status"]
            said[number] = (newer["HealthCheckSucceeded"]["status"], newer["HealthCheckSucceeded"]["reason"])
        assert said == {0: ("True", "HealthCheckSucceeded"), 1: ("False", "UnhealthyNode"), 2: ("False", "NodeDeleted")}
        assert await events(person, system, "Machine") == ["MachineMarkedUnhealthy"] * 2
        await until(lambda: len(problem_line(scan, "HealthCheckSucceeded")) == 3)
        writes = written(api)
        assert (await publish(scan, report)).failed == ()
        assert written(api) == writes

    async def test_machines_are_left_alone_as_soon_as_one_worker_has_heard_of_another_controller(
        self, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        """One worker looks, another writes, and that one has reported nothing yet."""
        await furnish(person, CLUSTER_API, count=3, timeout=0)
        await turn(person, "node-1", "False", since=now() - HOUR)
        looks, writes = await open_scan(), await open_scan()
        report = await reported(looks, lambda seen: bool(seen.checks) and seen.checks[0].unhealthy == 1)
        ledger = writes.view.ledger
        await until(lambda: writes.view.synced and [each.unhealthy for each in ledger.report_parts(now(), ()).checks] == [1])
        said = {"type": "ConflictingController", "status": "True", "reason": "ConflictingController", "message": "it acts"}
        path = CLUSTER_API.path("machinehealthchecks", "workers", subresource="status")
        await person.patch(path, {"status": {"conditions": [said | {"lastTransitionTime": stamp(now())}]}})
        await until(lambda: writes.view.check_objects[CLUSTER_API.check_ref().key].get("status"))
        assert (await publish(writes, report)).failed == ()
        assert "machines" not in written(api)
        assert await events(person, CLUSTER_API, "Machine") == []

    async def test_no_machine_is_told_that_its_node_is_gone_while_the_inventory_is_not_believed(
        self, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        """S18: a suddenly halved inventory is a fault of the view. Once it is believed, the Machines are told."""
        await furnish(person, CLUSTER_API, count=4)
        scan = await open_scan(limits=replace(LIVE, shrunk=timedelta(seconds=1)))
        report = await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].healthy == 4)
        await publish(scan, report)
        before = written(api).count("machines")
        for number in (1, 2, 3):
            await person.delete(f"{NODES}/node-{number}")
        await until(lambda: len(scan.view.ledger) == 1)
        result = await publish(scan, report)
        assert "the inventory fell from 4 nodes to 1" in result.unseen
        assert written(api).count("machines") == before
        assert await events(person, CLUSTER_API, "Machine") == []
        report = await reported(scan, lambda seen: not seen.view.stale, await observe(scan, asked(report)))
        assert (await publish(scan, report)).failed == ()
        assert await events(person, CLUSTER_API, "Machine") == ["MachineMarkedUnhealthy"] * 3


class TestWhatIsFollowed:
    async def test_a_cluster_without_machines_runs_clean_and_is_asked_for_none(
        self, api: ApiServer, person: ApiClient, open_scan: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        questions = api.faults.add(Fault(accident=Accident.DELAY, path="/(machines|clusters)$", user_agent=OURS))
        await person.create(DEFINITIONS, definition())
        for number in range(4):
            await person.create(NODES, node(f"node-{number}"))
        await person.create(CHECKS, check(duration="0s"))
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.checks))
        await person.create(NODES, node("node-4", "False", now() - HOUR))
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        assert report.view.stale == ""
        assert report.candidates[0].machine == ""
        assert api.faults.hits(questions) == 0
        assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


class TestTwoServers:
    """A management cluster has the Machines and their checks, the workload cluster has the Nodes."""

    async def test_checks_and_machines_live_there_and_nodes_here(
        self, api: ApiServer, person: ApiClient, management: Management, open_scan: Open
    ) -> None:
        system = CLUSTER_API
        await furnish(management.person, system, nodes=person, timeout=0, most=0)
        scan = await open_scan(machines=management.server)
        report = await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].healthy == 4)
        await turn(person, "node-1", "Unknown", since=now() - HOUR)
        report = await reported(scan, lambda seen: seen.checks[0].unhealthy == 1, report)
        assert counts(report.checks[0]) == {"total": 4, "healthy": 3, "unhealthy": 1}
        for _ in range(2):
            await publish(scan, report)
        status = await system.check_status(management.person)
        assert (status["expectedMachines"], status["currentHealthy"], status["remediationsAllowed"]) == (4, 3, 0)
        assert await events(management.person, system) == ["RemediationRestricted"]
        assert api.requests.total("list", "machines", OURS) == 0
        assert management.server.requests.total("list", "nodes", OURS) == 0
        assert {write.resource for write in api.requests.log if write.user_agent.startswith(OURS)} == {"leases"}

    async def test_a_paused_cluster_keeps_programs_from_its_nodes_under_a_check_of_nodes(
        self, person: ApiClient, management: Management, open_scan: Open
    ) -> None:
        """S20, S44: also where no check of Machines is there, for which Clusters would be followed."""
        system = CLUSTER_API
        await system.install(management.person)
        await system.fleet(management.person, nodes=person)
        await person.create(DEFINITIONS, definition())
        await person.create(CHECKS, check("nodes", duration="0s", minHealthy=0))
        scan = await open_scan(machines=management.server)
        await turn(person, "node-1", "False", since=now() - HOUR)
        report = await reported(scan, lambda seen: bool(seen.candidates) and not seen.candidates[0].refused)
        cluster = system.path("clusters", CLUSTER_NAME)
        await management.person.patch(cluster, {"spec": {"paused": True}})
        report = await reported(scan, lambda seen: bool(seen.candidates[0].refused), report)
        assert report.candidates[0].refused == f"its Cluster is paused: spec.paused of Cluster {CLUSTER_NAME} is true"
        await management.person.patch(cluster, {"spec": {"paused": None}})
        await reported(scan, lambda seen: not seen.candidates[0].refused, report)

    async def test_losing_the_management_cluster_only_closes_its_own_checks(
        self, person: ApiClient, management: Management, open_scan: Open
    ) -> None:
        """S18, for as much of the view as is lost: the nodes are seen as well as before."""
        await furnish(management.person, CLUSTER_API, nodes=person, timeout=0)
        await person.create(DEFINITIONS, definition())
        apart = {"selector": {"matchLabels": {"pool": "apart"}}, "minHealthy": 0}
        await person.create(CHECKS, check("nodes", duration="0s", **apart))
        await person.create(NODES, labelled(node("lone-0"), pool="apart"))
        scan = await open_scan(machines=management.server)
        report = await reported(scan, lambda seen: len(seen.checks) == 2 and all(each.healthy for each in seen.checks))
        key, lone = CLUSTER_API.check_ref().key, "NodeHealthCheck/nodes"
        assert of(report, key).allowed
        await management.server.stop()
        report = await reported(scan, lambda seen: of(seen, key).reason == "StaleView", report)
        assert report.view.stale == ""
        assert not of(report, key).allowed
        assert of(report, lone).allowed
        await turn(person, "node-1", "False", since=now() - HOUR)
        await turn(person, "lone-0", "False", since=now() - HOUR)
        report = await reported(scan, lambda seen: of(seen, lone).unhealthy == 1 and of(seen, key).unhealthy == 1, report)
        assert [each.node for each in report.candidates] == ["lone-0"]
        await management.server.start()
        report = await reported(scan, lambda seen: of(seen, key).allowed, report)
        assert {each.node for each in report.candidates} == {"lone-0", "node-1"}

    async def test_its_checks_wait_for_the_grace_after_it_has_come_back(
        self, person: ApiClient, management: Management, open_scan: Open
    ) -> None:
        """S18: a watch that is open again has not yet told what happened meanwhile, a pause for instance."""
        await furnish(management.person, CLUSTER_API, nodes=person, timeout=0)
        grace = timedelta(seconds=1.5)
        scan = await open_scan(replace(LIVE, grace=grace), machines=management.server)
        report = await reported(scan, lambda seen: bool(seen.checks) and seen.checks[0].allowed and not seen.view.stale)
        await management.server.stop()
        report = await reported(scan, lambda seen: seen.checks[0].reason == "StaleView", report)
        await turn(person, "node-1", "False", since=now() - HOUR)
        returned = now()
        await management.server.start()
        report = await reported(scan, lambda seen: "for less than" in seen.checks[0].message, report)
        assert "followed again for less than 1.5s" in report.checks[0].message
        assert not report.candidates
        report = await reported(scan, lambda seen: bool(seen.candidates), report)
        assert now() - returned >= grace
        assert report.view.stale == ""

    async def test_a_worker_that_starts_while_the_management_cluster_is_down_does_not_act_past_its_circuit_breakers(
        self, person: ApiClient, management: Management, open_scan: Open
    ) -> None:
        """S17, S18: which of its checks are paused is known to whoever saw them, and to no worker that has just begun."""
        await furnish(management.person, CLUSTER_API, nodes=person, timeout=0)
        await CLUSTER_API.annotate(management.person, "machinehealthchecks", "workers", {PAUSED: ""})
        await person.create(DEFINITIONS, definition())
        await person.create(CHECKS, check("nodes", duration="0s"))
        await turn(person, "node-1", "False", since=now() - HOUR)
        first = await open_scan(machines=management.server)
        report = await reported(first, lambda seen: len(seen.checks) == 2 and not seen.view.stale)
        assert of(report, CLUSTER_API.check_ref().key).reason == "Paused"
        assert not report.candidates
        await management.server.stop()
        second = await open_scan(machines=management.server)
        for _ in range(3):
            blind = await observe(second, asked(report, wait=0.3))
            assert "management cluster" in blind.view.stale
        await management.server.start()
        report = await reported(second, lambda seen: not seen.view.stale, blind)
        assert of(report, CLUSTER_API.check_ref().key).reason == "Paused"
        assert not report.candidates


class TestClocks:
    """Moments in conditions are the kubelet's, the node controller's, any controller's; nobody knows whose clock is right. The
    earlier of the server's and ours is believed: an error makes us wait, and never begin early."""

    @pytest.mark.parametrize("error", [timedelta(minutes=-10), timedelta(minutes=10)], ids=["behind", "ahead"])
    async def test_a_server_with_another_clock_makes_no_node_unhealthy_early_or_late(self, error: timedelta) -> None:
        """S18: ours goes before the clocks of those who write conditions, and would call every timeout expired; or the server's
        does, and whoever wrote the condition keeps good time, as we do."""
        async with (
            ApiServer(clock_error=error) as api,
            ApiClient(ApiAddress(url=api.url, token="abc"), user_agent="a-person") as person,
            ClusterConnection.to(api.url, token="abc") as connection,
            ClusterScan("prod", ClusterView(connection, limits=LIVE, watch_limits=WATCHES, source=TRUSTED)) as scan,
        ):
            await with_templates(person, "nodewarden", OPENSHIFT.namespace)
            await OPENSHIFT.install(person)
            await OPENSHIFT.fleet(person)
            await person.create(DEFINITIONS, definition())
            await add_check(person, OPENSHIFT, timeout=300)
            await person.create(CHECKS, check("nodes", duration="300s"))
            earlier = min(api.now(), now())
            await turn(person, "node-1", "Unknown", since=earlier - timedelta(seconds=5))
            report = await reported(
                scan, lambda seen: [(each.total, each.soon) for each in seen.checks] == [(4, 1), (4, 1)] and not seen.view.stale
            )
            assert abs(report.at - min(api.now(), now())) < timedelta(seconds=3)
            assert report.candidates == ()
            await turn(person, "node-1", "Unknown", since=earlier - timedelta(seconds=400))
            await reported(scan, lambda seen: [each.unhealthy for each in seen.checks] == [1, 1], report)


def problem_line(scan: ClusterScan, condition: str) -> list[str]:
    """The Machines that have such a condition, as far as the watches have brought it."""
    machines = [target.machine for target in scan.view.ledger.known(now()).machines.values()]
    return [machine.name for machine in machines if machine is not None and machine.condition(condition)]


def labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    """The same with other labels: of no other test's check."""
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def progress(path: str, status: str, message: str) -> dict[str, Any]:
    """The status of a ClusterVersion or a MachineConfigPool, as far as it says whether it is at work."""
    kind = "Progressing" if path == CLUSTER_VERSIONS else "Updating"
    condition = {"type": kind, "status": status, "message": message, "lastTransitionTime": stamp(now())}
    required = {"desired": {"version": "4.21.0"}, "observedGeneration": 1, "versionHash": "hash"}
    return {"conditions": [condition], **(required if path == CLUSTER_VERSIONS else {})}


class TestKindsThatCannotBeListed:
    """S18: what is not seen is never acted on, and stops nobody whom it does not concern."""

    @staticmethod
    async def furnish(person: ApiClient, system: System) -> None:
        """A sick node under a NodeHealthCheck, and another system's kinds beside it, of which nothing is used."""
        await system.install(person)
        await person.create(DEFINITIONS, definition())
        for number in range(4):
            await person.create(NODES, node(f"node-{number}"))
        await person.create(CHECKS, check("nodes", duration="0s"))
        await turn(person, "node-1", "False", since=now() - HOUR)

    async def test_checks_of_machines_that_were_never_listed_hold_up_no_check_of_nodes(
        self, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        path = "/apis/cluster.x-k8s.io/.*/machinehealthchecks$"
        refusal = api.faults.add(Fault(accident=Accident.STATUS, status=403, path=path, user_agent=OURS))
        await self.furnish(person, CLUSTER_API)
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.candidates) and not seen.view.stale)
        assert [candidate.refused for candidate in report.candidates] == [""]
        assert "machinehealthchecks" in report.view.notice
        await add_check(person, CLUSTER_API)
        api.faults.remove(refusal)
        report = await reported(scan, lambda seen: len(seen.checks) == 2, report)
        report = await reported(scan, lambda seen: seen.view.notice == "" and not seen.view.stale, report)
        assert of(report, CLUSTER_API.check_ref().key).reason != "StaleView"

    @pytest.mark.parametrize(("kind", "status"), [("clusterversions", 403), ("machineconfigpools", 500)])
    async def test_what_tells_of_upgrades_opens_the_circuit_breaker_by_name(
        self, kind: str, status: int, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        """An upgrade that nobody can see may be going on."""
        api.faults.add(Fault(accident=Accident.STATUS, status=status, path=f"/{kind}$", user_agent=OURS))
        await self.furnish(person, OPENSHIFT)
        scan = await open_scan()
        report = await reported(scan, lambda seen: bool(seen.checks) and bool(seen.checks[0].unhealthy) and not seen.view.stale)
        (seen,) = report.checks
        assert (seen.reason, seen.allowed) == ("StaleView", False)
        assert f"can't list {kind}" in seen.message
        assert not [candidate for candidate in report.candidates if not candidate.refused]

    async def test_a_kind_that_was_listed_once_and_is_lost_makes_the_whole_view_stale(
        self, api: ApiServer, person: ApiClient, open_scan: Open
    ) -> None:
        """A check that was seen may have changed since; it is known that there is one."""
        await self.furnish(person, CLUSTER_API)
        await add_check(person, CLUSTER_API)
        scan = await open_scan()
        report = await reported(scan, lambda seen: len(seen.checks) == 2 and not seen.view.stale)
        path = "/machinehealthchecks$"
        api.faults.add(Fault(accident=Accident.STATUS, status=500, path=path, user_agent=OURS))
        api.faults.add(Fault(accident=Accident.CUT_WATCHES, path=path, user_agent=OURS))
        report = await reported(scan, lambda seen: bool(seen.view.stale), report)
        assert "machinehealthchecks" in report.view.stale
        assert len(report.checks) == 2
