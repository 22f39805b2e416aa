"""Workloads of a simulated cluster: budgets, scheduling, what becomes of them on a dead node, and the judge of two writers."""

from __future__ import annotations

import dataclasses

import pytest

from simulator.client import ApiClient
from simulator.controllers.disruption import budget_status
from simulator.objects import JsonObject, is_ready, node_of, uid_of
from simulator.resources import DEPLOYMENTS, NODES, STATEFUL_SETS
from simulator.storage import SharedStorage, Violation, WriterState
from tests.simulator.cluster.conftest import FAST, Observer, small_cluster

pytestmark = pytest.mark.timeout(40)


def pod(name: str, *, ready: bool = True, app: str = "database", **metadata: object) -> JsonObject:
    owner = {"kind": "StatefulSet", "name": "database", "uid": "owner", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "demo",
            "uid": name,
            "labels": {"app": app},
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def budget(**spec: object) -> JsonObject:
    return {
        "metadata": {"name": "database", "namespace": "demo", "generation": 3},
        "spec": {"selector": {"matchLabels": {"app": "database"}}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 3, 2, 1),
        ({"minAvailable": "50%"}, 4, 2, 1),
        ({"minAvailable": "51%"}, 4, 3, 0),
        ({"maxUnavailable": 1}, 4, 3, 0),
        ({"maxUnavailable": "26%"}, 4, 2, 1),
        ({"maxUnavailable": 9}, 4, 0, 3),
        ({}, 3, 3, 0),
    ],
)
def test_budgets_of_a_set_that_wants_four_and_has_three(
    spec: dict[str, int | str], expected: int, desired: int, allowed: int
) -> None:
    pods = [pod("database-0"), pod("database-1"), pod("database-2"), pod("web-0", app="web")]
    status = budget_status(budget(**spec), pods, lambda _owner, _namespace: 4)
    assert status == {
        "observedGeneration": 3,
        "currentHealthy": 3,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    }


def test_pods_that_are_not_ready_or_terminating_are_lost_already() -> None:
    pods = [pod("a"), pod("b", ready=False), pod("c", deletionTimestamp="2026-01-01T00:00:00Z")]
    status = budget_status(budget(minAvailable=1), pods, lambda _owner, _namespace: None)
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (1, 0)


def test_without_a_selector_a_budget_covers_nothing() -> None:
    empty = budget(maxUnavailable=1)
    del empty["spec"]["selector"]
    assert budget_status(empty, [pod("a")], lambda _owner, _namespace: None)["disruptionsAllowed"] == 0


# Where pods may go: cordons, taints, control planes, zones, and what scales them.

WEB = DEPLOYMENTS.path("web", namespace="demo")


def running(observer: Observer, name: str) -> list[str]:
    """The nodes of the Ready pods whose name begins so."""
    pods = [pod for pod in observer.cluster.view.pods if pod["metadata"]["name"].startswith(f"{name}-")]
    return [node_of(pod) for pod in pods if is_ready(pod)]


async def test_a_pod_waits_when_no_node_fits_and_is_bound_when_one_does(observer: Observer) -> None:
    for name in observer.cluster.nodes:
        await observer.client.patch(NODES.path(name), {"spec": {"unschedulable": True}})
    await observer.until(lambda: all(observer.taint_keys(name) for name in observer.cluster.nodes), "all cordoned")
    await observer.client.patch(WEB, {"spec": {"replicas": 5}})

    def unschedulable() -> bool:
        conditions = [each for pod in observer.cluster.view.pods for each in pod["status"].get("conditions") or ()]
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    await observer.until(unschedulable, "the pod says why it waits")
    assert len(running(observer, "web")) == 4
    await observer.client.patch(NODES.path("node-5"), {"spec": {"unschedulable": None}})
    await observer.until(lambda: len(running(observer, "web")) == 5, "the pod runs")


# What Kubernetes does with the workloads of a dead node, and that the judge of two writers can be trusted.
#
# These tests play the fencer by hand. They hold no rule of nodewarden's; they prove that breaking one (S1, S31, S32) would be
# seen.

MEMBER = "demo/database-0"


async def break_the_node_of_the_member(observer: Observer, how: str) -> str:
    """Break it and wait until Kubernetes has done all that it does by itself: the pod is Terminating."""
    name = observer.cluster.node_of_pod(MEMBER)
    observer.cluster.break_node(name, how)
    await observer.until(lambda: observer.is_terminating(MEMBER), "the member is Terminating")
    return name


@pytest.mark.parametrize("fault", ["kernel-hangs", "power-cut"])
async def test_a_member_stays_terminating_until_its_node_is_confirmed_off(observer: Observer, fault: str) -> None:
    dead = await break_the_node_of_the_member(observer, fault)
    pod = observer.pod(MEMBER)
    assert pod is not None
    # Several rounds of every controller: nothing may move without a decision from outside.
    for _ in range(5):
        lease = observer.cluster.view.leases.get("kube-node-lease/node-6")
        assert lease is not None
        version = lease["metadata"]["resourceVersion"]
        await observer.until(
            lambda: observer.cluster.view.leases.objects["kube-node-lease/node-6"]["metadata"]["resourceVersion"] != version,  # noqa: B023
            "time passes",
        )
    assert observer.is_terminating(MEMBER)
    assert observer.attached_to(dead)

    observer.cluster.node(dead).power_off()
    await observer.taint_out_of_service(dead)
    await observer.until(lambda: observer.runs_elsewhere(MEMBER, dead), "the member runs elsewhere")
    assert observer.attached_to(dead) == []
    new = observer.pod(MEMBER)
    assert new is not None
    assert uid_of(new) != uid_of(pod)
    assert observer.cluster.storage.violations == []


async def test_the_member_runs_elsewhere_only_once_the_old_attachment_is_gone(observer: Observer) -> None:
    dead = await break_the_node_of_the_member(observer, "power-cut")
    volume = observer.cluster.view.claims.objects["demo/data-database-0"]["spec"]["volumeName"]
    held: list[set[str]] = []

    def note(_before: object, _after: object) -> None:
        held.append({each["spec"]["nodeName"] for each in observer.cluster.view.attachments_by_volume[volume]})

    observer.cluster.view.attachments.subscribe(note)
    await observer.taint_out_of_service(dead)
    await observer.until(lambda: observer.runs_elsewhere(MEMBER, dead), "the member runs elsewhere")
    assert {dead} in held
    assert set() in held
    assert all(len(nodes) <= 1 for nodes in held)


@pytest.mark.parametrize(("fault", "by_taint"), [("kubelet-stops", True), ("kernel-hangs", False)])
async def test_the_judge_sees_two_writers_when_a_member_is_freed_without_power_off(
    observer: Observer, fault: str, by_taint: bool
) -> None:
    alive = await break_the_node_of_the_member(observer, fault)
    if by_taint:
        await observer.taint_out_of_service(alive)
    else:
        await observer.force_delete(MEMBER)
        await observer.delete_attachments(alive)
    violations = observer.cluster.storage.violations
    await observer.until(lambda: bool(violations), "the violation")
    assert violations[0].first.node == alive != violations[0].second.node
    assert violations[0].certain is (fault == "kubelet-stops"), "what hangs may go on"
    observer.cluster.heal_node(alive)
    assert violations[-1].certain


async def test_the_judge_sees_nothing_when_the_power_went_off_first(observer: Observer) -> None:
    dead = await break_the_node_of_the_member(observer, "kubelet-stops")
    observer.cluster.node(dead).power_off()
    await observer.force_delete(MEMBER)
    await observer.delete_attachments(dead)
    await observer.until(lambda: observer.runs_elsewhere(MEMBER, dead), "the member runs elsewhere")
    assert observer.cluster.storage.violations == []
    # The old machine comes back: it must not bring the old container with it.
    observer.cluster.node(dead).power_on()
    await observer.until(lambda: observer.ready(dead) == "True", "the node is back")
    await observer.until(lambda: not list(observer.cluster.node(dead).containers) or observer.pods_on(dead) != set(), "clean")
    assert observer.cluster.storage.violations == []


async def test_kubernetes_detaches_by_force_after_its_maximum_wait_whether_or_not_the_node_is_off() -> None:
    timings = dataclasses.replace(FAST, force_detach_after=0.3)
    async with small_cluster(controller_timings=timings) as cluster, ApiClient(cluster.address) as client:
        observer = Observer(cluster, client)
        await break_the_node_of_the_member(observer, "kubelet-stops")
        await observer.force_delete(MEMBER)
        await observer.until(lambda: bool(cluster.storage.violations), "the force detach hurts")
        assert cluster.controllers.attach_detach.force_detached


async def test_a_recovered_stateful_set_can_be_scaled(observer: Observer) -> None:
    dead = await break_the_node_of_the_member(observer, "power-cut")
    await observer.taint_out_of_service(dead)
    await observer.until(lambda: observer.runs_elsewhere(MEMBER, dead), "the member runs elsewhere")
    path = STATEFUL_SETS.path("database", namespace="demo")
    await observer.client.patch(path, {"spec": {"replicas": 4}})
    await observer.until(lambda: is_ready(observer.pod("demo/database-3") or {}), "the fourth member runs")
    await observer.client.patch(path, {"spec": {"replicas": 1}})
    await observer.until(lambda: [observer.pod(f"demo/database-{number}") for number in (1, 2, 3)] == [None] * 3, "scaled down")
    assert observer.cluster.storage.violations == []


# The judge itself: when two containers count as two writers of one volume. No cluster is needed for that.


def begin(storage: SharedStorage, pod_uid: str, node: str, *, exclusive: bool = False) -> None:
    storage.begin(volume="v", pod="demo/database-0", pod_uid=pod_uid, node=node, boot_id="b", exclusive=exclusive)


def test_one_writer_after_the_other_is_no_violation() -> None:
    storage = SharedStorage()
    begin(storage, "a", "node-1")
    storage.end(volume="v", pod_uid="a")
    begin(storage, "b", "node-2")
    assert storage.violations == []
    assert [(each.pod_uid, each.state) for each in storage.intervals] == [("a", WriterState.ENDED), ("b", WriterState.WRITING)]
    assert storage.intervals[0].end is not None


def test_two_writers_on_two_nodes_are_a_violation_that_stays() -> None:
    storage = SharedStorage()
    heard: list[Violation] = []
    storage.on_violation(heard.append)
    begin(storage, "a", "node-1")
    begin(storage, "b", "node-2")
    storage.end(volume="v", pod_uid="a")
    assert len(storage.violations) == 1
    assert storage.violations == heard
    violation = storage.violations[0]
    assert (violation.first.node, violation.second.node, violation.certain) == ("node-1", "node-2", True)
    assert "node-1 wrote" in str(violation)


def test_two_pods_of_one_node_may_share_a_volume_unless_it_is_exclusive() -> None:
    shared, exclusive = SharedStorage(), SharedStorage()
    for pod_uid in ("a", "b"):
        begin(shared, pod_uid, "node-1")
        begin(exclusive, pod_uid, "node-1", exclusive=True)
    assert shared.violations == []
    assert len(exclusive.violations) == 1


def test_a_hung_writer_counts_because_it_may_go_on() -> None:
    storage = SharedStorage()
    begin(storage, "a", "node-1")
    storage.suspend(volume="v", pod_uid="a")
    begin(storage, "b", "node-2")
    assert [each.certain for each in storage.violations] == [False]
    storage.resume(volume="v", pod_uid="a")
    assert [each.certain for each in storage.violations] == [False, True]
