"""The control plane of a simulated cluster as Machines of Cluster API: its KubeadmControlPlane, its etcd, the doors for tests.

Only the nodes are simulated, and what they are believed to run: the API server of the simulated cluster lives beside them, so a
control plane may be lost here and still be looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from simulator.client import ApiClient
from simulator.contract import Cluster
from simulator.controllers.kubeadm_control_plane import KubeadmControlPlanes
from simulator.etcd import Etcd
from simulator.informer import Informer, MachineView
from simulator.machine_systems.cluster_api import CLUSTER_NAME, ClusterApi
from simulator.machine_systems.contract import annotation
from simulator.machine_systems.control_plane import (
    IN_PROGRESS,
    KUBEADM_CONTROL_PLANES,
    LABEL,
    NAME,
    REMEDIATION_FOR,
    Attempt,
    control_plane,
    is_whole,
)
from simulator.objects import JsonObject, name_of
from simulator.tasks import Tasks


class ControlPlane:
    """`cluster.machines.control_plane`."""

    def __init__(self, cluster: Cluster, view: MachineView, *, system: ClusterApi, zones: Sequence[str]) -> None:
        if not zones:
            raise ValueError("the cluster has no control-plane nodes that could be Machines: start it with control_planes=3")
        self.etcd = Etcd()
        self._cluster = cluster
        self._view = view
        self._system = system
        self._zones = zones
        self._objects = Informer(cluster.client, KUBEADM_CONTROL_PLANES)

    # Doors

    @property
    def object(self) -> JsonObject:
        """The KubeadmControlPlane as last heard of."""
        found = self._objects.get(f"{self._system.namespace}/{NAME}")
        if found is None:
            raise LookupError(f"there is no KubeadmControlPlane {NAME}")
        return found

    @property
    def names(self) -> list[str]:
        """Of its Machines, also of those being deleted."""
        return sorted(name_of(each) for each in self._machines())

    @property
    def is_whole(self) -> bool:
        """It has as many Machines as it wants, everything is well on all of them, and they are all in etcd."""
        machines = self._machines()
        members = len(self.etcd.members)
        return len(machines) == members == self.object["spec"]["replicas"] and all(map(is_whole, machines))

    @property
    def in_progress(self) -> Attempt | None:
        """The remediation without a replacement so far, as its mark has it."""
        return Attempt.read(annotation(self.object, IN_PROGRESS))

    def replaces(self, machine: str) -> Attempt | None:
        """What is remembered on a replacement; None on every other Machine."""
        return Attempt.read(annotation(self._view.machines.get(f"{self._system.namespace}/{machine}"), REMEDIATION_FOR))

    async def set_initialized(self, initialized: bool) -> None:
        path = KUBEADM_CONTROL_PLANES.path(NAME, namespace=self._system.namespace, subresource="status")
        status = {"initialization": {"controlPlaneInitialized": initialized}}
        self._objects.remember(await self._cluster.client.patch(path, {"status": status}))

    def _machines(self) -> list[JsonObject]:
        return [each for each in self._view.machines if LABEL in (each["metadata"].get("labels") or {})]

    # Start, by the fleet

    async def create(self, tasks: Tasks, client: ApiClient, replicas: int, remediation: Mapping[str, int]) -> JsonObject:
        """The object, initialized; its controller sleeps until it has Machines."""
        tasks.start(self._objects.run(), name="informer control planes")
        async with asyncio.timeout(30):
            await self._objects.synced.wait()
        path = KUBEADM_CONTROL_PLANES.path(namespace=self._system.namespace)
        body = control_plane(self._system, replicas=replicas, remediation=remediation)
        created = await self._cluster.client.create(path, body)
        self._objects.remember(created)
        await self.set_initialized(True)
        reference = {
            "apiGroup": KUBEADM_CONTROL_PLANES.api_version.partition("/")[0],
            "kind": KUBEADM_CONTROL_PLANES.kind,
            "name": NAME,
        }
        cluster = self._system.clusters.path(CLUSTER_NAME, namespace=self._system.namespace)
        await self._cluster.client.patch(cluster, {"spec": {"controlPlaneRef": reference}})
        self._controller = KubeadmControlPlanes(
            client,
            self._cluster.view,
            self._view,
            self._objects,
            system=self._system,
            etcd=self.etcd,
            zones=self._zones,
        )
        return created

    async def start(self, tasks: Tasks) -> None:
        """Once its Machines are there: the controller, until all of them are well."""
        tasks.start(self._controller.run(), name="control plane controller")
        self._controller.queue.add(f"{self._system.namespace}/{NAME}")
        await self._cluster.wait_until(lambda: self.is_whole, seconds=60, what="the control plane whole")
