"""Cluster API: whoever owns a Machine remediates it. We say by conditions that it is its turn, and see it through.

A worker's MachineSet, and a KubeadmControlPlane whose rules are its own; and Metal3, to which a check's template hands a Machine.
"""

from __future__ import annotations

import asyncio

import pytest

from policy.episode.messages import EpisodeResult, Outcome, episode_id
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import JsonObject, name_of, uid_of
from simulator.remediation import RemediatorTimings
from simulator.remediators.metal3 import Metal3Remediations
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import is_open

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, health_timeout=1.0)
CHECKS = "/apis/cluster.x-k8s.io/v1beta2/namespaces/clusters/machinehealthchecks"


def check(name: str, selector: JsonObject) -> JsonObject:
    conditions = [{"type": "Ready", "status": status, "timeoutSeconds": 1} for status in ("Unknown", "False")]
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineHealthCheck",
        "metadata": {"name": name, "namespace": "clusters"},
        "spec": {"clusterName": "simulated", "selector": selector, "checks": {"unhealthyNodeConditions": conditions}},
    }


WORKERS = check("workers", {"matchExpressions": [{"key": "cluster.x-k8s.io/control-plane", "operator": "DoesNotExist"}]})
CONTROL_PLANE = check("control-plane", {"matchExpressions": [{"key": "cluster.x-k8s.io/control-plane", "operator": "Exists"}]})


async def remediated(system: System, node: str) -> tuple[str, EpisodeResult]:
    """Break a node, and see its episode to its end."""
    machine = system.cluster.machines.of_node(node)
    system.break_node(node, "kernel-hangs")
    await system.until(lambda: is_open(system, node), f"a remediation of {node} begins", seconds=30)
    handle = system.warden.client.get_workflow_handle(episode_id("sim", node), result_type=EpisodeResult)
    result: EpisodeResult = await asyncio.wait_for(handle.result(), 60)
    return machine, result


async def test_a_worker_and_one_of_two_members(standing: Standing) -> None:
    """Seed 003; S15. Their owners delete them, and nobody else; two members are the smallest control plane where one may go."""
    options = MachineOptions(system="cluster-api", settings=QUICK, control_plane=True, max_in_flight=1)
    shape = {"control_planes": 2, "mirror_pods": True}
    small = {"nodes": 2, "zones": 1, "workers_as": options, "demo_workloads": False, "shape": shape}
    async with standing(**small) as system:
        await system.start_worker()
        for each in (WORKERS, CONTROL_PLANE):
            await system.client.create(CHECKS, each)
        await system.warden.start_scanner(system.cluster_name)
        fleet = system.cluster.machines
        for node in ("node-2", "control-plane-2"):
            machine, result = await remediated(system, node)
            assert result.outcome is Outcome.REPLACED, result.message
            assert machine not in fleet.names
            deletions = fleet.deletions(machine)
            assert deletions
            assert all(each.by_controllers for each in deletions), "its owner has deleted it, not we"
        assert fleet.control_plane.is_whole
        assert len(fleet.names) == 4


async def test_metal3_is_driven_by_its_own_objects(standing: Standing) -> None:
    """Seed 003's external remediation: one object for the Machine, owned by it and gone in the end; nothing is deleted."""
    timings = RemediatorTimings(poll=0.05, power=0.03, metal3_second=0.1, machine_poll=0.05, power_on=60)
    shape = {"remediators": ("metal3",), "remediator_timings": timings}
    workers = MachineOptions(system="cluster-api", settings=QUICK)
    async with standing(nodes=3, zones=1, workers_as=workers, demo_workloads=False, shape=shape) as system:
        operator, fleet = system.cluster.remediator(Metal3Remediations), system.cluster.machines
        kinds, spec = operator.templates(), {"strategy": {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100}}
        await system.client.create(kinds.path(namespace="clusters"), operator.template("metal3", namespace="clusters", spec=spec))
        await system.start_worker()
        metal3 = check("workers", {"matchLabels": {"cluster.x-k8s.io/cluster-name": "simulated"}})
        metal3["spec"]["remediation"] = {"templateRef": {"apiVersion": kinds.api_version, "kind": kinds.kind, "name": "metal3"}}
        await system.client.create(CHECKS, metal3)
        await system.warden.start_scanner(system.cluster_name)
        machine, made = fleet.of_node("node-2"), dict[str, JsonObject]()
        operator.objects.subscribe(lambda _, after: made.update({uid_of(after): after}) if after is not None else None)
        _, result = await remediated(system, "node-2")
        assert result.outcome is Outcome.RECOVERED, result.message
        assert fleet.deletions() == []
        (only,) = made.values()
        assert name_of(only) == machine
        assert [owner["kind"] for owner in only["metadata"]["ownerReferences"]] == ["Machine"]
        await system.until(lambda: not list(operator.objects), "the object is gone", seconds=20)
