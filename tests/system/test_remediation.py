"""Remediation on whole clusters: machines replaced by their MachineSets, and what is remembered of those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from policy.checks.health_check import BACKOFF_ANNOTATION, MAX_RETRY_ANNOTATION
from policy.dialects.common import AUTOSCALER_PATIENCE_ANNOTATION
from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Outcome, Phase, episode_id
from policy.episode.permits import PermitState
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, read_memory
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions, Trouble
from simulator.node import NodeFault
from simulator.objects import JsonObject
from tests.system.fixtures import Standing
from tests.system.harness import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, health_timeout=1.0)
NAMESPACE = "openshift-machine-api"
CHECKS = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machinehealthchecks"


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    workers = MachineOptions(system="openshift", settings=QUICK)
    async with standing(workers_as=workers) as system:
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
            "nodeStartupTimeout": "4s",
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


async def parked(system: System, machine: str) -> EpisodeStatus:
    """The episode of a Machine without a Node, once it asks for a person."""
    found: list[EpisodeStatus] = []

    async def asks() -> bool:
        found[:] = [await system.warden.episode("sim", f"machine/{NAMESPACE}/{machine}").status()]
        return found[0].phase is Phase.NEEDS_HUMAN

    await system.until(asks, f"{machine} is a person's case", seconds=60, tolerate=True)
    return found[0]


async def begun(system: System, node: str) -> None:
    async def open_now() -> bool:
        found = await system.scanner()
        permits = [each for each in found.permits if each.node == node] if found is not None else []
        # A permit is reserved before its episode is opened.
        return any(each.kind is Kind.REMEDIATION and each.state is PermitState.OPEN for each in permits)

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


async def test_replacements_that_fail_are_retries_until_a_person_is_asked_and_has_it_go_on(system: System) -> None:
    """Seed 003's sequence: M1 fails, M1-1 is remediation-retry 1, M1-2 would be the second; maxRetry 1 ends it, loudly."""
    node, fleet = "node-3", system.cluster.machines
    rules = {MAX_RETRY_ANNOTATION: "1", BACKOFF_ANNOTATION: "none", AUTOSCALER_PATIENCE_ANNOTATION: "0s"}
    await system.client.patch(f"{CHECKS}/workers", {"metadata": {"annotations": rules}})
    first = fleet.of_node(node)
    machine_set = (fleet.machine(first) or {})["metadata"]["ownerReferences"][0]["name"]
    fleet.instances.troubles[machine_set] = Trouble(fault=NodeFault.NEVER_BOOTS)
    asked = len(fleet.deletions())
    system.break_node(node, "kernel-hangs")

    def lineage() -> list[str]:
        """Who was remediated, in order: what the youngest remembers, and so on back."""
        made = [each for each in fleet.names if (there := fleet.machine(each)) and _memory(there) is not None]
        return sorted(made, key=lambda each: _memory(fleet.machine(each) or {}) or (0, ""))

    def second_retry() -> bool:
        last = lineage()
        return bool(last) and (_memory(fleet.machine(last[-1]) or {}) or (0, ""))[0] == 1

    await system.until(second_retry, "the replacement of the replacement is there", seconds=90)
    last = lineage()[-1]
    status = await parked(system, last)
    assert "maxRetry is 1" in status.problem
    assert not status.permit
    asks: list[str] = []
    deadline = asyncio.get_running_loop().time() + 20  # the Event comes after the phase
    while not asks and asyncio.get_running_loop().time() < deadline:
        told = await system.client.get(f"/api/v1/namespaces/{NAMESPACE}/events")
        named = [each for each in told["items"] if each["involvedObject"]["name"] == last]
        asks = [each["message"] for each in named if each["reason"] == "NeedsHuman"]
        await asyncio.sleep(0.2)
    assert asks, "kubectl describe machine says that a person is needed"
    assert [each.status for each in fleet.deletions()[asked:] if not each.by_controllers] == [200, 200], "M1 and M1-1, no more"
    fleet.instances.troubles.clear()
    episode = system.warden.episode("sim", f"machine/{NAMESPACE}/{last}")
    await episode.resume(who="Ada", reason="the image is mended", question=(await episode.status()).question)
    result = await result_of(system, f"machine/{NAMESPACE}/{last}")
    assert result.outcome is Outcome.REPLACED, result.message
    assert "is Ready" in result.message


def _memory(machine: JsonObject) -> tuple[int, str] | None:
    text = (machine.get("metadata") or {}).get("annotations", {}).get(LAST_REMEDIATION_ANNOTATION)
    if text is None:
        return None
    last = read_memory(text)
    mine = machine["metadata"]["name"]  # noted before it is deleted; who comes after it remembers it
    return (last.retry, last.of) if last.of != mine else None
