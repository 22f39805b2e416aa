"""What people who ask are told, read live: a cluster counted as a scanner counts it, and what there is of one target."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import Connections
from activities.cluster.objects.live_machines import find_target
from activities.cluster.watch.offline import ClusterSnapshot
from activities.cluster.watch.snapshot import take_snapshot
from policy.checks.fence_policies import PolicySource
from policy.checks.health_check import Overlap, RetryRules
from policy.remediation.ladder import Body, body_of
from policy.scan.explanation import OwnersRules, explain
from simulator.client import ApiClient
from tests.cluster.builders import (
    CHECKS,
    DEFINITIONS,
    NODES,
    check,
    definition,
    node,
    of_kind,
    owner,
    with_template_of,
    with_templates,
)
from tests.cluster.machines import CLUSTER_API, CLUSTER_NAME, COUNTING, OPENSHIFT, SYSTEMS, System, machine_of, turn
from tests.cluster.skipping import now
from tests.cluster.test_preserving import definition as definition_of

pytestmark = pytest.mark.timeout(10)


TRUSTED = PolicySource(templates=("nodewarden", *COUNTING), machines=COUNTING)


async def snapshot(connection: ClusterConnection, source: PolicySource = TRUSTED) -> ClusterSnapshot:
    return await take_snapshot(connection, machines=None, overlap=Overlap.STRICTEST, takeover=True, source=source)


async def test_a_node_with_a_remediation_object_is_not_yet_well(person: ApiClient, connection: ClusterConnection) -> None:
    """As the scanner has it, which follows such objects."""
    group = "self-node-remediation.medik8s.io"
    template = {"apiVersion": f"{group}/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "a", "namespace": "default"}
    await person.create(DEFINITIONS, definition())
    await person.create(DEFINITIONS, definition_of("SelfNodeRemediation", group=group))
    await with_template_of(person, template)
    created = await person.create(CHECKS, check(remediationTemplate=template))
    for number in range(3):
        await person.create(NODES, node(f"node-{number}"))
    of_check = {
        "apiVersion": created["apiVersion"],
        "kind": created["kind"],
        "name": "workers",
        "uid": created["metadata"]["uid"],
    }
    path = f"/apis/{group}/v1alpha1/namespaces/default/selfnoderemediations"
    await person.create(path, of_kind("SelfNodeRemediation", path, name="node-1", ownerReferences=[of_check]))
    (seen,) = (await snapshot(connection)).ledger.report_parts(now()).checks
    assert (seen.total, seen.healthy, seen.recovering) == (3, 2, 1)


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
async def test_machines_are_read_in_whatever_version_there_is(
    system: System, person: ApiClient, connection: ClusterConnection
) -> None:
    await with_templates(person, system.namespace)
    await system.install(person)
    await system.fleet(person, 2)
    await person.create(system.path("machinehealthchecks"), system.check())
    await turn(person, "node-1", "Unknown", since=now() - timedelta(hours=1))
    found = await snapshot(connection)
    (seen,) = found.ledger.report_parts(now()).checks
    assert (seen.total, seen.healthy, seen.unhealthy, seen.allowed) == (2, 1, 1, True)
    assert found.mistakes == []


async def test_a_paused_cluster_is_told_of_also_where_only_nodes_are_checked(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """S44: as the scanner has it, which follows Clusters as soon as a Node names one."""
    await CLUSTER_API.install(person)
    await CLUSTER_API.fleet(person, 2)
    await with_templates(person, "nodewarden")
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check(duration="0s", minHealthy=0))
    await turn(person, "node-1", "Unknown", since=now() - timedelta(hours=1))
    await person.patch(CLUSTER_API.path("clusters", CLUSTER_NAME), {"spec": {"paused": True}})
    (opinion,) = explain((await snapshot(connection)).ledger.known(now()), "node-1").opinions
    assert opinion.target.held_by == f"its Cluster is paused: spec.paused of Cluster {CLUSTER_NAME} is true"
    assert opinion.unblock[0].startswith("end the pause of the Cluster")


async def test_a_machine_that_claims_a_node_is_seen_also_where_only_nodes_are_checked(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """S39: as the scanner has it, which follows Machines from the first check on."""
    await OPENSHIFT.install(person)
    await with_templates(person, "nodewarden")
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check(duration="0s", minHealthy=0))
    for name in ("node-1", "node-2"):
        await person.create(NODES, node(name))
    await turn(person, "node-1", "Unknown", since=now() - timedelta(hours=1))
    await OPENSHIFT.add_machine(person, machine_of("node-2"), node="node-2")
    await person.patch(OPENSHIFT.path("machines", machine_of("node-2")), {"spec": {"providerID": "sim:///node-1"}})
    (opinion,) = explain((await snapshot(connection)).ledger.known(now()), "node-1").opinions
    assert "node-2" in opinion.target.held_by


async def test_what_a_control_plane_says_of_its_own_remediations_is_read(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """Only where it owns a Machine: whoever asks needs no rights on kinds that are not there."""
    await CLUSTER_API.install(person)
    await CLUSTER_API.fleet(person, 2)
    await person.create(CLUSTER_API.path("machinehealthchecks"), CLUSTER_API.check(template=False))
    path = CLUSTER_API.path("kubeadmcontrolplanes").replace("/cluster.x-k8s.io/", "/controlplane.cluster.x-k8s.io/")
    reference = {"apiGroup": "example.io", "kind": "ExampleMachineTemplate", "name": "t"}
    spec = {"replicas": 3, "version": "v1.31.0", "machineTemplate": {"spec": {"infrastructureRef": reference}}}
    spec |= {"kubeadmConfigSpec": {}, "remediation": {"maxRetry": 5, "retryPeriodSeconds": 600}}
    kcp = await person.create(path, of_kind("KubeadmControlPlane", path, name="kcp", spec=spec))
    assert (await snapshot(connection)).owners == {}
    of_kcp = owner(kcp["kind"], "kcp", api_version=kcp["apiVersion"], uid=kcp["metadata"]["uid"])
    machine = CLUSTER_API.path("machines", machine_of("node-1"))
    await person.patch(machine, {"metadata": {"ownerReferences": [of_kcp]}})
    found = await snapshot(connection)
    theirs = RetryRules(max_retry=5, retry_period=timedelta(minutes=10))
    assert found.owners == {"clusters/kcp": OwnersRules(rules=theirs)}
    outlook = explain(found.ledger.known(found.now), "node-1", found.owners).outlook
    assert outlook is not None
    assert outlook.owners_own is not None
    assert (outlook.owners_own.owner, outlook.owners_own.rules) == ("KubeadmControlPlane/kcp", theirs)
    assert found.mistakes == []


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
async def test_a_node_is_read_with_its_machine_and_the_owner_of_that(
    system: System, person: ApiClient, connection: ClusterConnection
) -> None:
    await system.install(person)
    await system.fleet(person, 1)
    await system.add_machine(person, "never-came")
    for machine in (machine_of("node-0"), "never-came"):
        await person.patch(system.path("machines", machine), {"metadata": {"ownerReferences": [owner("MachineSet")]}})
    connections = Connections(nodes=connection, machines=connection, machine_namespaces=COUNTING)
    both = await find_target(connections, "node-0")
    assert both is not None
    assert body_of(both) == Body(has_node=True, phase="Running", owner="MachineSet/set")
    alone = await find_target(connections, f"machine/{system.namespace}/never-came")
    assert alone is not None
    assert body_of(alone) == Body(has_node=False, phase="Provisioned", owner="MachineSet/set")


async def test_a_node_of_no_machine_has_only_itself_and_what_is_not_there_nothing(
    person: ApiClient, connection: ClusterConnection
) -> None:
    await person.create(NODES, node("node-0"))
    connections = Connections(nodes=connection, machines=connection, machine_namespaces=COUNTING)
    alone = await find_target(connections, "node-0")
    assert alone is not None
    assert body_of(alone) == Body(has_node=True)
    for name in ("node-9", "machine/default/w-1", "machine/w-1"):
        assert await find_target(connections, name) is None
