"""A machine that is kept and that others delete, or whose set is to have fewer: read live from the sets above it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.last_look import LastLook
from activities.contracts.preservation import Hold, HoldRequest, Wish
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import EXPIRY_ANNOTATION
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from simulator.cluster import SimulatedCluster
from simulator.machine_systems.contract import KNOWS_NO_EXPIRY
from tests.cluster.acts.world import Permits
from tests.cluster.builders import owner
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, OPERATORS, System
from tests.cluster.test_preserving import (
    DEFINITIONS,
    GROUP,
    MACHINE,
    MACHINES,
    REF,
    Object,
    Surroundings,
    condition,
    definition,
    machine,
    node,
)
from tests.simulator.machines.test_machines import MARKS, with_machines

pytestmark = pytest.mark.timeout(40)


WAITS = ["example.com/wait"]


class Fleet:
    """One kept machine of a MachineSet `set`, in one system; sets are made as a test wants them."""

    def __init__(self, person: ApiClient, connection: ClusterConnection, system: System | None) -> None:
        """system: None for machine-controller-manager."""
        self.world = Surroundings(person, connection)
        self._system = system
        self._group = system.group if system else GROUP
        self._version = system.version if system else "v1alpha1"
        self._namespace = system.namespace if system else "shoot"
        self._machine = f"{MACHINES}/w-7" if system is None else system.path("machines", MACHINE)
        self._ref = REF if system is None else system.machine_ref(MACHINE)

    async def begin(self) -> None:
        """It is kept, and waits for somebody once it is deleted."""
        person = self.world.person
        if self._system is None:
            await person.create(DEFINITIONS, definition())
            await person.create("/api/v1/namespaces", {"metadata": {"name": "shoot"}})
            await self.world.has(node(), machine())
        else:
            await self._system.install(person)
            await self._system.add_cluster(person)
            await person.create("/api/v1/nodes", self._system.node("node-7"))
            await self._system.add_machine(person, MACHINE, node="node-7")
        owners = [owner("MachineSet", api_version=f"{self._group}/{self._version}")]
        await person.patch(self._machine, {"metadata": {"ownerReferences": owners, "finalizers": WAITS}})
        for kind in ("MachineSet", "MachineDeployment"):
            made = definition(kind, group=self._group, served=self._version)
            if not await self._knows(made["metadata"]["name"]):
                await person.create(DEFINITIONS, made)
        begun = await self.hold(wish=Wish(keep=True))
        assert (begun.preserved, begun.override, begun.owner) == (True, "", "MachineSet/set")
        self.begun = begun

    async def _knows(self, name: str) -> bool:
        return name in {each["metadata"]["name"] for each in (await self.world.person.list(DEFINITIONS))["items"]}

    async def hold(self, **changes: object) -> Hold:
        return await self.world.hold(machine=self._ref, **changes)

    async def again(self) -> Hold:
        """As its episode looks again."""
        begun = self.begun
        return await self.hold(node_uid=begun.node_uid, machine_uid=begun.machine_uid, owner=begun.owner)

    async def has(self, kind: str, name: str, *, above: str = "", replicas: int, revision: str = "") -> None:
        version = f"{self._group}/{self._version}"
        metadata: Object = {"name": name, "annotations": {"deployment.kubernetes.io/revision": revision} if revision else {}}
        if above:
            metadata["ownerReferences"] = [owner("MachineDeployment", above, api_version=version, uid=f"uid-{above}")]
        made: Object = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"replicas": replicas}}
        if self._group == CLUSTER_API.group:
            template = {"clusterName": "blue", "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": INFRASTRUCTURE}
            made["spec"] |= {"clusterName": "blue", "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": template}}
        path = f"/apis/{version}/namespaces/{self._namespace}/{kind.lower()}s"
        await self.world.person.create(path, made)

    async def delete(self) -> None:
        """By somebody, or by its set: nobody can tell that from the Machine."""
        await self.world.person.delete(self._machine)

    async def machine(self) -> Object:
        return await self.world.person.get(self._machine)

    async def let_go(self) -> None:
        """Its controller is done with it."""
        await self.world.person.patch(self._machine, {"metadata": {"finalizers": []}})


INFRASTRUCTURE = {"apiGroup": "example.io", "kind": "ExampleMachine", "name": "x"}
ALL = pytest.mark.parametrize("fleet", [None, OPENSHIFT, CLUSTER_API], ids=["mcm", "openshift", "cluster-api"], indirect=True)
WITH_DEPLOYMENTS = pytest.mark.parametrize("fleet", [None, CLUSTER_API], ids=["mcm", "cluster-api"], indirect=True)


@pytest.fixture
async def fleet(request: pytest.FixtureRequest, person: ApiClient, connection: ClusterConnection) -> Fleet:
    made = Fleet(person, connection, request.param)
    await made.begin()
    return made


async def ended(fleet: Fleet, override: str, *words: str) -> None:
    """The preservation ends with the next look, which says why, on the Node as well; another one has nothing left to say."""
    hold = await fleet.again()
    assert (hold.preserved, hold.override) == (False, override)
    for word in ("the machine is being deleted", *words):
        assert word in hold.gone
    there = condition(await fleet.world.node())
    assert (there["status"], override in there["message"]) == ("False", True)
    found = await fleet.machine()
    assert EXPIRY_ANNOTATION not in (found["metadata"].get("annotations") or {})
    assert not ((found.get("status") or {}).get("currentStatus") or {}).get("preserveExpiryTime")
    again = await fleet.again()
    assert (again.override, again.changed) == (override, ())


@ALL
async def test_an_explicit_deletion_ends_it_and_says_how_many_its_set_is_to_have(fleet: Fleet) -> None:
    """S21, S26."""
    await fleet.has("MachineSet", "set", replicas=3)
    await fleet.delete()
    await ended(fleet, "deletion", "asked for by a person or a program, or by MachineSet set, which is to have 3")


@ALL
async def test_a_set_that_is_scaled_to_nothing_ends_it(fleet: Fleet) -> None:
    """Hibernation; S21. Also where nobody looked before the Machine was gone."""
    await fleet.has("MachineSet", "set", replicas=0)
    await fleet.delete()
    await ended(fleet, "hibernation", "MachineSet set is scaled to 0")
    await fleet.let_go()
    hold = await fleet.again()
    assert (hold.override, hold.gone) == ("hibernation", "the Machine is gone, hibernation: MachineSet set is scaled to 0")


@WITH_DEPLOYMENTS
async def test_a_deployment_that_is_scaled_to_nothing_ends_it(fleet: Fleet) -> None:
    """Hibernation; S21."""
    await fleet.has("MachineDeployment", "pool", replicas=0)
    await fleet.has("MachineSet", "set", above="pool", replicas=1)
    await fleet.delete()
    await ended(fleet, "hibernation", "MachineDeployment pool is scaled to 0")


@WITH_DEPLOYMENTS
async def test_a_rolling_update_ends_it(fleet: Fleet) -> None:
    """S21: the sets of another deployment say nothing."""
    await fleet.has("MachineDeployment", "pool", replicas=2)
    await fleet.has("MachineSet", "set", above="pool", replicas=1, revision="7")
    await fleet.has("MachineSet", "other", above="elsewhere", replicas=5, revision="9")
    await fleet.has("MachineSet", "set-new", above="pool", replicas=1, revision="8")
    await fleet.delete()
    await ended(
        fleet, "rolling update", "MachineDeployment pool replaces the machines of MachineSet set by those of MachineSet set-new"
    )


@pytest.mark.parametrize("fleet", [CLUSTER_API], ids=["cluster-api"], indirect=True)
async def test_while_its_deployment_is_rolled_an_undeleted_machine_is_kept(fleet: Fleet) -> None:
    """S21, S22: an update that is paused, or waits for others, is no reason to give it up."""
    await fleet.has("MachineDeployment", "pool", replicas=2)
    await fleet.has("MachineSet", "set", above="pool", replicas=1, revision="7")
    await fleet.has("MachineSet", "set-new", above="pool", replicas=1, revision="8")
    hold = await fleet.again()
    assert (hold.preserved, hold.override, hold.expiry) == (True, "", fleet.begun.expiry)


@pytest.mark.parametrize("fleet", [None], ids=["mcm"], indirect=True)
async def test_sets_that_are_not_there_hinder_no_end(fleet: Fleet) -> None:
    await fleet.delete()
    await ended(fleet, "deletion", "no MachineSet is known above it")
    for plural in ("machinesets", "machinedeployments"):
        await fleet.world.person.delete(f"{DEFINITIONS}/{plural}.{fleet._group}")
    assert (await fleet.again()).override == "deletion"


@pytest.mark.parametrize("fleet", [OPENSHIFT], ids=["openshift"], indirect=True)
async def test_sets_that_may_not_be_read_hinder_no_end(fleet: Fleet, api: ApiServer) -> None:
    """Under rights of an earlier version."""
    await fleet.delete()
    api.faults.add(Fault(verb="get", path="/machinesets/", accident=Accident.STATUS, status=403))
    await ended(fleet, "deletion", "what is above it can't be read")


async def test_a_node_alone_that_is_deleted_is_no_longer_kept(person: ApiClient, connection: ClusterConnection) -> None:
    world = Surroundings(person, connection)
    await world.has(node(**{PRESERVE_ANNOTATION: "now"}), None)
    begun = await world.hold(machine=None)
    await person.delete("/api/v1/nodes/node-7")
    hold = await world.hold(machine=None, node_uid=begun.node_uid)
    assert (hold.override, hold.gone) == (
        "deletion",
        "node-7: there is no such Node or Machine, deletion: the Node was deleted",
    )


async def test_another_node_of_a_machine_that_is_there_is_no_deletion(person: ApiClient, connection: ClusterConnection) -> None:
    """S9."""
    fleet = Fleet(person, connection, None)
    await fleet.begin()
    fleet.begun = replace(fleet.begun, node_uid="another")
    hold = await fleet.again()
    assert (hold.gone, hold.override) == ("another Node has taken the name", "")
    assert fleet.begun.expiry is not None
    assert fleet.begun.expiry > fleet.begun.at + timedelta(hours=1)


SET = "workers-zone-a"


async def kept(cluster: SimulatedCluster, name: str, **changes: Any) -> Hold:
    """By a person; or looked at again."""
    async with ClusterConnection.to(cluster.address.url, token=cluster.address.token) as connection:
        activities = ClusterPreservation(
            ServedCluster("sim", connection, source=OPERATORS),
            LastLook(ServedCluster("prod", connection, source=OPERATORS), Permits()).look,
            Permits(),
        )
        request = HoldRequest(cluster="sim", **({"node": cluster.machines.node_of(name), "wish": Wish(keep=True)} | changes))
        found = await ActivityEnvironment().run(activities.hold, request)
    assert isinstance(found, Hold)
    return found


async def until_left(cluster: SimulatedCluster, *names: str) -> None:
    await cluster.wait_until(lambda: cluster.machines.names == sorted(names), what=f"only {', '.join(names)} are left")


@pytest.mark.parametrize("older", [False, True], ids=["by expiry", "by priority"])
async def test_of_two_machines_the_one_that_is_not_kept_goes(*, older: bool) -> None:
    """S21: whether or not the controller knows of preservation, which is by nothing else than what we write; the younger and the
    failed ones go first there, and where only kept ones are left, the number of replicas is honoured."""
    async with with_machines("gardener") as cluster:
        fleet = cluster.machines
        if older:
            path = fleet.system.machine_sets.path(SET, namespace=fleet.system.namespace)
            await cluster.client.patch(path, {"metadata": {"annotations": {KNOWS_NO_EXPIRY: "true"}}})
        for name in ("machine-1", "machine-2"):
            assert (await kept(cluster, name)).preserved
        await fleet.scale(SET, 2)
        await until_left(cluster, "machine-1", "machine-2")
        await fleet.scale(SET, 1)
        await cluster.wait_until(lambda: len(fleet.names) == 1, what="the number of replicas is honoured")


@pytest.mark.parametrize("system", ["openshift", "cluster-api"])
async def test_where_there_is_no_lever_the_marked_one_goes(system: str) -> None:
    """Nothing is written there; by name it would have been the first one's turn."""
    async with with_machines(system) as cluster:
        hold = await kept(cluster, "machine-1")
        assert (hold.preserved, hold.warnings) == (True, ())
        await cluster.machines.annotate("machine-2", MARKS[system])
        await cluster.machines.scale(SET, 2)
        await until_left(cluster, "machine-1", "machine-3")
