"""A machine that fails while its pool may only observe, and what its pool does with it as the mode is raised, step by step (S52).

By the word of a health check alone, on an instance of EC2, whose paths can be cut: its Machine is given up in the end.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from demo.manifests import power_device
from policy.episode.messages import Phase
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import CONDITION, ISOLATION_ANNOTATION, TAINT
from policy.values.mode import Mode
from simulator.control import describe
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from simulator.objects import condition_of
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from tests.system.questions import commands, in_phase, opened_at, our_writes, traces
from tests.system.test_preservation_caps import POLICIES

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

SETTINGS = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1)
VICTIM = "demo/database-0"
DEADLOCK = {"type": "KernelDeadlock", "status": "True"}
BY = {"who": "ada", "reason": "step by step"}


class Kept:
    """The machine, and what of ours stands on it."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.node = system.node_of_pod(VICTIM)
        self.machine = system.cluster.machines.of_node(self.node)

    async def set_mode(self, mode: Mode) -> None:
        await self.system.warden.scanner(self.system.cluster_name).set_mode(mode, **BY)

    async def waits(self, mode: Mode) -> None:
        """It is kept as failed, and what is next waits for a higher mode."""
        status = await in_phase(self.system, self.node, Phase.FAILED_PRESERVED, doing=f"its mode is {mode}")
        assert (status.permit, status.queued) == (False, "")

    async def annotations(self) -> dict[str, str]:
        """Of its Node."""
        return dict((await self.system.live_node(self.node))["metadata"].get("annotations") or {})

    async def is_tainted(self) -> bool:
        return TAINT in [each["key"] for each in (await self.system.live_node(self.node))["spec"].get("taints") or ()]

    @property
    def written(self) -> list[str]:
        """Each change of ours of its Node or Machine, and each eviction."""
        ends = (f"/nodes/{self.node}", f"/nodes/{self.node}/status", f"/machines/{self.machine}", "/eviction")
        return [write.path for write in our_writes(self.system) if write.path.endswith(ends)]

    @property
    def evicted(self) -> int:
        return sum(path.endswith("/eviction") for path in self.written)


async def test_a_pool_goes_as_far_with_a_failed_machine_as_the_mode_allows(make_system: MakeSystem) -> None:
    """S52: nothing in observe, kept in cordon, evicted in drain, and in repair cut off, and given up when its time is over."""
    workers = MachineOptions(system="cluster-api", settings=SETTINGS)
    system = await make_system(nodes=5, zones=1, platform="aws", own_disks=True, workers_as=workers)
    fleet, there = system.cluster.machines, len(system.cluster.machines.names)
    pool = {"selector": {}, "autoPreserveFailedMax": 1, "settleTime": "1s", "isolate": True}
    policy = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "PreservationPolicy", "metadata": {"name": "workers"}}
    plan = {"power": [power_device(describe(system.cluster))]}
    await asyncio.gather(
        system.start_worker(),
        system.apply_policy(plan=plan, check={"minHealthy": 1, "unhealthyConditions": [DEADLOCK | {"duration": "1s"}]}),
        system.client.create(POLICIES, policy | {"spec": pool}),
    )
    await system.start_scanner(mode=Mode.OBSERVE)
    kept, scanner = Kept(system), system.warden.scanner(system.cluster_name)
    system.break_node(kept.node, "condition:KernelDeadlock=True")  # its kubelet answers, so that evictions are carried out

    async def is_observed() -> bool:
        spells = [each for each in (await scanner.spells()).spells if each.node == kept.node]
        return bool(spells) and datetime.now(UTC) - spells[0].due > timedelta(seconds=3)

    await system.until(is_observed, "what would be done is recorded, and the pool has decided", seconds=60)
    assert kept.written == []
    assert await opened_at(system, kept.node) is None

    await kept.set_mode(Mode.CORDON)
    await kept.waits(Mode.CORDON)
    assert (await kept.is_tainted(), kept.evicted, await traces(system, kept.node)) == (True, 0, [])
    condition = condition_of(await system.live_node(kept.node), CONDITION)
    assert condition is not None
    assert condition["message"].startswith("Machine preserved until ")
    assert (fleet.machine(kept.machine) or {})["metadata"]["annotations"][PRESERVE_ANNOTATION] == "auto-preserved"

    await kept.set_mode(Mode.DRAIN)
    await kept.waits(Mode.DRAIN)
    assert kept.evicted
    assert ISOLATION_ANNOTATION not in await kept.annotations()

    await kept.set_mode(Mode.REPAIR)

    async def is_cut() -> bool:
        return (await kept.annotations()).get(ISOLATION_ANNOTATION) == "cut"

    await system.until(is_cut, f"{kept.node} is cut off", seconds=60)
    assert (fleet.deletions(), commands(system, kept.node)) == ([], [])
    soon = datetime.now(UTC) + timedelta(seconds=5)
    await system.warden.episode(system.cluster_name, kept.node).extend(until=soon, shorten=True, **BY)
    await system.until(
        lambda: kept.machine not in fleet.names and len(fleet.names) == there, f"{kept.machine} is replaced", seconds=60
    )
    assert [each.status for each in fleet.deletions(kept.machine)] == [200]
    assert (commands(system, kept.node), system.cluster.storage.violations) == ([], [])
