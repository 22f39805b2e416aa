"""node-maintenance-operator, simulated: a lease, a label, a cordon and a drain."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.client import ApiError
from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, has_taint
from simulator.remediators.contract import EXCLUDED
from simulator.remediators.node_maintenance import HOLDER, LEASE_NAMESPACE, TAINTS, NodeMaintenances
from simulator.resources import LEASES, NODES
from tests.simulator.remediators.conftest import Asker, cluster_with

pytestmark = pytest.mark.timeout(40)

KIND = NodeMaintenances.remediations


def running(**changes: Any) -> SimulatedCluster:
    return cluster_with("node-maintenance", **changes)


def status_of(cluster: SimulatedCluster, name: str) -> JsonObject:
    known = cluster.remediator(NodeMaintenances).objects.get(name) or {}
    status: JsonObject = known.get("status") or {}
    return status


async def test_a_node_is_emptied_under_a_lease_and_given_back() -> None:
    async with running(demo_workloads=True) as cluster:
        asker = Asker(cluster, KIND)
        node = cluster.node_of_pod("demo/database-0")
        await asker.ask("service", {"nodeName": node, "reason": "new fans"})
        await cluster.wait_until(lambda: status_of(cluster, "service").get("phase") == "Succeeded", what="emptied")
        assert status_of(cluster, "service")["drainProgress"] == 100
        lease = await cluster.client.get(LEASES.path(f"node-{node}", namespace=LEASE_NAMESPACE))
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == (HOLDER, 3600)
        found = await cluster.client.get(NODES.path(node))
        assert found["metadata"]["labels"][EXCLUDED] == "true"
        assert found["spec"]["unschedulable"] is True
        assert all(has_taint(found, each["key"], each["effect"]) for each in TAINTS)
        assert cluster.view.pods_by_node[node] == []
        await asker.delete("service")
        await cluster.wait_until(lambda: not cluster.remediator(NodeMaintenances).objects.objects, what="ended")
        found = await cluster.client.get(NODES.path(node))
        assert EXCLUDED not in found["metadata"]["labels"]
        assert not found["spec"].get("unschedulable")
        assert not has_taint(found, "medik8s.io/drain")
        with pytest.raises(ApiError, match="404"):
            await cluster.client.get(LEASES.path(f"node-{node}", namespace=LEASE_NAMESPACE))
