"""The mirror pods of a simulated control plane."""

from __future__ import annotations

import pytest

from simulator.client import ApiError
from simulator.cluster import SimulatedCluster
from simulator.objects import controller_of, is_ready, name_of, node_of
from simulator.resources import NODES, PODS
from tests.simulator.cluster.conftest import small_cluster

pytestmark = pytest.mark.timeout(40)

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def ready(cluster: SimulatedCluster, node: str) -> list[str]:
    """The components of a node whose pods are Ready."""
    pods = [pod for pod in cluster.view.pods if node_of(pod) == node and is_ready(pod)]
    return sorted(name_of(pod).removesuffix(f"-{node}") for pod in pods)


async def until_all_ready(cluster: SimulatedCluster, node: str) -> None:
    await cluster.wait_until(lambda: ready(cluster, node) == sorted(COMPONENTS), what=f"all components of {node}")


async def test_they_are_ready_while_their_node_is_and_come_back_when_they_are_deleted() -> None:
    async with small_cluster(nodes=1, zones=1, control_planes=2, demo_workloads=False, mirror_pods=True) as cluster:
        for node in ("control-plane-1", "control-plane-2"):
            await until_all_ready(cluster, node)
        assert ready(cluster, "node-1") == []
        pod = cluster.view.pods.get("kube-system/etcd-control-plane-1") or {}
        assert pod["metadata"]["labels"] == {"component": "etcd", "tier": "control-plane"}
        assert (controller_of(pod) or {})["kind"] == "Node"
        assert {"operator": "Exists", "effect": "NoExecute"} in pod["spec"]["tolerations"], "nothing evicts it"
        await cluster.client.delete(PODS.path("etcd-control-plane-1", namespace="kube-system"), grace_seconds=0)
        await cluster.wait_until(
            lambda: (
                "etcd" in ready(cluster, "control-plane-1")
                and (cluster.view.pods.get("kube-system/etcd-control-plane-1") or pod)["metadata"]["uid"]
                != pod["metadata"]["uid"]
            ),
            what="another one",
        )
        cluster.break_node("control-plane-1", "kubelet-stops")
        await cluster.wait_until(lambda: ready(cluster, "control-plane-1") == [], what="not ready")
        assert "kube-system/etcd-control-plane-1" in cluster.view.pods.objects, "what is silent is still shown"
        path = PODS.path("kube-scheduler-control-plane-1", namespace="kube-system")
        await cluster.client.delete(path, grace_seconds=0)
        await cluster.client.delete(PODS.path("etcd-control-plane-2", namespace="kube-system"), grace_seconds=0)
        await until_all_ready(cluster, "control-plane-2")
        with pytest.raises(ApiError, match="404"):
            await cluster.client.get(path)
        await cluster.remove_node("control-plane-1")
        await cluster.client.delete(NODES.path("control-plane-1"))
        await cluster.wait_until(
            lambda: "kube-system/etcd-control-plane-1" not in cluster.view.pods.objects, what="gone with their node"
        )
