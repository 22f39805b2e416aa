"""Preservation on a cluster whose workers are Machines of machine-controller-manager, replaced by their MachineSets.

The one that is preserved survives its failure and every look of ours; the one that is released is replaced. Nothing but our own
controller deletes a failed Machine here, as `docs/preservation.md` asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from policy.episode.messages import EpisodeResult, Kind, Outcome, Phase
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.held import CONDITION, SCALE_DOWN_DISABLED, TAINT
from policy.preservation.last_to_go import PRIORITY_OURS
from policy.preservation.requests import PRESERVE_FOR_ANNOTATION
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import Fleet, MachineOptions
from simulator.objects import JsonObject, condition_of
from simulator.resources import EVENTS, NODES
from tests.system.harness import System
from tests.system.temporal_server import TemporalServer
from workflows.kit.ids import episode_id

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, health_timeout=1.0)
POLICIES = "/apis/nodewarden.io/v1alpha1/preservationpolicies"


@pytest.fixture(scope="module")
async def system(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    folder = tmp_path_factory.mktemp("preservation")
    workers = MachineOptions(system="gardener", settings=QUICK)
    async with System(folder, temporal=temporal, namespace=free_namespaces.pop(), nodes=4, workers_as=workers) as system:
        await system.start_worker()
        await system.warden.start_scanner(system.cluster_name)
        yield system


async def annotate(system: System, node: str, **values: str | None) -> None:
    await system.client.patch(NODES.path(node), {"metadata": {"annotations": values}})


async def expiry_of(system: System, machine: str) -> str | None:
    found = machines(system).machine(machine)
    return ((found or {}).get("status") or {}).get("currentStatus", {}).get("preserveExpiryTime")


def machines(system: System) -> Fleet:
    return system.cluster.machines


async def result_of(system: System, node: str) -> EpisodeResult:
    handle = system.warden.client.get_workflow_handle(episode_id("sim", node), result_type=EpisodeResult)
    found: EpisodeResult = await asyncio.wait_for(handle.result(), 60)
    return found


async def live(system: System, node: str) -> JsonObject:
    return await system.live_node(node)


async def test_a_preserved_machine_survives_its_failure_and_is_replaced_once_it_is_released(system: System) -> None:
    """Use cases 1 and 3 of seed 001, end to end; S21, S28."""
    node, fleet = "node-2", machines(system)
    machine = fleet.of_node(node)
    before = set(fleet.names)
    await annotate(system, node, **{PRESERVE_ANNOTATION: "true"})

    async def kept() -> bool:
        return await expiry_of(system, machine) is not None

    await system.until(kept, f"{machine} is preserved", seconds=30)
    expiry = await expiry_of(system, machine)
    system.break_node(node, "kernel-hangs")

    async def failed_and_drained() -> bool:
        found = condition_of(await live(system, node), CONDITION)
        return found is not None and "Preserved node" in str(found.get("message"))

    await system.until(failed_and_drained, f"{node} is drained", seconds=40)
    there = await live(system, node)
    assert fleet.phase(machine) == "Failed"
    assert await expiry_of(system, machine) == expiry, "S22"
    assert TAINT in {taint["key"] for taint in there["spec"]["taints"]}
    assert there["metadata"]["annotations"][SCALE_DOWN_DISABLED] == "true"
    episode = await system.warden.episode("sim", node).status()
    assert (episode.kind, episode.phase) == (Kind.PRESERVATION, Phase.FAILED_PRESERVED)
    assert set(fleet.names) == before
    assert fleet.deletions() == []
    await annotate(system, node, **{PRESERVE_ANNOTATION: "false"})
    result = await result_of(system, node)
    assert result.outcome is Outcome.REPLACED

    def replaced() -> bool:
        return machine not in fleet.names and len(fleet.names) == len(before)

    await system.until(replaced, f"{machine} is replaced", seconds=40)
    asked = [deletion for deletion in fleet.deletions(machine) if deletion.status == 200]
    assert len(asked) == 1
    assert asked[0].uid
    assert asked[0].resource_version


async def test_a_kept_machine_that_others_delete_is_let_go_at_once_and_it_is_said(system: System) -> None:
    """S21, S26: the override is recorded, in the result, and told on the Node, long before the hold would have expired; a word
    that means nothing is told as well."""
    node, fleet = "node-1", machines(system)
    machine = fleet.of_node(node)
    await annotate(system, node, **{PRESERVE_ANNOTATION: "now", PRESERVE_FOR_ANNOTATION: "for ever"})

    async def kept() -> bool:
        return await expiry_of(system, machine) is not None

    await system.until(kept, f"{machine} is preserved", seconds=30)
    found = fleet.machine(machine)
    assert found is not None
    assert PRIORITY_OURS in found["metadata"]["annotations"]
    path = fleet.system.machines.path(machine, namespace=fleet.system.namespace)
    await system.client.delete(path)
    result = await result_of(system, node)
    assert result.outcome is Outcome.RELEASED
    (entry,) = [entry for entry in result.record if entry.act == "override"]
    assert (entry.outcome, entry.detail) == ("deletion", result.message)
    listed = (await system.client.list(EVENTS.path(namespace="default")))["items"]
    told = {event["reason"]: event["message"] for event in listed if event["involvedObject"]["name"] == node}
    assert "deletion: asked for by somebody, or by MachineSet" in told["PreservationEnded"]
    assert "got 'for ever'" in told["InvalidPreservation"]
