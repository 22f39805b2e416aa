"""A pool that keeps one failed machine: two fail, by the word of a health check alone, and exactly one of them is kept.

The other is fenced as ever, and the kept one goes on, untouched and powered, until its pool keeps none: then its Machine is given
up, and its MachineSet makes another one. The systems of Machines differ in
`tests/cluster/test_keeping_failed.py`.
"""

from __future__ import annotations

import asyncio

import pytest

from policy.episode.messages import Kind, Outcome, Phase
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import CONDITION
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import JsonObject, condition_of
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from tests.system.witness import PowerLog

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

SETTINGS = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1)
"""Nothing but the health check calls a machine failed here: a system's own time-outs are minutes."""
POLICIES = "/apis/nodewarden.io/v1alpha1/preservationpolicies"


async def keep(system: System, most: int) -> None:
    spec = {"selector": {}, "autoPreserveFailedMax": most, "settleTime": "1s"}
    body = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "PreservationPolicy", "metadata": {"name": "workers"}, "spec": spec}
    await system.client.create(POLICIES, body)


def _says_preserved(node: JsonObject) -> bool:
    found = condition_of(node, CONDITION)
    return found is not None and found["status"] == "True"


async def test_of_two_machines_that_fail_one_is_kept_and_the_other_fenced(make_system: MakeSystem) -> None:
    """S21, S23, S24: exactly one, whatever is done with the other; when the cap falls it is given up."""
    system: System = await make_system(nodes=5, zones=1, workers_as=MachineOptions(system="cluster-api", settings=SETTINGS))
    fleet = system.cluster.machines
    await asyncio.gather(
        system.start_worker(), system.apply_policy(check={"minHealthy": 1}, plan={"waitBeforePower": "2s"}), keep(system, 1)
    )
    await system.start_scanner(cap=3)
    there = set(fleet.names)
    broken = {node: system.break_node(node) for node in ("node-4", "node-5")}
    found: list[str] = []

    async def one_is_kept() -> bool:
        found[:] = [node for node in broken if _says_preserved(await system.live_node(node))]
        return bool(found)

    await system.until(one_is_kept, "one of them is kept", seconds=40)
    (kept,) = found
    (other,) = broken.keys() - {kept}
    before_other, before_kept, machine = broken[other], broken[kept], fleet.of_node(kept)
    result = await system.ended(before_other)
    assert result.outcome is Outcome.RECOVERED
    assert await system.judge(before_other, result) == []
    episode = await system.warden.episode(system.cluster_name, kept).status()
    assert (episode.kind, episode.phase) == (Kind.PRESERVATION, Phase.FAILED_PRESERVED)
    annotated = (fleet.machine(machine) or {})["metadata"]["annotations"]
    assert annotated[PRESERVE_ANNOTATION] == "auto-preserved"
    power = PowerLog.of(system.cluster.chassis.machine(kept), before_kept)
    assert (power.count("off"), power.count("on")) == (0, 0), "S21"
    assert fleet.deletions() == []
    assert set(fleet.names) == there
    status = await system.scanner()
    assert status is not None
    assert kept not in {held.node for held in status.held_off}, "nobody even tried to fence it"

    await system.client.patch(f"{POLICIES}/workers", {"spec": {"autoPreserveFailedMax": 0}})
    await system.until(
        lambda: machine not in fleet.names and len(fleet.names) == len(there), f"{machine} is replaced", seconds=60
    )
    episode = await system.warden.episode(system.cluster_name, kept).status()
    assert episode.kind is Kind.REMEDIATION
    assert [each.status for each in fleet.deletions(machine)] == [200]
