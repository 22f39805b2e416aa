"""A simulated kubelet: registers its Node, keeps its Lease fresh, says Ready, and runs the pods bound to it.

It is one process on a machine: cancelling `run` is the kubelet stopping, and everything it did not write down in the
API or in `containers.py` is then lost, as with the real one. The machine under it, with its power and its faults, is
`node.py`; what it does with pods is `pod_workers.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field

from simulator.client import ApiClient, ApiError, ApiUnreachableError, PatchType
from simulator.containers import Containers
from simulator.informer import ClusterView
from simulator.objects import ATTACHED_BY_CONTROLLER, READY, JsonObject, condition_of, micro_timestamp, timestamp, uid_of
from simulator.pod_workers import PodWorkers
from simulator.resources import LEASES, NODES

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"

ANNOTATIONS = {ATTACHED_BY_CONTROLLER: "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What a machine is, whatever is running on it."""

    name: str
    zone: str
    role: str = "worker"
    provider_id: str
    system_uuid: str
    machine_id: str
    address: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimings:
    """How fast things go on a node, in seconds. The defaults are those of a real kubelet on a real machine."""

    heartbeat: float = 10.0
    lease_duration: float = 40.0
    status_report: float = 300.0
    boot: float = 60.0
    container_start: float = 1.0
    container_stop: float = 1.0
    crash_up: float = 30.0
    crash_down: float = 60.0


class Kubelet:
    """One run of a kubelet process, from its start until it is cancelled."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        boot_id: str,
        conditions: dict[str, str],
        timings: NodeTimings,
        client: ApiClient,
        view: ClusterView,
        containers: Containers,
    ) -> None:
        self.identity = identity
        self.boot_id = boot_id
        self._conditions = conditions
        """Shared with the machine: a fault changes what the kubelet says at its next heartbeat."""
        self._timings = timings
        self._client = client
        self._view = view
        self._containers = containers
        self._lease: JsonObject | None = None
        self._reported_at = 0.0
        self._pods = PodWorkers(
            node=identity.name,
            address=identity.address,
            timings=(timings.container_start, timings.container_stop),
            can_run=lambda: self._conditions.get(READY, "True") == "True",
            client=client,
            view=view,
            containers=containers,
        )

    def wake(self) -> None:
        """Something about the pods or volumes of this node has changed."""
        self._pods.wake()

    async def run(self) -> None:
        await self._register()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_alive(), name=f"heartbeat of {self.identity.name}")
            group.create_task(self._pods.run(), name=f"pods of {self.identity.name}")

    # Registration ------------------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        pause = 0.1
        while True:
            try:
                await self._register_once()
            except (ApiError, ApiUnreachableError) as error:
                log.info("%s cannot register: %s", self.identity.name, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 5.0)
            else:
                return

    async def _register_once(self) -> None:
        path = NODES.path(self.identity.name)
        try:
            known = await self._client.get(path)
        except ApiError as error:
            if not error.not_found:
                raise
            known = await self._client.create(NODES.path(), {**self._new_node(), "status": self._first_status(None)})
            self._view.nodes.remember(known)
        else:
            ours = {"labels": self._labels(), "annotations": ANNOTATIONS}
            if any(not wanted.items() <= (known["metadata"].get(field) or {}).items() for field, wanted in ours.items()):
                await self._client.patch(path, {"metadata": ours})
            await self._report_status(self._first_status(known))

    def _labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": self.identity.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": self.identity.zone,
            "topology.kubernetes.io/region": "simulated",
            f"node-role.kubernetes.io/{self.identity.role}": "",
            **self.identity.labels,
        }

    def _new_node(self) -> JsonObject:
        spec: JsonObject = {"providerID": self.identity.provider_id}
        if self.identity.role == "control-plane":
            spec["taints"] = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.identity.name, "labels": self._labels(), "annotations": dict(ANNOTATIONS)},
            "spec": spec,
        }

    # Heartbeat ---------------------------------------------------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        interval = self._timings.heartbeat
        # Not all at once: after a power cut a whole zone boots in the same moment.
        await asyncio.sleep(random.uniform(0, interval / 2))
        while True:
            try:
                await self._renew_lease()
                node = self._view.nodes.get(self.identity.name)
                if node is not None and self._status_is_due(node):
                    await self._report_status(self._status(node))
            except (ApiError, ApiUnreachableError) as error:
                self._lease = None
                log.info("heartbeat of %s: %s", self.identity.name, error)
            await asyncio.sleep(interval * random.uniform(0.9, 1.1))

    async def _renew_lease(self) -> None:
        path = LEASES.path(self.identity.name, namespace=LEASE_NAMESPACE)
        client = self._client.without_patience()
        if self._lease is None:
            try:
                self._lease = await client.get(path)
            except ApiError as error:
                if not error.not_found:
                    raise
                self._lease = await client.create(LEASES.path(namespace=LEASE_NAMESPACE), self._new_lease())
                return
        self._lease["spec"]["holderIdentity"] = self.identity.name
        self._lease["spec"]["renewTime"] = micro_timestamp()
        self._lease = await client.put(path, self._lease)

    def _new_lease(self) -> JsonObject:
        metadata: JsonObject = {"name": self.identity.name, "namespace": LEASE_NAMESPACE}
        if node := self._view.nodes.get(self.identity.name):
            metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": self.identity.name, "uid": uid_of(node)}]
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity.name,
                "leaseDurationSeconds": max(1, round(self._timings.lease_duration)),
                "renewTime": micro_timestamp(),
            },
        }

    def _status_is_due(self, node: JsonObject) -> bool:
        if node["status"].get("nodeInfo", {}).get("bootID") != self.boot_id:
            return True
        for condition_type, status in self._all_conditions().items():
            condition = condition_of(node, condition_type)
            if condition is None or condition["status"] != status:
                return True
        return asyncio.get_running_loop().time() - self._reported_at > self._timings.status_report

    async def _report_status(self, status: JsonObject) -> None:
        path = NODES.path(self.identity.name, subresource="status")
        answer = await self._client.patch(path, {"status": status}, patch_type=PatchType.STRATEGIC_MERGE)
        self._view.nodes.remember(answer)
        self._reported_at = asyncio.get_running_loop().time()

    def _all_conditions(self) -> dict[str, str]:
        pressures = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        return {**pressures, READY: "True", **self._conditions}

    def _status(self, known: JsonObject | None) -> JsonObject:
        resources = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        return {
            "addresses": [
                {"type": "InternalIP", "address": self.identity.address},
                {"type": "Hostname", "address": self.identity.name},
            ],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [self._condition(known, *each) for each in self._all_conditions().items()],
            "nodeInfo": {
                "bootID": self.boot_id,
                "systemUUID": self.identity.system_uuid,
                "machineID": self.identity.machine_id,
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "Simulated Linux",
                "kernelVersion": "6.12.0-simulated",
                "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "v1.36.0",
                "containerRuntimeVersion": "containerd://2.1.0",
            },
        }

    def _first_status(self, known: JsonObject | None) -> JsonObject:
        """After a boot nothing is mounted; after a mere restart of the kubelet it is. From here on the pod workers say it."""
        return {**self._status(known), "volumesInUse": sorted(self._containers.mounted)}

    def _condition(self, known: JsonObject | None, condition_type: str, status: str) -> JsonObject:
        now = timestamp()
        before = condition_of(known, condition_type) if known else None
        unchanged = before is not None and before["status"] == status
        if condition_type == READY:
            reason = "KubeletReady" if status == "True" else "KubeletNotReady"
            message = "kubelet is posting ready status" if status == "True" else "container runtime is down"
        else:
            reason = f"KubeletHas{'' if status == 'True' else 'No'}{condition_type}"
            message = f"kubelet reports {condition_type}={status}"
        return {
            "type": condition_type,
            "status": status,
            "lastHeartbeatTime": now,
            "lastTransitionTime": before["lastTransitionTime"] if before and unchanged else now,
            "reason": reason,
            "message": message,
        }
