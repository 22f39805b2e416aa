"""fence-agents-remediation, simulated: its operator against the machines' devices."""

from __future__ import annotations

import pytest

from simulator.objects import has_taint
from simulator.remediators.fence_agents import DEVICE, FINALIZER, TAINT, AgentRun, FenceAgentsRemediations
from simulator.resources import NODES
from tests.simulator.remediators.conftest import Asker, cluster_with, reason, told

pytestmark = pytest.mark.timeout(40)

KIND = FenceAgentsRemediations.remediations
CONDITIONS = ("Processing", "FenceAgentActionSucceeded", "Succeeded")
SPEC = {"agent": "fence_ipmilan", "retrycount": 2, "retryinterval": "10ms", "timeout": "300ms"}
FAILED = ("False", "False", "False")


async def test_a_machine_is_rebooted_through_its_device_and_its_pods_are_freed() -> None:
    async with cluster_with("fence-agents-remediation", bmc="python", nodes=2, demo_workloads=True) as cluster:
        asker, operator = Asker(cluster, KIND), cluster.remediator(FenceAgentsRemediations)
        objects = operator.objects

        def why(node: str) -> str:
            return reason(objects.get(f"{asker.namespace}/{node}"))

        node = cluster.node_of_pod("demo/database-0")
        [other] = set(cluster.nodes) - {node}
        cluster.break_node(node, "kubelet-stops")
        boot_id = cluster.node(node).boot_id
        await asker.ask(node, SPEC | {"timeout": "10s"})
        await cluster.wait_until(lambda: why(node) == "RemediationFinishedSuccessfully", what="remediated")
        remediation = await asker.read(node)
        assert remediation is not None
        assert told(remediation, *CONDITIONS) == ("False", "True", "True")
        assert remediation["metadata"]["finalizers"] == [FINALIZER]
        assert operator.runs == [AgentRun(node=node, action="reboot", ended="done")]
        assert [(each.device, each.command) for each in cluster.chassis.machine(node).log] == [(DEVICE, "off"), (DEVICE, "on")]
        assert cluster.node(node).boot_id != boot_id
        assert has_taint(await cluster.client.get(NODES.path(node)), TAINT["key"], "NoSchedule")
        await asker.delete(node)
        await cluster.wait_until(lambda: not objects.objects, what="the object is gone")
        assert not has_taint(await cluster.client.get(NODES.path(node)), TAINT["key"])
        assert cluster.storage.violations == []

        # A device that lies is asked until its time is over, and again.
        operator.runs.clear()
        cluster.break_node(other, "bmc-ignores-off")
        await asker.ask(other, SPEC | {"timeout": "10s"})
        await cluster.wait_until(lambda: why(other) == "FenceAgentFailed", what="failed")
        assert told(await asker.read(other), *CONDITIONS) == FAILED
        assert [each.ended for each in operator.runs] == ["failed", "failed"]
        assert cluster.node(other).is_on


async def test_what_is_given_up_is_cancelled_in_the_middle() -> None:
    async with cluster_with("fence-agents-remediation") as cluster:
        asker, operator = Asker(cluster, KIND), cluster.remediator(FenceAgentsRemediations)
        operator.hanging.add("node-1")
        key = f"{asker.namespace}/node-1"
        await asker.ask("node-1", SPEC | {"timeout": "30s"})

        await cluster.wait_until(lambda: operator.busy == 1, what="at work")
        await asker.give_up("node-1")
        await cluster.wait_until(lambda: reason(operator.objects.get(key)) == "RemediationInterruptedByNHC", what="interrupted")
        assert told(await asker.read("node-1"), *CONDITIONS) == FAILED
        await cluster.wait_until(lambda: operator.busy == 0, what="cancelled")
        await asker.delete("node-1")
        await cluster.wait_until(lambda: not operator.objects.objects, what="the object is gone")
        assert operator.runs == []
        assert cluster.node("node-1").boots == 1
