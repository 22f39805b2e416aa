"""Bare metal, simulated: hosts whose power an operator keeps, Metal3Remediations, and OpenShift's annotation on Machines."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, has_taint, is_ready, uid_of
from simulator.remediators.bare_metal_hosts import HOST, is_powered_on
from simulator.remediators.metal3 import UNHEALTHY, Metal3Remediations
from simulator.resources import NODES
from tests.simulator.remediators.conftest import QUICK, Asker, cluster_with

pytestmark = pytest.mark.timeout(40)

KIND = Metal3Remediations.remediations
STRATEGY = {"strategy": {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100}}
PATIENT = dataclasses.replace(QUICK, metal3_second=10.0)


def running(*, machines: str = "cluster-api", **changes: Any) -> SimulatedCluster:
    return cluster_with("metal3", machines=machines, **changes)


async def until_hosted(cluster: SimulatedCluster) -> None:
    def all_on() -> bool:
        hosts = [cluster.hosts.of_node(node) for node in cluster.nodes]
        machines = [cluster.machines.machine(name) for name in cluster.machines.names]
        annotated = all(HOST in (each["metadata"].get("annotations") or {}) for each in machines if each is not None)
        return annotated and all(host is not None and is_powered_on(host) for host in hosts)

    await cluster.wait_until(all_on, what="each Machine has a host that is on")


def machine_named(cluster: SimulatedCluster, name: str) -> JsonObject:
    machine = cluster.machines.machine(name)
    assert machine is not None
    return machine


async def ask_for(cluster: SimulatedCluster, machine: str, spec: JsonObject | None = None) -> Asker:
    """As Cluster API's contract has it: named as the Machine and owned by it."""
    asker = Asker(cluster, KIND, namespace=cluster.machines.system.namespace)
    await asker.ask(machine, spec or STRATEGY, owner=machine_named(cluster, machine))
    return asker


def status_of(asker: Asker, name: str) -> JsonObject:
    found = asker.cluster.remediator(Metal3Remediations).objects.get(f"{asker.namespace}/{name}") or {}
    status: JsonObject = found.get("status") or {}
    return status


@pytest.mark.parametrize("frees_by_taint", [True, False])
async def test_a_host_is_switched_off_and_on_and_its_workloads_are_freed_in_between(frees_by_taint: bool) -> None:
    async with running(timings=PATIENT, demo_workloads=True) as cluster:
        await until_hosted(cluster)
        operator = cluster.remediator(Metal3Remediations)
        operator.frees_by_taint = frees_by_taint
        node = cluster.node_of_pod("demo/database-0")
        machine = cluster.machines.of_node(node)
        await cluster.client.patch(NODES.path(node), {"metadata": {"labels": {"rack": "7"}}})
        before = await cluster.client.get(NODES.path(node))
        boot_id = cluster.node(node).boot_id
        cluster.break_node(node, "kernel-hangs")
        asker = await ask_for(cluster, machine)
        await cluster.wait_until(lambda: status_of(asker, machine).get("phase") == "Waiting", what="off, and free")
        assert cluster.storage.violations == []

        def well() -> bool:
            known = cluster.view.nodes.get(node)
            held = (operator.objects.get(f"{asker.namespace}/{machine}") or {"metadata": {}})["metadata"].get("finalizers")
            return known is not None and is_ready(known) and not held

        await cluster.wait_until(well, what="on and ready, and let go")
        after = await cluster.client.get(NODES.path(node))
        assert cluster.node(node).boot_id != boot_id
        assert not has_taint(after, "node.kubernetes.io/out-of-service")
        assert after["metadata"]["labels"]["rack"] == "7"
        assert (uid_of(after) == uid_of(before)) is frees_by_taint
        host = cluster.hosts.of_node(node)
        assert host is not None
        assert not host["metadata"].get("annotations")
        await asker.delete(machine)
        await cluster.wait_until(lambda: not operator.objects.objects, what="the object is gone")
        if frees_by_taint:
            await cluster.wait_until(lambda: cluster.node_of_pod("demo/database-0") != node, what="the database is elsewhere")
        assert cluster.storage.violations == []


async def test_a_host_that_never_helps_is_given_to_the_owner_of_its_machine() -> None:
    async with running() as cluster:
        await until_hosted(cluster)
        cluster.break_node("node-1", "never-boots")
        boots = cluster.node("node-1").boots
        condemned = {"type": "HealthCheckSucceeded", "status": "False", "reason": "NodeNotHealthy", "message": ""}
        known = machine_named(cluster, "machine-1")["status"]["conditions"]
        said = [*known, {**condemned, "lastTransitionTime": "2026-11-22T12:00:00Z"}]
        await cluster.machines.set_status("machine-1", {"conditions": said})
        asker = await ask_for(cluster, "machine-1")
        await cluster.wait_until(lambda: status_of(asker, "machine-1").get("phase") == "Deleting machine", what="given up")
        assert status_of(asker, "machine-1")["retryCount"] == 1
        assert cluster.node("node-1").boots == boots + 2, "the first time, and one more"
        await cluster.wait_until(lambda: "machine-1" not in cluster.machines.names, what="its owner has replaced it")
        [deletion] = cluster.machines.deletions("machine-1")
        assert deletion.by_controllers
        host = cluster.hosts.of_node("node-1")
        assert host is not None
        assert host["metadata"]["annotations"][UNHEALTHY] == "capm3/UnhealthyNode"


async def test_nothing_goes_on_while_the_host_does_not_go_off() -> None:
    """S2: no Node is freed by a request for off alone."""
    async with running(nodes=1, bmc="python") as cluster:
        await until_hosted(cluster)
        cluster.break_node("node-1", "bmc-ignores-off")
        asker = await ask_for(cluster, "machine-1")
        log = cluster.chassis.machine("node-1").log
        await cluster.wait_until(lambda: len([each for each in log if each.outcome == "ignored"]) >= 2, what="told twice")
        assert status_of(asker, "machine-1")["phase"] == "Running"
        assert not has_taint(await cluster.client.get(NODES.path("node-1")), "node.kubernetes.io/out-of-service")
        cluster.heal_node("node-1")
        await cluster.wait_until(lambda: status_of(asker, "machine-1").get("phase") == "Waiting", what="off now")
