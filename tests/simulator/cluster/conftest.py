"""Small, fast clusters for the tests of the simulated cluster itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from simulator.client import ApiClient
from simulator.cluster import SimulatedCluster
from simulator.controllers import ControllerTimings
from simulator.kubelet import NodeTimings
from simulator.objects import (
    JsonObject,
    condition_status,
    is_ready,
    is_terminating,
    name_of,
    node_of,
    taints_of,
    timestamp,
    uid_of,
)
from simulator.resources import ATTACHMENTS, NODES, PODS

FAST = ControllerTimings(
    node_monitor_grace=0.8,
    evictions_per_second=20,
    default_toleration=0.3,
    pod_garbage_period=0.05,
    lost_node_quarantine=0.3,
    force_detach_after=60,
    attach=0.02,
)


FAST_NODES = NodeTimings(
    heartbeat=0.1, lease_duration=1, boot=0.05, container_start=0.02, container_stop=0.02, crash_up=0.4, crash_down=1.2
)


def small_cluster(**changes: Any) -> SimulatedCluster:
    """Six nodes in three zones whose clocks run a hundred times faster than real ones."""
    settings: dict[str, Any] = {"nodes": 6, "node_timings": FAST_NODES, "controller_timings": FAST, "toleration_seconds": 0}
    return SimulatedCluster(**{**settings, **changes})


class Observer:
    """Looks at a cluster through its API, as `kubectl` would, and acts on it like an operator."""

    def __init__(self, cluster: SimulatedCluster, client: ApiClient) -> None:
        self.cluster = cluster
        self.client = client

    def node(self, name: str) -> JsonObject:
        node = self.cluster.view.nodes.get(name)
        assert node is not None, f"no Node {name}"
        return node

    def ready(self, name: str) -> str:
        return condition_status(self.node(name), "Ready")

    def boot_id(self, name: str) -> str:
        return str(self.node(name)["status"]["nodeInfo"]["bootID"])

    def taint_keys(self, name: str, *effects: str) -> set[str]:
        return {taint["key"] for taint in taints_of(self.node(name), *effects)}

    def pod(self, key: str) -> JsonObject | None:
        return self.cluster.view.pods.get(key)

    def pods_on(self, node: str) -> set[str]:
        return {name_of(pod) for pod in self.cluster.view.pods_by_node[node]}

    def is_terminating(self, key: str) -> bool:
        pod = self.pod(key)
        return pod is not None and is_terminating(pod)

    def runs_elsewhere(self, key: str, than: str) -> bool:
        pod = self.pod(key)
        return pod is not None and is_ready(pod) and not is_terminating(pod) and node_of(pod) not in {"", than}

    def attached_to(self, node: str) -> list[str]:
        return [name_of(each) for each in self.cluster.view.attachments_by_node[node]]

    async def until(self, condition: Any, what: str, *, seconds: float = 15) -> None:
        await self.cluster.wait_until(condition, what=what, seconds=seconds)

    async def taint_out_of_service(self, name: str) -> None:
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        node = await self.client.get(NODES.path(name))
        taints = [*taints_of(node), {**taint, "timeAdded": timestamp()}]
        version = node["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
        await self.client.patch(NODES.path(name), patch)

    async def force_delete(self, key: str) -> None:
        pod = self.pod(key)
        assert pod is not None
        await self.client.delete(PODS.path_of_key(key), grace_seconds=0, uid=uid_of(pod))

    async def delete_attachments(self, node: str) -> None:
        for name in self.attached_to(node):
            await self.client.delete(ATTACHMENTS.path(name))


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with small_cluster() as running:
        yield running


@pytest.fixture
async def observer(cluster: SimulatedCluster) -> AsyncIterator[Observer]:
    async with ApiClient(cluster.address, user_agent="observer") as client:
        yield Observer(cluster, client)
