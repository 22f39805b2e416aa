"""Simulated remediation operators: clusters in which they run, what asks them, and bare metal, whose hosts an operator powers.

The others are tried by the cases of `tests/vectors/test_remediators.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from simulator.client import ApiError
from simulator.cluster import SimulatedCluster
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import JsonObject, condition_of, condition_status, has_taint, is_ready, micro_timestamp, name_of, uid_of
from simulator.remediators.bare_metal_hosts import HOST, is_powered_on
from simulator.remediators.contract import TIMED_OUT, Remediator, RemediatorTimings
from simulator.remediators.metal3 import UNHEALTHY, Metal3Remediations
from simulator.remediators.node_maintenance import LEASE_NAMESPACE
from simulator.resources import EVENTS, LEASES, NAMESPACES, NODES, Resource
from tests.simulator.cluster.conftest import small_cluster

# Small, fast clusters in which remediation operators of others run, and what a health check does with them.

NAMESPACE = "remediators"

QUICK = RemediatorTimings(
    poll=0.05,
    assume_rebooted=0.4,
    agent=0.05,
    taint_patience=0.3,
    machine_poll=0.05,
    device=0.3,
    power=0.03,
    power_on=60.0,
    metal3_second=0.005,
)
MACHINES = MachineSettings(create=0.05, switch_off=0.05, destroy=0.05, remove_node=0.05)


def cluster_with(*remediators: str, timings: RemediatorTimings = QUICK, machines: str = "", **changes: Any) -> SimulatedCluster:
    """Three workers in one zone."""
    options = MachineOptions(system=machines, settings=MACHINES) if machines else None
    settings: dict[str, Any] = {"nodes": 3, "zones": 1, "demo_workloads": False, "machines": options, **changes}
    return small_cluster(remediators=remediators, remediator_timings=timings, **settings)


class Asker:
    """Asks for remediation as a health check does: an object per node, its conditions read, deleted when the node is well."""

    def __init__(self, cluster: SimulatedCluster, kind: Resource, *, namespace: str = NAMESPACE) -> None:
        self.cluster = cluster
        self.kind = kind
        self.namespace = namespace if kind.namespaced else ""

    async def ask(
        self,
        node: str,
        spec: JsonObject | None = None,
        *,
        annotations: JsonObject | None = None,
        owner: JsonObject | None = None,
        finalizers: Sequence[str] = (),
    ) -> JsonObject:
        if self.namespace:
            await ensure_namespace(self.cluster, self.namespace)
        metadata: JsonObject = {"name": node, "annotations": annotations or {}, "finalizers": list(finalizers)}
        if owner is not None:
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name_of(owner), "uid": uid_of(owner)}
            metadata["ownerReferences"] = [reference]
        body = {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata, "spec": spec or {}}
        return await self.cluster.client.create(self.kind.path(namespace=self.namespace), body)

    async def read(self, name: str) -> JsonObject | None:
        try:
            return await self.cluster.client.get(self._path(name))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def give_up(self, name: str) -> None:
        """Wait no longer."""
        annotations = {TIMED_OUT: "2026-11-22T12:00:00Z"}
        await self.cluster.client.patch(self._path(name), {"metadata": {"annotations": annotations}})

    async def delete(self, name: str) -> None:
        await self.cluster.client.delete(self._path(name))

    async def look_again_at(self, name: str, operator: Remediator) -> None:
        """Change something that does not matter; returns when the operator has seen it. What it is asked for afterwards it looks
        at later, since it takes one after the other."""
        answer = await self.cluster.client.patch(self._path(name), {"metadata": {"labels": {"look": "again"}}})
        version = int(answer["metadata"]["resourceVersion"])
        key = f"{self.namespace}/{name}" if self.namespace else name

        def is_seen() -> bool:
            known = operator.objects.get(key)
            return known is not None and int(known["metadata"]["resourceVersion"]) >= version

        await self.cluster.wait_until(is_seen, what=f"{name} is looked at")

    def _path(self, name: str) -> str:
        return self.kind.path(name, namespace=self.namespace)


async def ensure_namespace(cluster: SimulatedCluster, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await cluster.client.create(NAMESPACES.path(), body)
    except ApiError as error:
        if not error.already_exists:
            raise


async def take_lease(cluster: SimulatedCluster, node: str, holder: str) -> None:
    """The lease by which operators keep out of each other's way, for somebody else."""
    await ensure_namespace(cluster, LEASE_NAMESPACE)
    now = micro_timestamp()
    body = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": f"node-{node}", "namespace": LEASE_NAMESPACE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now},
    }
    await cluster.client.create(LEASES.path(namespace=LEASE_NAMESPACE), body)


async def events_about(cluster: SimulatedCluster, name: str, *, namespace: str = NAMESPACE) -> list[str]:
    """The reasons of the Events about an object, once there is one."""
    async with asyncio.timeout(10):
        while True:
            listed = await cluster.client.list(EVENTS.path(namespace=namespace))
            if found := [str(each["reason"]) for each in listed["items"] if each["involvedObject"]["name"] == name]:
                return found
            await asyncio.sleep(0.02)


def told(remediation: JsonObject | None, *kinds: str) -> tuple[str, ...]:
    """The status of each of these conditions, "" for one that is not there."""
    assert remediation is not None
    return tuple(condition_status(remediation, kind) if condition_of(remediation, kind) else "" for kind in kinds)


def reason(remediation: JsonObject | None, kind: str = "Succeeded") -> str:
    found = condition_of(remediation or {}, kind)
    return str(found["reason"]) if found is not None else ""


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
