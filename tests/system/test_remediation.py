"""Remediation on whole clusters: machines replaced by their MachineSets, and what is remembered of those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from policy.episodes import EpisodeResult, Kind, Outcome
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, read_memory
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import JsonObject
from tests.system.harness import System
from tests.system.temporal_server import TemporalServer
from workflows.ids import episode_id

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, health_timeout=1.0)
NAMESPACE = "openshift-machine-api"
CHECKS = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machinehealthchecks"


@pytest.fixture(scope="module")
async def system(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    folder = tmp_path_factory.mktemp("remediation")
    workers = MachineOptions(system="openshift", settings=QUICK)
    async with System(folder, temporal=temporal, namespace=free_namespaces.pop(), nodes=4, workers_as=workers) as system:
        await system.start_worker()
        await system.client.create(CHECKS, machine_health_check())
        await system.warden.start_scanner(system.cluster_name)
        yield system


def machine_health_check(**annotations: str) -> JsonObject:
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "workers", "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "selector": {},
            "maxUnhealthy": 2,
            "unhealthyConditions": [
                {"type": "Ready", "status": "Unknown", "timeout": "1s"},
                {"type": "Ready", "status": "False", "timeout": "1s"},
            ],
        },
    }


async def result_of(system: System, node: str) -> EpisodeResult:
    handle = system.warden.client.get_workflow_handle(episode_id("sim", node), result_type=EpisodeResult)
    found: EpisodeResult = await asyncio.wait_for(handle.result(), 60)
    return found


async def begun(system: System, node: str) -> None:
    async def open_now() -> bool:
        found = await system.scanner()
        return found is not None and any(permit.node == node and permit.kind is Kind.REMEDIATION for permit in found.permits)

    await system.until(open_now, f"a remediation of {node} begins", seconds=30)


async def test_a_worker_machine_that_fails_is_replaced_and_its_successor_remembers(system: System) -> None:
    """Seed 000: the Machine is requested for deletion, its owner makes another one; asked for once, by uid."""
    node, fleet = "node-2", system.cluster.machines
    machine, before = fleet.of_node(node), set(fleet.names)
    system.break_node(node, "kernel-hangs")
    await begun(system, node)
    result = await result_of(system, node)
    assert result.outcome is Outcome.REPLACED, result.message
    assert machine not in fleet.names
    (successor,) = set(fleet.names) - before
    assert successor in result.message
    asked = [deletion for deletion in fleet.deletions(machine) if deletion.status == 200]
    assert len(asked) == 1
    assert asked[0].uid
    assert asked[0].resource_version
    there = fleet.machine(successor)
    assert there is not None
    memory = read_memory(there["metadata"]["annotations"][LAST_REMEDIATION_ANNOTATION])
    assert (memory.of, memory.retry, memory.incident) == (machine, 0, result.incident)
