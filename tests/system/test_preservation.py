"""Preservation on a cluster whose workers are Machines of machine-controller-manager, replaced by their MachineSets.

The one that is preserved survives its failure and every look of ours; once it is released it is replaced. Nothing but our own
controller deletes a failed Machine here, as `docs/preservation.md` asks for.
"""

from __future__ import annotations

import asyncio

import pytest

from policy.episode.messages import EpisodeResult, Kind, Outcome, Phase
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.held import CONDITION, SCALE_DOWN_DISABLED, TAINT
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import condition_of
from simulator.resources import NODES
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from tests.system.questions import episode

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, health_timeout=1.0)


async def test_a_preserved_machine_survives_its_failure_and_is_replaced_once_it_is_released(make_system: MakeSystem) -> None:
    """Use cases 1 and 3 of seed 001, end to end; S21, S28."""
    system: System = await make_system(workers_as=MachineOptions(system="gardener", settings=QUICK))
    await system.start_worker()
    await system.warden.start_scanner(system.cluster_name)
    node, fleet = "node-2", system.cluster.machines
    machine = fleet.of_node(node)
    before = set(fleet.names)

    async def annotate(value: str) -> None:
        await system.client.patch(NODES.path(node), {"metadata": {"annotations": {PRESERVE_ANNOTATION: value}}})

    def expiry() -> str:
        status = (fleet.machine(machine) or {}).get("status") or {}
        return str(status.get("currentStatus", {}).get("preserveExpiryTime") or "")

    await annotate("true")
    await system.until(lambda: expiry() != "", f"{machine} is preserved", seconds=30)
    until = expiry()
    system.break_node(node, "kernel-hangs")

    async def failed_and_drained() -> bool:
        found = condition_of(await system.live_node(node), CONDITION)
        return found is not None and "Preserved node" in str(found.get("message"))

    await system.until(failed_and_drained, f"{node} is drained", seconds=40)
    there = await system.live_node(node)
    assert fleet.phase(machine) == "Failed"
    assert expiry() == until, "S22"
    assert TAINT in {taint["key"] for taint in there["spec"]["taints"]}
    assert there["metadata"]["annotations"][SCALE_DOWN_DISABLED] == "true"
    status = await system.warden.episode(system.cluster_name, node).status()
    assert (status.kind, status.phase) == (Kind.PRESERVATION, Phase.FAILED_PRESERVED)
    assert set(fleet.names) == before
    assert fleet.deletions() == []
    await annotate("false")
    result: EpisodeResult = await asyncio.wait_for(episode(system, node).result(), 60)
    assert result.outcome is Outcome.REPLACED

    def replaced() -> bool:
        return machine not in fleet.names and len(fleet.names) == len(before)

    await system.until(replaced, f"{machine} is replaced", seconds=40)
    asked = [deletion for deletion in fleet.deletions(machine) if deletion.status == 200]
    assert len(asked) == 1
    assert asked[0].uid
    assert asked[0].resource_version
