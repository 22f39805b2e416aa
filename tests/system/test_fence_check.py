"""`nodewarden fence check` on real BMCs: one falls silent and is told of, whichever worker is left, and comes back."""

from __future__ import annotations

import pytest

from policy.fence.device_check import DeviceReport, DeviceRow, Reachability
from policy.fence.power import PowerState
from simulator.resources import EVENTS
from tests.system.fixtures import MakeSystem
from tests.system.harness import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(60)]

NODE = "node-2"


def row_of(report: DeviceReport, node: str) -> DeviceRow:
    (row,) = [row for row in report.rows if row.node == node]
    return row


async def events(system: System) -> list[tuple[str, str, int]]:
    """Those about fence devices: reason, node, count."""
    items = (await system.client.list(EVENTS.path(namespace="default")))["items"]
    found = [(each["reason"], each["involvedObject"]["name"], each["count"]) for each in items]
    return sorted(each for each in found if each[0].startswith("FenceDevice"))


async def test_a_bmc_that_falls_silent_is_told_of_once_and_its_last_success_outlives_the_worker(make_system: MakeSystem) -> None:
    """And nothing is ever commanded: the machines are as they were."""
    system: System = await make_system(nodes=2, demo_workloads=False)
    first, _ = await system.start_worker(), await system.start_worker()
    await system.apply_policy(plan={"actDeadline": "2s"})
    bmc = system.cluster.bmc_endpoint(NODE)
    well = await system.warden.check_devices(system.cluster_name)
    assert (well.nodes, well.devices, well.answering, well.problems) == (2, 2, 2, 0)
    assert {row.state for row in well.rows} == {PowerState.ON}
    assert all(row.latency_ms is not None for row in well.rows)

    bmc.freeze()
    silent = row_of(await system.warden.check_devices(system.cluster_name), NODE)
    assert (silent.answer, silent.last_success) == (Reachability.SILENT, row_of(well, NODE).last_success)
    await first.kill()
    again = await system.warden.check_devices(system.cluster_name)
    assert (row_of(again, NODE).last_success, again.problems) == (silent.last_success, 1)
    assert await events(system) == [("FenceDeviceSilent", NODE, 1)]

    bmc.thaw()
    alone = await system.warden.check_devices(system.cluster_name, NODE)
    assert (alone.nodes, alone.problems, row_of(alone, NODE).state) == (1, 0, PowerState.ON)
    assert await events(system) == [("FenceDeviceAnswers", NODE, 1), ("FenceDeviceSilent", NODE, 1)]
    assert all(not machine.log for machine in system.cluster.chassis.machines.values())
