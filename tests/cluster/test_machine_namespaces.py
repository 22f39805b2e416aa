"""S39, S46: in which namespaces Machines and MachineHealthChecks count: those that the setting machine_namespaces names, and that
of OpenShift's own operator. What a stranger writes elsewhere makes no Node their own, and calls none sick."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.acts.scan import ClusterScan
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import CONFIG_MAPS
from activities.cluster.api.served_cluster import Connections, ServedCluster
from activities.cluster.live.claims import Identities
from activities.contracts.preservation import GiveUpRequest, HoldRequest, Wish
from activities.contracts.remediation import RemediationPin
from activities.contracts.target import LookVerdict
from activities.errors import ErrorType
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.episode.messages import Need, NeedKind, RemediationInput
from policy.scan.explanation import MOST_IGNORED, explain
from policy.scan.scan_report import ScanReport
from policy.values.object_refs import FENCE_NAMESPACE
from simulator.client import ApiClient, ApiError
from starter.doctor import Level, health_checks
from tests.cluster.acts.world import CLUSTER, NODE, NOW, empty_world, refused
from tests.cluster.builders import CHECKS, DEFINITIONS, check, definition, node
from tests.cluster.conftest import Open
from tests.cluster.machines import (
    CLUSTER_API,
    COUNTING,
    OPENSHIFT,
    PAUSED,
    SYSTEMS,
    System,
    machine_of,
    sick_when_ready,
    turn,
)
from tests.cluster.scans import observe_until
from tests.cluster.skipping import now
from tests.cluster.test_snapshot import snapshot
from tests.licensing import LICENCES
from workers.configuration.settings import Settings

pytestmark = pytest.mark.timeout(20)

TENANTS = tuple(replace(system, namespace="tenant") for system in SYSTEMS)
"""The same kinds in a namespace of somebody else's."""
every_tenant = pytest.mark.parametrize("tenant", TENANTS, ids=str)
NAMES_TENANT = PolicySource(machines=("tenant",))
"""The trap works: so the tenant's objects would count."""
IGNORED = "Machines and MachineHealthChecks in tenant are ignored: the setting machine_namespaces does not name it"
EXPLAINED = "it is ignored: the setting machine_namespaces does not name tenant"


async def assail(person: ApiClient, tenant: System, *, name: str = "node-1", provider_id: str = "") -> None:
    """The tenant's Cluster, their Machine with the name and, where given, the providerID of a Node, the set above it, and their
    check."""
    await person.create("/api/v1/namespaces", {"metadata": {"name": tenant.namespace}})
    await tenant.add_cluster(person)
    await tenant.add_machine(person, "mine", node=name)
    if provider_id:
        await person.patch(tenant.path("machines", "mine"), {"spec": {"providerID": provider_id}})
    await person.create(tenant.path("machinehealthchecks"), sick_when_ready(tenant))


async def nodes_of_kubeadm(person: ApiClient, tenant: System) -> None:
    """The kinds, and nodes of no Machine; one of them has a kubelet that was taken over and names the tenant's objects."""
    await replace(tenant, namespace="clusters").install(person)
    await person.create("/api/v1/nodes", node("node-1", "True"))
    await person.create("/api/v1/nodes", node("node-2", "True", **tenant.ties("mine")))
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check(duration="0s", minHealthy=0))


async def watched(scan: ClusterScan) -> ScanReport:
    """Once the tenant's objects were seen."""
    return await observe_until(scan, None, lambda report: "tenant" in report.view.notice and not report.view.stale)


@every_tenant
async def test_s46_a_tenants_machine_and_check_have_no_node_repaired(tenant: System, person: ApiClient, open_scan: Open) -> None:
    """Of a Node without a Machine, of a kubeadm control plane for example. Cluster API's Machines are looked at once a Node names
    their Cluster, which a kubelet that was taken over does here."""
    await nodes_of_kubeadm(person, tenant)
    await assail(person, tenant)
    counting = await observe_until(await open_scan(source=NAMES_TENANT), None, lambda report: bool(report.candidates))
    assert [each.node for each in counting.candidates] == ["node-1"], "else this test would see nothing"
    scan = await open_scan(source=DEFAULT_SOURCE)
    report = await watched(scan)
    assert [each.ref.key for each in report.checks] == ["NodeHealthCheck/workers"]
    assert report.candidates == ()
    assert report.view.notice == IGNORED
    assert await tenant.check_status(person, "mine") == {}, "nothing is written on it"


@every_tenant
async def test_s46_nor_that_of_a_kubelet_which_names_it(
    tenant: System, person: ApiClient, open_scan: Open, connection: ClusterConnection
) -> None:
    """A Node's annotations are its kubelet's to write: they may hold its node back, as the label that excludes it."""
    await nodes_of_kubeadm(person, tenant)
    await assail(person, tenant, name="node-2")
    await turn(person, "node-2", "Unknown", since=now() - timedelta(hours=1))
    report = await watched(await open_scan(source=DEFAULT_SOURCE))
    assert [(each.node, each.check.key, each.refused) for each in report.candidates] == [
        ("node-2", "NodeHealthCheck/workers", "")
    ]
    await tenant.annotate(person, "machines", "mine", {PAUSED: ""})
    cluster = await snapshot(connection, DEFAULT_SOURCE)
    (opinion,) = explain(cluster.ledger.known(now()), "node-2").opinions
    assert PAUSED in opinion.target.held_by
    assert {each.check: each.why for each in explain(cluster.ledger.known(now()), "node-2").bystanders} == {
        "Machine/tenant/mine": EXPLAINED,
        tenant.check_ref("mine").key: EXPLAINED,
    }


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
@pytest.mark.parametrize("has_provider_id", [True, False])
async def test_s39_a_strangers_machine_contests_no_node_of_one_that_counts(
    has_provider_id: bool, system: System, person: ApiClient, open_scan: Open, connection: ClusterConnection
) -> None:
    """S44: with the same Node, or the same providerID and Node. Else a tenant would silence each repair; the other way round two
    Machines that count leave the Node alone."""
    await system.install(person)
    await system.fleet(person)
    await person.patch(system.path("machines", machine_of("node-1")), {"spec": {"providerID": "sim:///node-1"}})
    await person.create(system.path("machinehealthchecks"), system.check())
    await assail(person, replace(system, namespace="tenant"), provider_id="sim:///node-1" if has_provider_id else "")
    await turn(person, "node-1", "Unknown", since=now() - timedelta(hours=1))
    scan = await open_scan()
    report = await observe_until(scan, None, lambda seen: bool(seen.candidates) and not seen.view.stale)
    assert [(each.node, each.check, each.refused) for each in report.candidates] == [("node-1", system.check_ref(), "")]
    (mine,) = [each for each in scan.view.ledger.nodes() if each.name == "node-1"]
    for watched_by in (scan.view, None):
        identities = Identities(Connections(nodes=connection, machines=connection, machine_namespaces=COUNTING), watched_by)
        assert await identities.contested(mine) == ""
    both = Identities(Connections(nodes=connection, machines=connection, machine_namespaces=(*COUNTING, "tenant")))
    if system is OPENSHIFT:
        assert "Machine/tenant/mine" in await both.contested(mine), "else this test would see nothing"


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_s46_a_check_that_counts_no_more_is_gone_for_an_open_episode(system: System) -> None:
    """The setting is edited while it runs: the next look asks the workers that know it."""
    theirs = replace(system, namespace="clusters")
    async with empty_world() as world:
        await theirs.install(world.others)
        await theirs.add_cluster(world.others)
        await world.add_node(annotations=theirs.ties(NODE))
        await theirs.add_machine(world.others, machine_of(NODE), node=NODE)
        await world.others.create(theirs.path("machinehealthchecks"), theirs.check(timeout=60))
        await world.hold_cluster_lease()
        need = Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=theirs.check_ref())
        request = await world.look(need=need)
        assert (await world.target.last_look(request)).verdict is LookVerdict.GO
        restarted = ClusterTarget(ServedCluster(CLUSTER, world.connection, clock=world.clock), world.permits, LICENCES)
        found = await restarted.last_look(request)
        assert (found.verdict, found.seen.unhealthy) == (LookVerdict.NEED_GONE, False)
        await world.others.delete(theirs.path("machinehealthchecks", "workers"))
        gone = await world.target.last_look(request)
        assert (found.verdict, found.reason) == (gone.verdict, gone.reason), "as where it was deleted"


async def test_s46_no_version_in_a_reference_leads_to_a_check_that_does_not_count() -> None:
    """S41: a client of Temporal names the check of an episode, and the tenant has one by which a healthy node is sick."""
    tenant = replace(OPENSHIFT, namespace="tenant")
    async with empty_world() as world:
        await OPENSHIFT.install(world.others)
        await world.add_node()
        await world.set_ready("True", since=world.now - timedelta(hours=1))
        await assail(world.others, tenant, name=NODE)
        await world.hold_cluster_lease()
        theirs = tenant.check_ref("mine")
        path = f"{theirs.api_version}/namespaces/tenant/machinehealthchecks/{theirs.name}?x="
        need = Need(kind=NeedKind.CHECK, reason="x", check=replace(OPENSHIFT.check_ref(), api_version=path))
        looked = await world.target.last_look(await world.look(need=need))
        assert (looked.verdict, looked.seen.unhealthy) == (LookVerdict.NOT_LICENSED, False)
        assert "expected group, version and names of an object" in looked.reason


@every_tenant
@pytest.mark.parametrize("alone", [False, True])
async def test_s46_what_an_episode_begins_with_makes_no_machine_count(tenant: System, *, alone: bool) -> None:
    """Any client of Temporal may name one, by itself or beside a Node that it says is its own."""
    async with empty_world() as world:
        await replace(tenant, namespace="clusters").install(world.others)
        await world.others.create("/api/v1/namespaces", {"metadata": {"name": tenant.namespace}})
        await tenant.add_cluster(world.others)
        await world.add_node()
        await tenant.add_machine(world.others, "mine", node="" if alone else NODE)
        node, ref = f"machine/{tenant.namespace}/mine" if alone else NODE, tenant.machine_ref("mine")
        wanted = RemediationInput(cluster=CLUSTER, node=node, incident="i", machine=ref, strategies=("delete-machine",))
        kept = HoldRequest(cluster=CLUSTER, node="" if alone else node, machine=ref, wish=Wish(keep=True))
        given_up = GiveUpRequest(cluster=CLUSTER, node=node, machine=ref, machine_uid="", holder="", not_after=NOW)

        async def named(source: PolicySource) -> RemediationPin:
            served, run = ServedCluster(CLUSTER, world.connection, clock=world.clock, source=source), ActivityEnvironment().run
            preservation = ClusterPreservation(served, world.looks, world.permits)
            for act, request in ((preservation.hold, kept), (preservation.give_up, given_up)):
                if source is not NAMES_TENANT:
                    with refused(ErrorType.INVALID_CONFIG, EXPLAINED):
                        await run(act, request)
            return await run(ClusterRemediation(served, world.looks).pin, wanted)

        assert (await named(NAMES_TENANT)).machine == ref, "else this test would see nothing"
        with refused(ErrorType.INVALID_CONFIG, EXPLAINED):
            await named(DEFAULT_SOURCE)


async def test_s46_of_many_strangers_a_few_are_named(person: ApiClient, connection: ClusterConnection) -> None:
    """S44: and none of them is in the report, however many checks they make."""
    await OPENSHIFT.install(person)
    await person.create("/api/v1/nodes", node("node-1", "True"))
    for number in range(8):
        one = replace(OPENSHIFT, namespace=f"tenant-{number}")
        await person.create("/api/v1/namespaces", {"metadata": {"name": one.namespace}})
        for name in ("a", "b"):
            await person.create(one.path("machinehealthchecks"), one.check(name))
    cluster = await snapshot(connection, DEFAULT_SOURCE)
    many = "Machines and MachineHealthChecks in tenant-0, tenant-1, tenant-2 and 5 more are ignored"
    assert cluster.ledger.ignored_text == f"{many}: the setting machine_namespaces does not name them"
    assert len(explain(cluster.ledger.known(now()), "node-1").bystanders) == MOST_IGNORED
    assert cluster.ledger.report_parts(now()).checks == ()
    findings = [each.what for each in await health_checks(Settings(), connection, None) if each.level is Level.WARNING]
    assert cluster.ledger.ignored_text in findings


async def test_s46_other_clusters_of_a_management_cluster_are_nothing_to_be_told_of(
    person: ApiClient, connection: ClusterConnection
) -> None:
    await CLUSTER_API.install(person)
    await CLUSTER_API.fleet(person, 1)
    await person.create(CLUSTER_API.path("machinehealthchecks"), CLUSTER_API.check())
    await assail(person, TENANTS[-1])
    assert (await snapshot(connection)).ledger.ignored_text == ""


async def test_s46_a_fence_cluster_config_counts_in_its_own_namespace_alone() -> None:
    """A client of Temporal names the check of an episode, and a tenant may write ConfigMaps of any name."""
    async with empty_world() as world:
        await world.add_node()
        await world.set_ready("Unknown", since=world.now - timedelta(seconds=30))
        await world.hold_cluster_lease()
        for namespace, verdict in (("tenant", LookVerdict.NEED_GONE), (FENCE_NAMESPACE, LookVerdict.GO)):
            with suppress(ApiError):
                await world.others.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            config = {"metadata": {"name": "fence-cluster-config"}, "data": {"config.properties": "grace_timeout=1"}}
            await world.others.create(CONFIG_MAPS.path(namespace=namespace), config)
            check = CONFIG_MAPS.ref("fence-cluster-config", namespace)
            looked = await world.target.last_look(await world.look(need=Need(kind=NeedKind.CHECK, reason="x", check=check)))
            assert (namespace, looked.verdict, looked.reason) == (namespace, verdict, looked.reason)
