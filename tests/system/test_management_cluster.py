"""Machines and their health check in a management cluster, their nodes in a workload cluster: two API servers, one episode.

The check is Cluster API's own, as it is written today; its template is ours, so that the node is fenced instead of its Machine
replaced. Two more clusters are managed from there, of which nothing may be touched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from policy.checks.circuit_breakers import OpenReason
from policy.episode.messages import Outcome
from policy.scan.scan_report import CheckReport
from simulator.client import ApiClient
from tests.cluster.machines import CLUSTER_API, machine_of
from tests.system.fixtures import Standing
from tests.system.harness import TEMPLATE, TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.real_api import api_server

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

CAPI = replace(CLUSTER_API, namespace=TEMPLATE_NAMESPACE)
"""A check's template lives in the check's namespace."""

REMEDIATION = {
    "templateRef": {"apiVersion": TEMPLATES.api_version, "kind": TEMPLATES.kind, "name": TEMPLATE},
    "triggerIf": {"unhealthyLessThanOrEqualTo": "40%"},
}


@dataclass(slots=True, kw_only=True)
class World:
    """Both clusters, and somebody who may do anything in the management cluster."""

    system: System
    person: ApiClient

    async def check(self, name: str = "workers") -> CheckReport | None:
        """What the scanner says of a MachineHealthCheck."""
        scanner = await self.system.scanner()
        checks = scanner.report.checks if scanner is not None and scanner.report is not None else ()
        return next((each for each in checks if each.ref.name == name), None)


@pytest.fixture(scope="module")
async def world(standing: Standing, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("management")
    async with api_server(folder) as management, ApiClient(management) as person:
        (folder / "token").write_text(management.token)
        await CAPI.install(person)
        authority = management.certificate_authority
        machines = {"server": management.url, "token_file": str(folder / "token"), "ca_file": authority}
        settings = {"machine_namespaces": [CAPI.namespace]}
        async with standing(nodes=4, zones=2, machines=machines, settings=settings) as system:
            await furnish(person, system)
            await system.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), system.fencing_template())
            await system.start_worker()
            await system.start_scanner()
            yield World(system=system, person=person)


async def furnish(person: ApiClient, system: System) -> None:
    """A Machine for each node, tied as Cluster API ties them; and another cluster whose nodes have the same names."""
    await CAPI.add_cluster(person)
    await CAPI.add_cluster(person, "green")
    for name in system.cluster.nodes:
        await system.client.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": CAPI.ties(name)}})
        await CAPI.add_machine(person, machine_of(name), node=name)
        await CAPI.add_machine(person, f"green-{name}", node=name, cluster="green")
    await person.create(CAPI.path("machinehealthchecks"), CAPI.check(timeout=1, remediation=REMEDIATION))
    green = CAPI.check("green", timeout=1, remediation=REMEDIATION, clusterName="green")
    await person.create(CAPI.path("machinehealthchecks"), green)


async def test_a_node_is_fenced_because_of_its_machines_health_check_in_another_cluster(world: World) -> None:
    """S1, S9: judged by objects of two API servers, looked at live in both, acted on in one."""
    system = world.system
    before = system.break_node("node-2", "kubelet-stops")
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert await system.judge(before, result) == []

    async def told() -> bool:
        status = await CAPI.check_status(world.person)
        return (status.get("expectedMachines"), status.get("currentHealthy")) == (4, 4)

    await system.until(told, "the check's status counts all four as healthy again")
    allowed = CAPI.newer_conditions(await CAPI.check_status(world.person))["RemediationAllowed"]
    assert (allowed["status"], allowed["reason"]) == ("True", "RemediationAllowed")
    machine = await world.person.get(CAPI.path("machines", machine_of("node-2")))
    assert "deletionTimestamp" not in machine["metadata"]


async def test_what_belongs_to_another_cluster_is_left_alone(world: World) -> None:
    """Its Nodes, whose names are the same, are not seen from here: somebody else looks after it."""
    found = await world.check("green")
    assert found is not None
    assert (found.reason, found.healthy) == (OpenReason.ELSEWHERE, 0)
    assert await CAPI.check_status(world.person, "green") == {}
    machine = await world.person.get(CAPI.path("machines", "green-node-2"))
    assert "HealthCheckSucceeded" not in CAPI.newer_conditions(machine["status"])
