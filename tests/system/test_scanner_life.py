"""Scanners that stop, start and are terminated, episodes that are terminated, and two deployments that want one cluster.

Whatever is ended from outside leaves marks and a Lease behind; whoever comes next reads them before it does anything.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from policy.episode.gate import MAY_NOT_ACT
from policy.episode.messages import Outcome, Phase
from policy.scan.permit_rules import AdmissionRefusal
from simulator.bmc.machine import Machine
from simulator.resources import LEASES
from starter.client import Nodewarden
from starter.commands.session import Exit
from tests.system import impatient_worker
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, episode, in_phase, traces
from tests.system.temporal_server import TemporalServer
from tests.system.witness import Before, PowerLog, early, proof_moment
from tests.system.worker_process import OURS, ROOT, WorkerProcess

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

WHO = "ada"
PLAN = {"waitBeforePower": "12s", "retryInterval": "200ms", "bootTimeout": "20s"}
"""A person's hold comes between isolation and off, also on a machine that has much else to do."""

LAST = "node-8"
"""For the last test: nothing happens to it before."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=8, zones=2) as running:
        await impatient_worker.start(running)
        await running.apply_policy(plan=PLAN, check={"minHealthy": 1})
        await _start_scanner(running)
        yield running


async def _start_scanner(system: System, *, cap: int = 1) -> None:
    """One that looks once a second at least, since a terminated episode wakes nobody."""
    await system.warden.start_scanner(system.cluster_name, cap=cap, wait=timedelta(seconds=1))
    await system.start_scanner()  # it runs already: this waits until it sees the cluster and holds its Lease


async def _stop_scanner(system: System) -> None:
    await system.warden.stop_scanner(system.cluster_name, who=WHO, reason="maintenance")
    assert await system.warden.scanner(system.cluster_name).ended()


async def _held(system: System, node: str) -> Before:
    """A sick node whose episode is held by a person before anything destructive: it stays as it is until `resume`."""
    before = system.break_node(node, "kubelet-stops")
    await in_phase(system, node, Phase.RUNNING, seconds=40)
    await system.warden.episode(system.cluster_name, node).hold(who=WHO, reason="a test wants it to stand still")
    await in_phase(system, node, Phase.RUNNING, doing="held by")
    return before


async def test_a_stopped_scanner_pauses_an_episode_and_a_new_one_lets_it_go_on(system: System) -> None:
    """S38, S20: without the cluster Lease no last look passes; nothing is sent, nothing fails, and it goes on later."""
    node = "node-1"
    before = await _held(system, node)
    await _stop_scanner(system)
    await system.warden.episode(system.cluster_name, node).resume(who=WHO, reason="the scanner is gone by now", question=1)
    waiting = await in_phase(system, node, Phase.RUNNING, doing=MAY_NOT_ACT)
    assert "no scanner holds this cluster" in waiting.doing
    assert waiting.problem == ""
    assert commands(system, node) == []

    await _start_scanner(system)
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert result.incident == waiting.incident
    assert await system.judge(before, result) == []


async def test_an_episode_terminated_after_off_is_taken_over(system: System) -> None:
    """S35, S34, S1: its successor adopts its mark; what may be in flight is waited out, and nothing is freed on a proof that
    nobody has any more."""
    await _stop_scanner(system)
    await _start_scanner(system, cap=4)
    node = system.node_of_pod("demo/database-0")
    machine, off_was_commanded = system.cluster.chassis.machine(node), asyncio.Event()

    async def hook(_machine: Machine, done: str) -> None:
        if done == "off":
            machine.after_set = None
            off_was_commanded.set()

    machine.after_set = hook
    before = system.break_node(node, "kernel-hangs")
    async with asyncio.timeout(30):
        await off_was_commanded.wait()
    former = (await in_phase(system, node, Phase.RUNNING)).incident
    await episode(system, node).terminate("pulled the plug")
    assert machine.power == "off"

    async def another() -> bool:
        return (await (await episode(system, node).describe()).memo()).get("incident") != former

    await system.until(another, f"an episode of {node} after {former}", seconds=40)
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert any(entry.act == "adopt" and former in entry.detail for entry in result.record)
    assert PowerLog.of(machine, before).transitions == ["on→off", "off→on"]
    proof_at = proof_moment(result)
    assert proof_at is not None
    assert proof_at - result.started >= impatient_worker.WAITED_OUT
    assert early(system.witness, before, proof_at) == []
    assert system.cluster.storage.violations == []
    assert await traces(system, node) == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another deployment: a Temporal namespace of its own, the same cluster, even by the same name."""

    folder: Path
    config: Path
    warden: Nodewarden

    async def command(self, *arguments: str, seconds: float = 90) -> tuple[int, str]:
        """Run `nodewarden …` in its name; exit code and all that it printed."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "starter.cli", "--config", str(self.config), *arguments,
            cwd=self.folder, env={**inherited, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            printed, _ = await asyncio.wait_for(process.communicate(), seconds)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, printed.decode()

    async def scans(self, cluster: str) -> bool:
        """Whether a scanner of its own is open."""
        described = await self.warden.client.get_workflow_handle(f"scanner/{cluster}").describe()
        return described.close_time is None


@pytest.fixture(scope="module")
async def rival(
    system: System, temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rival]:
    namespace = free_namespaces.pop(0)
    folder = tmp_path_factory.mktemp("rival")
    config = folder / "nodewarden.yaml"
    written = {**yaml.safe_load(system.config.read_text()), "temporal": {"address": temporal.address, "namespace": namespace}}
    verified = {**written.get("worker", {}), "commands": "verified"}  # `up` takes back what it has begun in nobody's name (S42)
    config.write_text(yaml.safe_dump({**written, "worker": verified, "state": str(folder / "state")}))
    async with Nodewarden.connect(system.settings, address=temporal.address, namespace=namespace) as warden:
        yield Rival(folder=folder, config=config, warden=warden)


async def test_up_beside_a_running_deployment_names_it_refuses_and_leaves_nothing_behind(system: System, rival: Rival) -> None:
    """S38: two deployments never share a cluster; the second one says whose it is."""
    scanner = await system.scanner()
    assert scanner is not None
    code, printed = await rival.command("up")
    assert code == Exit.REFUSED, printed
    assert "is looked after by another deployment" in printed
    assert scanner.holder in printed
    assert not await rival.scans(system.cluster_name)


async def test_a_second_scanner_sees_the_sick_node_and_may_not_act(system: System, rival: Rival) -> None:
    """S38: without the cluster Lease nothing is admitted, and `scan status` names who has it."""
    scanner = await system.scanner()
    assert scanner is not None
    worker = await WorkerProcess.start(rival.folder, config=rival.config, name="rival")
    try:
        before, _ = await asyncio.gather(
            _held(system, LAST), rival.warden.start_scanner(system.cluster_name, wait=timedelta(seconds=1))
        )

        async def sees_a_candidate_and_may_not() -> bool:
            theirs = await rival.warden.scanner_status(system.cluster_name)
            return any(each.node == LAST and each.reason == AdmissionRefusal.NO_CLUSTER_LEASE for each in theirs.refused)

        await system.until(sees_a_candidate_and_may_not, "the rival sees the sick node and may not act", tolerate=True)
        theirs = await rival.warden.scanner_status(system.cluster_name)
        assert (theirs.opened, theirs.permits) == (0, ())
        code, printed = await rival.command("scan", "status")
        assert code == Exit.OK, printed
        assert scanner.holder in printed.replace("\n", " ")

        lease = await system.client.get(LEASES.path("nodewarden", namespace="kube-system"))
        assert lease["spec"]["holderIdentity"] == scanner.holder
        await system.warden.episode(system.cluster_name, LAST).resume(who=WHO, reason="go on", question=1)
        assert (await system.ended(before)).outcome is Outcome.RECOVERED
    finally:
        await worker.kill()
