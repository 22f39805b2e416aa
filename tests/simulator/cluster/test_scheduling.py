"""Where pods may go: cordons, taints, control planes, zones, and what scales them."""

from __future__ import annotations

import pytest

from simulator.objects import is_ready, node_of
from simulator.resources import DEPLOYMENTS, NODES
from tests.simulator.cluster.conftest import Observer

pytestmark = pytest.mark.timeout(40)

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
