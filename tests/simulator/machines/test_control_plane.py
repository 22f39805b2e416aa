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
    KUBEADM_CONTROL_PLANES,
    REMEDIATION_FOR,
    Attempt,
    decide,
    etcd_survives,
    may_grow,
    zone_for,
)
from simulator.machine_systems.remediation import CANNOT, DEFERRED, DELETING, REMEDIATE
from simulator.machines import Trouble
from simulator.node import NodeFault
from simulator.objects import JsonObject, controller_of, name_of, timestamp
from tests.simulator.machines.fleets import answer, condition, judge, status_of, with_machines

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


def test_the_only_machine_is_told_so() -> None:
    decision = decide(control_plane(), [M1], members("m1"), NOW)
    assert decision is not None
    assert "the only Machine" in decision.message


def test_the_order_in_which_machines_are_picked() -> None:
    order = [
        sick("marked", broken=(), annotations={REMEDIATE: ""}),
        sick("without-node", joined=False),
        sick("etcd", broken=(ETCD_MEMBER,)),
        sick("etcd-pod", broken=("EtcdPodHealthy",)),
        sick("api-server", broken=("APIServerPodHealthy",)),
        sick("manager", broken=("ControllerManagerPodHealthy",)),
        sick("scheduler", broken=("SchedulerPodHealthy",)),
        sick("older", broken=(), age=200),
        sick("a-younger", broken=()),
        sick("b-younger", broken=()),
    ]
    left = order[::-1]
    for expected in order:
        decision = decide(control_plane(initialized=False), left, [], NOW)
        assert decision is not None
        assert name_of(decision.machine) == name_of(expected)
        left.remove(expected)


@pytest.mark.parametrize(
    ("strategy", "age", "retries", "expected"),
    [
        ({}, None, 0, 0),
        ({}, 10, 7, 8),
        ({}, 3599, 0, 1),
        ({}, 3600, 7, 0),
        ({"minHealthyPeriodSeconds": 5}, 4, 2, 3),
        ({"minHealthyPeriodSeconds": 5}, 5, 2, 0),
        ({"retryPeriodSeconds": 60}, 59, 0, DEFERRED),
        ({"retryPeriodSeconds": 60}, 60, 0, 1),
        ({"maxRetry": 2}, 10, 1, 2),
        ({"maxRetry": 2}, 10, 2, CANNOT),
        ({"maxRetry": 0}, 10, 0, CANNOT),
        ({"maxRetry": 2}, 3600, 2, 0),
        ({"maxRetry": 0, "retryPeriodSeconds": 60}, 10, 0, DEFERRED),
    ],
)
def test_how_often_a_replacement_that_fails_is_replaced(
    strategy: dict[str, int], age: int | None, retries: int, expected: int | str
) -> None:
    last = (
        {}
        if age is None
        else {REMEDIATION_FOR: Attempt(machine="m0", at=NOW - timedelta(seconds=age), retries=retries).written()}
    )
    decision = decide(control_plane(remediation=strategy), [sick("m1", annotations=last), M2, M3], THREE, NOW)
    assert decision is not None
    if isinstance(expected, int):
        assert decision.attempt == Attempt(machine="m1", at=NOW, retries=expected)
    else:
        assert (decision.attempt, decision.reason) == (None, expected)
    assert (decision.look_again is not None) == (expected == DEFERRED), "only time has to pass"


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


def test_when_a_machine_may_be_added() -> None:
    assert may_grow(control_plane(), [], [])
    assert may_grow(control_plane(), [M2, M3], members("m2", "m3"))
    assert not may_grow(control_plane(), [M2, machine("m3", joined=False)], members("m2", "m3"))
    assert not may_grow(control_plane(mark=MARK), [M2, machine("m3", going=True)], members("m2", "m3"))
    four = [machine("m2"), machine("m3"), machine("m4"), machine("m5", broken=(ETCD_MEMBER,))]
    assert not may_grow(control_plane(), four, FIVE[1:])
    assert may_grow(control_plane(mark=MARK), four, FIVE[1:]), "a replacement may come though another one is sick"
    assert not may_grow(control_plane(mark=MARK), four, [])
    zones = [machine("m"), machine("n")]
    for each, zone in zip(zones, "ab", strict=True):
        each["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone}
    assert (zone_for(zones, ["a", "b", "c"]), zone_for(zones, ["a", "b"]), zone_for(zones[:1], ["a", "b"])) == ("c", "a", "b")


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


async def test_the_only_machine_of_an_initialized_control_plane_is_never_remediated() -> None:
    async with with_control_plane(1) as cluster:
        fleet, plane = cluster.machines, cluster.machines.control_plane
        name = await break_and_condemn(cluster, 1)
        await cluster.wait_until(lambda: answer(fleet, name) == CANNOT, what="the answer")
        assert fleet.deletions() == []
        await plane.set_initialized(False)
        await cluster.wait_until(lambda: name not in fleet.names and plane.is_whole, what="it was not initialized, and goes")


async def test_etcd_decides_and_whoever_gets_well_is_left_alone() -> None:
    async with with_control_plane(3) as cluster:
        fleet, plane = cluster.machines, cluster.machines.control_plane
        plane.etcd.change("control-plane-3", alarm="NOSPACE")
        await cluster.wait_until(lambda: status_of(fleet, "control-plane-machine-3", ETCD_MEMBER) == "False", what="the alarm")
        name = await break_and_condemn(cluster, 1)
        await cluster.wait_until(lambda: answer(fleet, name) == CANNOT, what="no quorum would be left")
        plane.etcd.change("control-plane-3", alarm="")
        plane.etcd.add()
        await cluster.wait_until(lambda: status_of(fleet, "control-plane-machine-3", ETCD_MEMBER) == "True", what="no alarm")
        assert fleet.deletions() == [], "a member is starting"
        cluster.heal_node("control-plane-1")
        await judge(fleet, name, healthy=True)
        await cluster.wait_until(lambda: answer(fleet, name) == "", what="the request is taken back")
        plane.etcd.remove()
        await cluster.wait_until(lambda: plane.is_whole, what="all is well")
        plane.etcd.change("control-plane-3", learner=True)
        await cluster.wait_until(lambda: status_of(fleet, "control-plane-machine-3", ETCD_MEMBER) == "False", what="a learner")
        path = KUBEADM_CONTROL_PLANES.path("control-plane", namespace="clusters")
        await cluster.client.patch(path, {"spec": {"replicas": 4}})
        await cluster.wait_until(lambda: plane.object["status"]["observedGeneration"] == 2, what="it has looked")
        assert len(plane.names) == 3, "nothing is added to what is not well"
        plane.etcd.change("control-plane-3", learner=False)
        await cluster.wait_until(lambda: plane.is_whole, what="a fourth one")
        with pytest.raises(LookupError, match="no member 'nobody'; there are control-plane-1"):
            plane.etcd.change("nobody", learner=True)
        assert fleet.deletions() == []


async def test_a_replacement_that_fails_is_replaced_until_its_tries_are_used_up() -> None:
    async with with_control_plane(3, maxRetry=1) as cluster:
        fleet, plane = cluster.machines, cluster.machines.control_plane
        fleet.instances.troubles["control-plane"] = Trouble(fault=NodeFault.NEVER_BOOTS)
        before = set(fleet.names)
        tried = [await break_and_condemn(cluster, 1)]
        for retries in (0, 1):
            await cluster.wait_until(
                lambda: len(set(fleet.names) - before) == 1 and tried[-1] not in fleet.names, what="replaced"
            )
            (new,) = set(fleet.names) - before
            assert plane.replaces(new) is not None
            assert getattr(plane.replaces(new), "retries", None) == retries
            tried.append(new)
            await judge(fleet, new, healthy=False)
        await cluster.wait_until(lambda: answer(fleet, tried[-1]) == CANNOT, what="its tries are used up")
        assert [each.machine for each in fleet.deletions()] == tried[:2]
        await plane.limit_retries(maxRetry=2)
        fleet.instances.troubles.clear()
        await cluster.wait_until(lambda: tried[-1] not in fleet.names and plane.is_whole, what="one more try, which succeeds")


async def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="those of cluster-api, not of openshift"):
        with_machines("openshift", options={"control_plane": True})
    with pytest.raises(ValueError, match="those of cluster-api, not of cluster-api-v1beta1"):
        with_machines("cluster-api-v1beta1", options={"max_in_flight": 1})
    with pytest.raises(ValueError, match="start it with control_planes=3"):
        await with_control_plane(0).__aenter__()
    async with with_machines("cluster-api") as cluster:
        with pytest.raises(LookupError, match="without Machines"):
            _ = cluster.machines.control_plane
