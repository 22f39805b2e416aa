"""self-node-remediation, simulated: an agent that reboots its node, and a manager that believes it without looking."""

from __future__ import annotations

import dataclasses

import pytest

from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject
from simulator.remediators.contract import NODE_NAME
from simulator.remediators.self_node import CAPABLE, Agent, SelfNodeRemediations
from tests.simulator.cluster.conftest import FAST as CONTROLLERS
from tests.simulator.remediators.conftest import Asker, cluster_with

pytestmark = pytest.mark.timeout(40)

KIND = SelfNodeRemediations.remediations


def running(**changes: object) -> SimulatedCluster:
    return cluster_with("self-node-remediation", **changes)  # type: ignore[arg-type]


def phase_of(asker: Asker, name: str) -> str:
    """As the operator's own cache has it."""
    known = asker.cluster.remediator(SelfNodeRemediations).objects.get(f"{asker.namespace}/{name}") or {}
    return str((known.get("status") or {}).get("phase", ""))


async def until_capable(cluster: SimulatedCluster, node: str, value: str = "true") -> None:
    def says() -> bool:
        known: JsonObject = cluster.view.nodes.get(node) or {"metadata": {}}
        return (known["metadata"].get("annotations") or {}).get(CAPABLE) == value

    await cluster.wait_until(says, what=f"the agent of {node} says {value}")


async def test_a_reboot_that_never_happens_is_believed_and_costs_two_writers() -> None:
    """What the operator is known for: the time alone licenses it to free the workloads."""
    soon_detached = dataclasses.replace(CONTROLLERS, force_detach_after=0.3)
    async with running(demo_workloads=True, controller_timings=soon_detached) as cluster:
        asker, operator = Asker(cluster, KIND), cluster.remediator(SelfNodeRemediations)
        node = cluster.node_of_pod("demo/database-0")
        await until_capable(cluster, node)
        operator.set_agent(node, Agent.DEAD)
        cluster.break_node(node, "kubelet-stops")
        boot_id = cluster.node(node).boot_id
        await asker.ask("by-annotation", {"remediationStrategy": "ResourceDeletion"}, annotations={NODE_NAME: node})
        await cluster.wait_until(lambda: phase_of(asker, "by-annotation") == "Fencing-Completed", what="completed")
        assert (operator.reboots, cluster.node(node).boot_id) == ([], boot_id)
        await cluster.wait_until(lambda: bool(cluster.storage.violations), what="the database is written twice")
