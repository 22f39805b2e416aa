"""A ladder of other people's and our own steps on one node: self-node-remediation, then fencing, then another machine.

The agent on the node can't reboot it, and its time is over; its BMC refuses every command, so that fencing fails as well; what is
left is to have its Machine replaced. All of it is one episode, under one workflow id.
"""

from __future__ import annotations

import asyncio

import pytest

from policy.episode.messages import EpisodeResult, Kind, Outcome, episode_id
from policy.remediation.ladder import ESCALATION_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, read_memory
from simulator.machines import MachineOptions
from simulator.remediation import RemediatorTimings
from simulator.remediators.self_node import Agent, SelfNodeRemediations
from tests.system.fixtures import MakeSystem
from tests.system.harness import CHECKS, TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.test_remediation import QUICK

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

SNR = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "snr"}


async def test_self_node_remediation_then_fencing_then_another_machine(make_system: MakeSystem) -> None:
    """Seed 004's external remediation, with what is behind it; what failed is remembered by the successor."""
    timings = RemediatorTimings(poll=0.05, assume_rebooted=30, agent=0.05)
    system: System = await make_system(
        nodes=3,
        zones=1,
        workers_as=MachineOptions(system="openshift", settings=QUICK),
        demo_workloads=False,
        shape={"remediators": ("self-node-remediation",), "remediator_timings": timings},
    )
    node, fleet, operator = "node-2", system.cluster.machines, system.cluster.remediator(SelfNodeRemediations)
    machine, before = fleet.of_node(node), set(fleet.names)
    operator.set_agent(node, Agent.NOT_CAPABLE)
    body = operator.template("snr", namespace=TEMPLATE_NAMESPACE)
    await system.client.create(operator.templates().path(namespace=TEMPLATE_NAMESPACE), body)
    once = {"tries": 1, "restarts": 0, "waitBeforePower": "0s"}
    await system.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), system.fencing_template(once))
    check = system.health_check({"remediationTemplate": {**SNR, "namespace": TEMPLATE_NAMESPACE}})
    check["metadata"]["annotations"] = {ESCALATION_ANNOTATION: "external=3s, fence=1m, delete-machine"}
    await system.client.create(CHECKS.path(), check)
    await system.start_worker()
    await system.warden.start_scanner(system.cluster_name)
    system.cluster.break_node(node, "bmc-refuses")
    system.break_node(node, "kernel-hangs")

    async def handed_out() -> bool:
        return any(True for _ in operator.objects)

    await system.until(handed_out, "a SelfNodeRemediation is made", seconds=30)
    handle = system.warden.client.get_workflow_handle(episode_id("sim", node), result_type=EpisodeResult)
    status = await system.warden.episode("sim", node).status()
    assert status.kind is Kind.REMEDIATION
    result: EpisodeResult = await asyncio.wait_for(handle.result(), 90)
    assert result.outcome is Outcome.REPLACED, result.message
    began = [entry.detail for entry in result.record if entry.act == "step" and entry.outcome == "begins"]
    assert began == ["1 of 3: external", "2 of 3: fence", "3 of 3: delete-machine"]
    assert machine not in fleet.names
    (successor,) = set(fleet.names) - before
    there = fleet.machine(successor)
    assert there is not None
    memory = read_memory(there["metadata"]["annotations"][LAST_REMEDIATION_ANNOTATION])
    assert (memory.of, memory.failed) == (machine, ("external", "fence"))
    await system.until(lambda: not list(operator.objects), "the object is taken back", seconds=30)
