"""The main job beside a real kube-controller-manager and kube-scheduler, with the shipped rights (`KUBEBUILDER_ASSETS`).

Simulated are the kubelets, the machines with their BMCs and the storage with its driver. Who evicts, collects, detaches,
schedules and replaces is Kubernetes itself.
"""

from __future__ import annotations

import os

import pytest

from policy.episode.messages import Outcome
from tests.system.fixtures import MakeSystem
from tests.system.questions import commands
from tests.system.real_api import CONTROLLERS, assets
from tests.system.test_api_restarts import restart_api, under_shipped_rights

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("how", "killed"), [("kernel-hangs", False), ("kubelet-stops", True)])
async def test_a_node_dies_in_the_care_of_real_controllers_and_its_work_goes_on(
    make_system: MakeSystem, how: str, killed: bool
) -> None:
    """S1, S28, S32: never two writers, nothing left over; also where the API server is killed after the power-off."""
    folder = assets()
    if folder is None or not all(os.access(folder / program, os.X_OK) for program in CONTROLLERS):
        pytest.skip(f"needs {' and '.join(CONTROLLERS)} in the folder that KUBEBUILDER_ASSETS names")
    system = await make_system(nodes=5, zones=3, real_controllers=True)
    await under_shipped_rights(system)
    await system.start_worker()
    await system.apply_policy(plan={"freeTimeout": "60s"})
    await system.start_scanner()
    await system.settled(seconds=90)
    before = system.break_node(system.node_of_pod("demo/database-0"), how)
    if killed:

        def is_off() -> bool:
            return any(each.command == "off" for each in commands(system, before.node))

        await system.until(is_off, f"{before.node} is switched off", seconds=60)
        await restart_api(system)
    result = await system.ended(before, seconds=150)
    assert result.outcome is Outcome.RECOVERED, result.message
    assert result.freed_pods >= 1
    assert await system.judge(before, result) == []
    await system.settled(seconds=90)
    assert system.cluster.storage.violations == []
