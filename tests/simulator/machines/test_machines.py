"""Machines of a simulated cluster: how they live, go, are replaced and fail, in each of the three systems."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simulator.client import ApiClient, ApiError
from simulator.cluster import SimulatedCluster
from simulator.control import describe
from simulator.machine_systems import MACHINE_SYSTEMS, machine_system_named
from simulator.machine_systems.contract import DELETES_FAILED, SetSighting
from simulator.machine_systems.remediation import DEFERRED, DELETING, OWNER_REMEDIATED, REMEDIATE, acts_of_set
from simulator.machines import MACHINE_CONTROLLERS, Fleet
from simulator.objects import JsonObject, condition_of, controller_of, name_of, timestamp, uid_of
from simulator.resources import NODES
from tests.simulator.machines.fleets import FAST, condition, with_machines

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


# The rules of the three systems of Machines, without a cluster: which Machine goes first, and what a set deletes by itself.

NOW = datetime.now(UTC)
PRESERVE = "node.machine.sapcloud.io/preserve"
LAST_APPLIED = "node.machine.sapcloud.io/last-applied-node-preserve-value"
PRIORITY = "machinepriority.machine.sapcloud.io"
MARKED = "machine.sapcloud.io/marked-for-deletion-time"


def machine(name: str, *, age: int = 60, annotations: dict[str, str] | None = None, **status: Any) -> JsonObject:
    created = timestamp(NOW - timedelta(seconds=age))
    metadata = {"name": name, "namespace": "any", "annotations": annotations or {}, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"providerID": f"simulated:///{name}"}, "status": status}


def of_gardener(name: str, phase: str = "Running", *, kept: float | None = None, **more: Any) -> JsonObject:
    """kept: for how many seconds it is still preserved."""
    current: JsonObject = {"phase": phase}
    if kept is not None:
        current["preserveExpiryTime"] = timestamp(NOW + timedelta(seconds=kept))
    return machine(name, currentStatus=current, **more)


def of_openshift(name: str, *, joined: bool = True, **more: Any) -> JsonObject:
    return machine(name, **_joined(name, joined), **more)


def of_cluster_api(name: str, *, joined: bool = True, conditions: dict[str, str] | None = None, **more: Any) -> JsonObject:
    listed = [{"type": kind, "status": status, "reason": "AsSaid"} for kind, status in (conditions or {}).items()]
    return machine(name, **_joined(name, joined), conditions=listed, **more)


def _joined(name: str, joined: bool) -> dict[str, Any]:
    return {"nodeRef": {"name": f"node-of-{name}"}} if joined else {}


def machine_set(system: str, *, deletes_failed: bool = False, **spec: Any) -> JsonObject:
    annotations = {DELETES_FAILED: "true"} if deletes_failed else {}
    return {"metadata": {"name": "set", "namespace": "any", "annotations": annotations}, "spec": spec}


GARDENERS_ORDER = [
    of_gardener("first-by-priority", annotations={PRIORITY: "1"}),
    of_gardener("marked", annotations={MARKED: timestamp(NOW - timedelta(seconds=9))}),
    of_gardener("marked-later", "Failed", annotations={MARKED: timestamp(NOW)}),
    of_gardener("failed", "Failed", age=5),
    of_gardener("expired", "Unknown", kept=-1),
    of_gardener("pending", "Pending"),
    of_gardener("older", age=90),
    of_gardener("younger", annotations={PRIORITY: "no number"}),
    of_gardener("spared-by-priority", "Failed", annotations={PRIORITY: "5"}),
    of_gardener("automatic", "Failed", kept=90_000, annotations={PRESERVE: "auto-preserved"}),
    of_gardener("asked-for", "Failed", kept=30_000, annotations={PRIORITY: "1"}),
    of_gardener("asked-for-longer", kept=60_000),
]
OPENSHIFTS_ORDER = [
    of_openshift("a-sick", errorMessage="gone"),
    of_openshift("b-marked", annotations={"machine.openshift.io/delete-machine": "yes"}),
    of_openshift("c-marked-of-old", annotations={"machine.openshift.io/cluster-api-delete-machine": "yes"}),
    of_openshift("without-node", joined=False),
    of_openshift("a-well", annotations={"machine.openshift.io/delete-machine": ""}, age=10),
    of_openshift("b-well", age=90),
]
CLUSTER_APIS_ORDER = [
    of_cluster_api("marked", annotations={"cluster.x-k8s.io/delete-machine": ""}),
    of_cluster_api("a-condemned", conditions={"NodeHealthy": "True", "HealthCheckSucceeded": "False"}),
    of_cluster_api("b-not-ready", conditions={"NodeHealthy": "False"}),
    of_cluster_api("c-without-node", joined=False),
    of_cluster_api("a-silent", conditions={"NodeHealthy": "Unknown"}, age=10),
    of_cluster_api("b-well", conditions={"NodeHealthy": "True"}, age=90),
]


@pytest.mark.parametrize(
    ("system", "spec", "expected"),
    [
        ("gardener", {}, [name_of(each) for each in GARDENERS_ORDER]),
        ("openshift", {}, [name_of(each) for each in OPENSHIFTS_ORDER]),
        ("openshift", {"deletePolicy": "Oldest"}, ["a-sick", "b-marked", "c-marked-of-old", "b-well", "without-node", "a-well"]),
        ("openshift", {"deletePolicy": "Newest"}, ["a-sick", "b-marked", "c-marked-of-old", "a-well", "without-node", "b-well"]),
        ("cluster-api", {}, [name_of(each) for each in CLUSTER_APIS_ORDER]),
        (
            "cluster-api",
            {"deletion": {"order": "Oldest"}},
            ["marked", "a-condemned", "b-not-ready", "c-without-node", "b-well", "a-silent"],
        ),
    ],
)
def test_the_order_of_scaling_down(system: str, spec: JsonObject, expected: list[str]) -> None:
    machines = {"gardener": GARDENERS_ORDER, "openshift": OPENSHIFTS_ORDER, "cluster-api": CLUSTER_APIS_ORDER}[system]
    rules, owner = machine_system_named(system), machine_set(system, **spec)
    for order in (machines, machines[::-1]):
        ranked = sorted(order, key=lambda each: rules.deletion_rank(each, owner))
        assert [name_of(each) for each in ranked] == expected


@pytest.mark.parametrize(
    ("sick", "node", "deleted"),
    [
        (of_gardener("m", "Failed"), {}, True),
        (of_gardener("m", "Unknown"), {}, False),
        (of_gardener("m", "Failed", kept=86_400), {}, False),
        (of_gardener("m", "Failed", kept=-1, annotations={PRESERVE: "now"}), {}, True),
        (of_gardener("m", "Failed", annotations={PRESERVE: "when-failed"}), {}, False),
        (of_gardener("m", "Failed", annotations={PRESERVE: "true"}), {}, True),
        (of_gardener("m", "Failed", annotations={PRESERVE: "now"}), {PRESERVE: "false"}, True),
        (of_gardener("m", "Failed"), {PRESERVE: "now"}, False),
        (of_gardener("m", "Failed", annotations={PRESERVE: "now", LAST_APPLIED: "now"}), {}, True),
    ],
)
def test_what_gardener_deletes_where_it_deletes_what_failed(sick: JsonObject, node: dict[str, str], deleted: bool) -> None:
    gardener = machine_system_named("gardener")
    sick["metadata"]["labels"] = {"node": "node-1"}
    found = {"metadata": {"name": "node-1", "annotations": node}}
    assert gardener.owners_act(sick, found, machine_set("gardener", deletes_failed=True)).delete is deleted
    assert not gardener.owners_act(sick, found, machine_set("gardener")).delete, "switched off it leaves all alone"


def test_a_system_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=f"expected one of {', '.join(MACHINE_SYSTEMS)}"):
        machine_system_named("mesos")


# How the sets of simulated Machines of Cluster API remediate what a health check has condemned.


def condemned_machine(name: str, *, second: int = 0, marked: bool = False, going: bool = False, well: bool = False) -> JsonObject:
    """One that was created in that second. going: its set is deleting it. Otherwise it is condemned, unless it is well."""
    reason = DELETING if going else "WaitingForRemediation"
    listed = [condition("HealthCheckSucceeded", "True" if well else "False", "AsJudged")]
    listed += [] if well else [condition(OWNER_REMEDIATED, "False", reason)]
    metadata = {
        "name": name,
        "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
        "annotations": {REMEDIATE: ""} if marked else {},
        **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if going else {}),
    }
    return {"metadata": metadata, "status": {"conditions": listed}}


def round_of(
    *machines: JsonObject, limit: int | str | None = None, replicas: int = 3, preflight: str = ""
) -> tuple[list[str], list[str]]:
    """Whom the set deletes, in order, and whom it tells to wait."""
    deployment = {"spec": {"replicas": replicas, **({} if limit is None else {"remediation": {"maxInFlight": limit}})}}
    seen = SetSighting(
        machine_set={}, machines=machines, node_of=lambda _: None, settings=FAST, deployment=deployment, preflight=preflight
    )
    acts = acts_of_set(seen)
    for each, act in acts:
        listed = condition_of({"status": act.status}, OWNER_REMEDIATED)
        assert listed is not None
        assert listed["reason"] == (DELETING if act.delete else DEFERRED), f"{name_of(each)} is told what becomes of it"
    return [name_of(each) for each, act in acts if act.delete], [name_of(each) for each, act in acts if not act.delete]


OLD, MIDDLE, NEW = condemned_machine("old", second=1), condemned_machine("middle", second=2), condemned_machine("new", second=3)


def test_the_newest_goes_first_unless_a_person_has_marked_another() -> None:
    assert round_of(OLD, NEW, MIDDLE) == (["new", "middle", "old"], [])
    assert round_of(OLD, NEW, MIDDLE, limit=1) == (["new"], ["middle", "old"])
    marked = condemned_machine("marked", second=0, marked=True)
    assert round_of(OLD, marked, NEW, limit=1) == (["marked"], ["new", "old"])
    assert round_of(condemned_machine("b", second=1), condemned_machine("a", second=1), limit=1) == (["a"], ["b"])
    assert round_of(OLD, condemned_machine("well", well=True)) == (["old"], [])


@pytest.mark.parametrize(
    ("limit", "replicas", "going", "deleted"),
    [
        (None, 3, 2, 3),
        (0, 3, 0, 0),
        (2, 3, 0, 2),
        (2, 3, 1, 1),
        (2, 3, 2, 0),
        (2, 3, 3, 0),
        ("34%", 3, 0, 2),
        ("33%", 3, 0, 1),
        ("1%", 3, 0, 1),
        ("0%", 3, 0, 0),
        ("100%", 3, 0, 3),
    ],
)
def test_as_many_at_once_as_the_deployment_lets_it(limit: int | str | None, replicas: int, going: int, deleted: int) -> None:
    on_their_way = [condemned_machine(f"going-{number}", going=True) for number in range(going)]
    found, waiting = round_of(OLD, MIDDLE, NEW, *on_their_way, limit=limit, replicas=replicas)
    assert (len(found), len(waiting)) == (deleted, 3 - deleted)
