"""What Kubernetes does with the workloads of a dead node, and that the judge of two writers can be trusted.

These tests play the fencer by hand. They hold no rule of nodewarden's; they prove that breaking one (S1, S31, S32) would be seen.
"""

from __future__ import annotations

import dataclasses

import pytest

from simulator.client import ApiClient
from simulator.objects import is_ready, uid_of
from simulator.resources import STATEFUL_SETS
from tests.simulator.cluster.conftest import FAST, Observer, small_cluster

pytestmark = pytest.mark.timeout(40)

MEMBER = "demo/database-0"


async def break_the_node_of_the_member(observer: Observer, how: str) -> str:
    """Break it and wait until Kubernetes has done all that it does by itself: the pod is Terminating."""
    name = observer.cluster.node_of_pod(MEMBER)
    observer.cluster.break_node(name, how)
    await observer.until(lambda: observer.is_terminating(MEMBER), "the member is Terminating")
    return name


@pytest.mark.parametrize("fault", ["kernel-hangs", "power-cut"])
async def test_a_member_stays_terminating_until_somebody_vouches_for_its_node(observer: Observer, fault: str) -> None:
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
