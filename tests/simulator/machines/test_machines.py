"""Machines of a simulated cluster: how they live, go, are replaced and fail, in each of the three systems."""

from __future__ import annotations

import pytest

from simulator.client import ApiClient, ApiError
from simulator.cluster import SimulatedCluster
from simulator.control import describe
from simulator.machines import MACHINE_CONTROLLERS, Fleet
from simulator.objects import JsonObject, controller_of, uid_of
from simulator.resources import NODES
from tests.simulator.machines.fleets import with_machines

pytestmark = pytest.mark.timeout(40)

PERSON = "person"
TIES: dict[str, JsonObject] = {
    "gardener": {},
    "openshift": {"machine.openshift.io/machine": "openshift-machine-api/machine-2"},
    "cluster-api": {
        "cluster.x-k8s.io/cluster-name": "simulated",
        "cluster.x-k8s.io/cluster-namespace": "clusters",
        "cluster.x-k8s.io/machine": "machine-2",
        "cluster.x-k8s.io/owner-kind": "MachineSet",
        "cluster.x-k8s.io/owner-name": "workers-zone-a",
    },
}
MARKS = {
    "gardener": {"machinepriority.machine.sapcloud.io": "1"},
    "openshift": {"machine.openshift.io/delete-machine": "true"},
    "cluster-api": {"cluster.x-k8s.io/delete-machine": ""},
}


async def delete(cluster: SimulatedCluster, name: str, *, uid: str = "", resource_version: str = "") -> None:
    """As somebody from outside does it."""
    system = cluster.machines.system
    async with ApiClient(cluster.address, user_agent=PERSON) as person:
        path = system.machines.path(name, namespace=system.namespace)
        await person.delete(path, uid=uid, resource_version=resource_version)


async def until_replaced(cluster: SimulatedCluster, name: str, *, running: int = 3) -> None:
    fleet = cluster.machines
    await cluster.wait_until(
        lambda: name not in fleet.names and len(fleet.in_phase("Running")) == running, what=f"{name} is replaced"
    )


def steps_of(fleet: Fleet, name: str) -> list[str]:
    return [event.what for event in fleet.history if event.machine == name]


@pytest.mark.parametrize("system", TIES)
async def test_a_deleted_machine_is_replaced_and_a_smaller_set_gives_the_marked_one_up(system: str) -> None:
    async with with_machines(system) as cluster:
        fleet = cluster.machines
        assert fleet.names == fleet.in_phase("Running") == ["machine-1", "machine-2", "machine-3"]
        machine = fleet.machine("machine-2")
        assert machine is not None
        assert (fleet.of_node("node-2"), fleet.node_of("machine-2")) == ("machine-2", "node-2")
        owner = controller_of(machine)
        assert owner is not None
        assert (owner["kind"], owner["name"]) == ("MachineSet", "workers-zone-a")
        assert machine["metadata"]["finalizers"] == [fleet.system.finalizer]
        node = await cluster.client.get(NODES.path("node-2"))
        assert node["spec"]["providerID"] == machine["spec"]["providerID"]
        annotations = node["metadata"].get("annotations") or {}
        assert {key: annotations.get(key) for key in TIES[system]} == TIES[system]
        assert describe(cluster)["machines"]["machine-2"] == {"node": "node-2", "phase": "Running"}

        old = cluster.node("node-2")
        with pytest.raises(ApiError, match="409"):
            await delete(cluster, "machine-2", uid="of-somebody-else")
        version = machine["metadata"]["resourceVersion"]
        await delete(cluster, "machine-2", uid=uid_of(machine), resource_version=version)
        await until_replaced(cluster, "machine-2")
        assert steps_of(fleet, "machine-2") == ["switched-off", "destroyed", "node-removed", "released"]
        assert not old.is_on
        old.power_on()
        assert not old.is_on, "what is destroyed does not come back"
        with pytest.raises(ApiError, match="404"):
            await cluster.client.get(NODES.path("node-2"))
        assert sorted(cluster.nodes) == ["node-1", "node-3", "node-4"]
        new = fleet.of_node("node-4")
        assert new.startswith("workers-zone-a-")
        asked = [(each.machine, each.user_agent, each.user, each.status) for each in fleet.deletions()]
        assert asked == [("machine-2", PERSON, "admin", 409), ("machine-2", PERSON, "admin", 200)]
        refused, granted = fleet.deletions("machine-2")
        assert (refused.uid, refused.resource_version) == ("of-somebody-else", "")
        assert (granted.uid, granted.resource_version) == (uid_of(machine), version)
        assert not granted.by_controllers

        await fleet.annotate("machine-3", MARKS[system])
        await fleet.scale("workers-zone-a", 2)
        await cluster.wait_until(lambda: fleet.names == sorted(["machine-1", new]), what="one Machine less")
        assert [(each.machine, each.user_agent) for each in fleet.deletions()[2:]] == [("machine-3", MACHINE_CONTROLLERS)]

        def counted() -> JsonObject:
            machine_set = fleet.view.machine_sets.get(f"{fleet.system.namespace}/workers-zone-a") or {}
            status: JsonObject = machine_set.get("status") or {}
            return status

        await cluster.wait_until(lambda: (counted()["replicas"], counted()["readyReplicas"]) == (2, 2), what="the set's status")


async def test_a_machine_of_gardener_whose_node_dies_is_unknown_then_failed_and_running_again_when_the_node_is() -> None:
    async with with_machines("gardener") as cluster:
        fleet = cluster.machines
        cluster.break_node("node-1", "kubelet-stops")
        await cluster.wait_until(lambda: fleet.phase("machine-1") == "Unknown", what="Unknown")
        expiry = {"preserveExpiryTime": "2199-01-01T00:00:00Z"}
        await fleet.set_status("machine-1", {"currentStatus": expiry})
        await cluster.wait_until(lambda: fleet.phase("machine-1") == "Failed", what="Failed")
        # A second one may fail because the first is preserved, a third may not: one is given up at a time.
        cluster.break_node("node-2", "runtime-down")
        await cluster.wait_until(lambda: fleet.phase("machine-2") == "Failed", what="the second Failed")
        cluster.break_node("node-3", "runtime-down")
        await cluster.wait_until(lambda: fleet.phase("machine-3") == "Unknown", what="the third Unknown")
        cluster.heal_node("node-1")
        await cluster.wait_until(lambda: fleet.phase("machine-1") == "Running", what="Running again")
        machine = fleet.machine("machine-1")
        assert machine is not None
        assert machine["status"]["currentStatus"].items() >= expiry.items(), "its controller leaves the expiry alone"
        assert fleet.phase("machine-3") == "Unknown"
        await delete(cluster, "machine-2")
        await cluster.wait_until(lambda: fleet.phase("machine-3") == "Failed", what="the third Failed in its turn")
        assert len(fleet.in_phase("Running")) == 2, "only once the second had been replaced"
        assert [each.machine for each in fleet.deletions()] == ["machine-2"], "nobody deletes what is Failed by itself"


def _node(cluster: SimulatedCluster, name: str) -> JsonObject:
    node = cluster.view.nodes.get(name)
    assert node is not None
    return node
