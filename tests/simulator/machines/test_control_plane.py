"""How a simulated KubeadmControlPlane remediates: one Machine at a time, and never what it could not do without."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simulator.cluster import SimulatedCluster
from simulator.etcd import EtcdMember
from simulator.machine_systems.control_plane import (
    COMPONENTS,
    ETCD_MEMBER,
    IN_PROGRESS,
    REMEDIATION_FOR,
    Attempt,
    decide,
    etcd_survives,
    may_grow,
)
from simulator.machine_systems.remediation import CANNOT, DEFERRED, DELETING
from simulator.node import NodeFault
from simulator.objects import JsonObject, controller_of, name_of, timestamp
from tests.simulator.machines.fleets import condition, judge, status_of, with_machines

pytestmark = pytest.mark.timeout(40)

NOW = datetime.now(UTC).replace(microsecond=0)
ALL = (*COMPONENTS, ETCD_MEMBER)


def machine(
    name: str,
    *,
    sick: bool = False,
    joined: bool = True,
    broken: tuple[str, ...] = (),
    going: bool = False,
    age: int = 100,
    annotations: dict[str, str] | None = None,
) -> JsonObject:
    """One whose node has its name. sick: condemned. broken: the conditions that are not True."""
    listed = [condition("HealthCheckSucceeded", "False" if sick else "True", "AsJudged")]
    listed += [condition("OwnerRemediated", "False", "WaitingForRemediation")] if sick else []
    listed += [condition(each, "Unknown" if each in broken else "True", "Seen") for each in ALL]
    return {
        "metadata": {
            "name": name,
            "labels": {},
            "annotations": annotations or {},
            "creationTimestamp": timestamp(NOW - timedelta(seconds=age)),
            **({"deletionTimestamp": timestamp(NOW)} if going else {}),
        },
        "status": {"conditions": listed, **({"nodeRef": {"name": name}} if joined else {})},
    }


def sick(name: str, **more: Any) -> JsonObject:
    return machine(name, sick=True, **{"broken": ALL, **more})


def control_plane(*, initialized: bool = True, mark: str = "", remediation: dict[str, int] | None = None) -> JsonObject:
    return {
        "metadata": {"name": "control-plane", "annotations": {IN_PROGRESS: mark} if mark else {}},
        "spec": {"replicas": 3, "remediation": remediation or {}},
        "status": {"initialization": {"controlPlaneInitialized": initialized}},
    }


def members(*names: str) -> list[EtcdMember]:
    return [EtcdMember(name=name) for name in names]


M1, M2, M3 = sick("m1"), machine("m2"), machine("m3")
THREE = members("m1", "m2", "m3")
ADDED = EtcdMember(name="m4", learner=True)
MARK = Attempt(machine="gone", at=NOW, retries=0).written()


@pytest.mark.parametrize(
    ("machines", "known", "owner", "expected"),
    [
        ([machine("m1"), M2, M3], THREE, control_plane(), None),
        ([M1, M2, M3], THREE, control_plane(), "m1 is deleted"),
        ([M1, M2], members("m1", "m2"), control_plane(), "m1 is deleted"),
        ([M1], members("m1"), control_plane(), f"m1 {CANNOT}"),
        ([M1], members("m1"), control_plane(initialized=False), "m1 is deleted"),
        ([M1, M2, M3], THREE, control_plane(mark=MARK), "m1 None"),
        ([M1, M2, machine("m3", age=-5)], THREE, control_plane(mark=MARK), "m1 is deleted"),
        ([M1, M2, machine("m3", annotations={REMEDIATION_FOR: MARK})], THREE, control_plane(mark=MARK), "m1 is deleted"),
        ([M1, M2, machine("m3", joined=False)], THREE, control_plane(), f"m1 {DEFERRED}"),
        ([M1, M2, machine("m3", going=True)], THREE, control_plane(), f"m1 {DEFERRED}"),
        ([sick("m1", going=True), M2, M3], THREE, control_plane(), "m1 None"),
        ([sick("m1", going=True), M2, M3], THREE, control_plane(mark=MARK.replace("gone", "m1")), f"m1 {DELETING}"),
        ([M1, M2, M3], [], control_plane(), f"m1 {DEFERRED}"),
        ([M1, machine("m2", broken=COMPONENTS), machine("m3", broken=COMPONENTS)], THREE, control_plane(), f"m1 {CANNOT}"),
        ([M1, machine("m2", broken=("SchedulerPodHealthy",)), M3], THREE, control_plane(), "m1 is deleted"),
        ([M1, machine("m2", broken=(ETCD_MEMBER,)), M3], THREE, control_plane(), f"m1 {CANNOT}"),
        ([M1, M2, M3], [*THREE, ADDED], control_plane(), f"m1 {CANNOT}"),
        ([sick("m1", joined=False), M2, M3], [*THREE, ADDED], control_plane(), "m1 is deleted"),
    ],
)
def test_who_is_remediated_and_who_has_to_wait(
    machines: list[JsonObject], known: list[EtcdMember], owner: JsonObject, expected: str | None
) -> None:
    decision = decide(owner, machines, known, NOW)
    said = None
    if decision is not None:
        said = f"{name_of(decision.machine)} {'is deleted' if decision.attempt else decision.reason}"
    assert said == expected


FOUR = [sick("m1"), machine("m2"), machine("m3"), machine("m4")]
FIVE = members("m1", "m2", "m3", "m4", "m5")
NEW = EtcdMember(name="")


@pytest.mark.parametrize(
    ("machines", "known", "without", "plus", "safe"),
    [
        ([M1, M2, M3], THREE, "m1", False, True),
        ([M1, sick("m2"), M3], THREE, "m1", False, False),
        ([M1, M2], members("m1", "m2"), "m1", False, True),
        ([M1], members("m1"), "m1", False, False),
        ([*FOUR, machine("m5")], FIVE, "m1", False, True),
        ([*FOUR, sick("m5")], FIVE, "m1", False, True),
        ([*FOUR[:2], sick("m3"), FOUR[3], sick("m5")], FIVE, "m1", False, False),
        ([M1, M2, M3], [*THREE, NEW], "m1", False, False),
        (FOUR, [*THREE, ADDED], "m1", False, False),
        ([M1, M2], THREE, "m1", False, True),
        ([M1, M2], [*members("m1", "m2"), EtcdMember(name="m3", alarm="NOSPACE")], "m1", False, False),
        ([], [], "", True, True),
        ([M2], members("m2"), "", True, True),
        ([M2, M3], members("m2", "m3"), "", True, True),
        ([M1, M3], members("m1", "m3"), "", True, False),
    ],
)
def test_whether_etcd_keeps_its_quorum(
    machines: list[JsonObject], known: list[EtcdMember], without: str, *, plus: bool, safe: bool
) -> None:
    assert etcd_survives(machines, known, without=without, plus=plus) is safe


def test_where_there_is_no_machine_one_may_be_added() -> None:
    assert may_grow(control_plane(), [], [])


# In a cluster ----------------------------------------------------------------------------------------------------------------


def with_control_plane(count: int, **remediation: int) -> SimulatedCluster:
    options = {"control_plane": True, "remediation": remediation}
    return with_machines("cluster-api", nodes=1, zones=3, control_planes=count, options=options)


async def break_and_condemn(cluster: SimulatedCluster, number: int) -> str:
    """The name of the Machine whose node has become silent."""
    fleet, name = cluster.machines, f"control-plane-machine-{number}"
    cluster.break_node(f"control-plane-{number}", NodeFault.KUBELET_STOPS)
    await cluster.wait_until(lambda: status_of(fleet, name, "APIServerPodHealthy") != "True", what="its components are silent")
    await judge(fleet, name, healthy=False)
    return name


@pytest.mark.parametrize("count", [2, 3])
async def test_a_sick_machine_of_a_control_plane_is_replaced_by_one_that_joins(count: int) -> None:
    async with with_control_plane(count) as cluster:
        fleet = cluster.machines
        plane = fleet.control_plane
        assert fleet.names == sorted([*(f"control-plane-machine-{number}" for number in range(1, count + 1)), "machine-1"])
        assert {each.name for each in plane.etcd.members} == {f"control-plane-{number}" for number in range(1, count + 1)}
        assert plane.is_whole
        name = await break_and_condemn(cluster, 2)
        await cluster.wait_until(lambda: name not in fleet.names and plane.is_whole, what="the control plane is whole again")
        new = fleet.of_node(f"control-plane-{count + 1}")
        attempt = plane.replaces(new)
        assert attempt is not None
        assert (attempt.machine, attempt.retries) == (name, 0)
        assert plane.in_progress is None
        machine = fleet.machine(new) or {}
        assert (controller_of(machine) or {})["kind"] == "KubeadmControlPlane"
        assert "cluster.x-k8s.io/control-plane" in machine["metadata"]["labels"]
        node = cluster.node(f"control-plane-{count + 1}")
        assert (node.identity.role, node.identity.zone) == ("control-plane", "zone-b"), "where there was one less"
        names = {each.name for each in plane.etcd.members}
        assert names == {f"control-plane-{number}" for number in range(1, count + 2) if number != 2}
        assert plane.object["status"]["lastRemediation"].items() >= {"machine": name, "retryCount": 0}.items()
        assert [(each.machine, each.by_controllers) for each in fleet.deletions()] == [(name, True)]
