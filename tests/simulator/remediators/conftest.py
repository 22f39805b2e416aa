"""Small, fast clusters in which remediation operators of others run, and what a health check does with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from simulator.client import ApiError
from simulator.cluster import SimulatedCluster
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import JsonObject, condition_of, condition_status, micro_timestamp, name_of, uid_of
from simulator.remediators.contract import TIMED_OUT, Remediator, RemediatorTimings
from simulator.remediators.node_maintenance import LEASE_NAMESPACE
from simulator.resources import EVENTS, LEASES, NAMESPACES, Resource
from tests.simulator.cluster.conftest import small_cluster

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
