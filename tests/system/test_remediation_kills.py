"""A worker dies between the request for a Machine's deletion and the answer: one deletion, and its successor stays."""

from __future__ import annotations

import asyncio

import pytest

from policy.episode.messages import EpisodeResult, Outcome
from simulator.machines import MachineOptions
from tests.system.harness import System
from tests.system.nursery import Nursery
from tests.system.temporal_server import TemporalServer
from tests.system.test_remediation import CHECKS, QUICK, machine_health_check
from tests.system.worker_process import KillOrder, When
from workflows.kit.ids import episode_id

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]


async def test_a_worker_killed_between_request_and_answer_deletes_no_second_machine(
    temporal: TemporalServer, free_namespaces: list[str], nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """S33, S34: killed with what it has asked for and not reported, then again right before it follows what became of it."""
    folder = tmp_path_factory.mktemp("remediation-kills")
    workers = MachineOptions(system="openshift", settings=QUICK)
    async with System(
        folder, temporal=temporal, namespace=free_namespaces.pop(), nodes=3, zones=1, workers_as=workers, demo_workloads=False
    ) as system:
        fleet, node = system.cluster.machines, "node-2"
        machine, before = fleet.of_node(node), set(fleet.names)
        worker = await system.start_worker(killable_from=nursery)
        await system.client.create(CHECKS, machine_health_check())
        await system.warden.start_scanner(system.cluster_name)
        worker.obey(KillOrder(when=When.AFTER, activity="preservation.give-up"))
        system.break_node(node, "kernel-hangs")
        await asyncio.wait_for(worker.wait(), 40)
        assert [each.status for each in fleet.deletions()] == [200], "it was asked for, and nobody was told"
        worker = await system.start_worker(killable_from=nursery)
        worker.obey(KillOrder(when=When.BEFORE, activity="remediation.follow-machine"))
        await asyncio.wait_for(worker.wait(), 60)
        await system.start_worker(killable_from=nursery)
        handle = system.warden.client.get_workflow_handle(episode_id("sim", node), result_type=EpisodeResult)
        result: EpisodeResult = await asyncio.wait_for(handle.result(), 60)
        assert result.outcome is Outcome.REPLACED, result.message
        assert {(each.machine, each.status) for each in fleet.deletions()} == {(machine, 200)}
        (successor,) = set(fleet.names) - before
        assert len(fleet.names) == len(before)
        assert fleet.phase(successor) == "Running"
