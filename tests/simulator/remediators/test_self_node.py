"""self-node-remediation, simulated: an agent that reboots its node, and a manager that believes it without looking."""

from __future__ import annotations

import dataclasses

import pytest

from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, has_taint
from simulator.remediators.contract import NODE_NAME
from simulator.remediators.self_node import CAPABLE, FINALIZER, TAINT, Agent, SelfNodeRemediations
from simulator.resources import NODES
from tests.simulator.cluster.conftest import FAST as CONTROLLERS
from tests.simulator.remediators.conftest import Asker, cluster_with, reason, told

pytestmark = pytest.mark.timeout(40)

KIND = SelfNodeRemediations.remediations
ENDED = ("Processing", "Succeeded")


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


async def test_a_node_is_rebooted_by_its_agent_and_set_free_when_the_object_goes() -> None:
    """A device that refuses everything does not matter to the agent."""
    async with running(bmc="python", nodes=1) as cluster:
        asker, operator = Asker(cluster, KIND), cluster.remediator(SelfNodeRemediations)
        await until_capable(cluster, "node-1")
        cluster.break_node("node-1", "kubelet-stops")
        cluster.break_node("node-1", "bmc-refuses")
        boot_id = cluster.node("node-1").boot_id
        await asker.ask("node-1", {"remediationStrategy": "ResourceDeletion"})
        await cluster.wait_until(lambda: phase_of(asker, "node-1") == "Pre-Reboot-Completed", what="prepared")
        remediation = await asker.read("node-1")
        assert remediation is not None
        assert remediation["metadata"]["finalizers"] == [FINALIZER]
        assert told(remediation, *ENDED) == ("True", "Unknown")
        assert remediation["status"]["timeAssumedRebooted"] > remediation["metadata"]["creationTimestamp"]
        assert has_taint(await cluster.client.get(NODES.path("node-1")), TAINT["key"], "NoSchedule")
        await cluster.wait_until(lambda: phase_of(asker, "node-1") == "Fencing-Completed", what="completed")
        remediation = await asker.read("node-1")
        assert (told(remediation, *ENDED), reason(remediation)) == (("False", "True"), "RemediationFinishedSuccessfully")
        assert operator.reboots == ["node-1"], "once"
        assert cluster.node("node-1").boot_id != boot_id
        assert has_taint(await cluster.client.get(NODES.path("node-1")), TAINT["key"]), "until the object goes"
        await asker.delete("node-1")
        await cluster.wait_until(lambda: not operator.objects.objects, what="the object is gone")
        assert not has_taint(await cluster.client.get(NODES.path("node-1")), TAINT["key"])


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
