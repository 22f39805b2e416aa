"""docs/upgrade.md, followed as it stands: installed by the chart, upgraded with an episode open, and taken back again."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client
from temporalio.common import VersioningBehavior

from policy.episode.messages import Outcome, Phase
from simulator.resources import DEPLOYMENTS
from tests.deploy import helm_command
from tests.documents import ROOT
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from tests.system.pods_of_chart import NAMESPACE, PodsOfChart
from tests.system.questions import in_phase
from tests.system.temporal_server import TemporalServer
from workers.embedded.server import find_binary, free_ports

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

PAGE = ROOT / "docs" / "upgrade.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
INSTALL, UPGRADE, MAKE_CURRENT, TAKE_OUT, GO_BACK, TURN_ROUND = BLOCKS
OLD, NEW = "0.1.0", "0.2.0"
PLAN = {"waitBeforePower": "5s"}  # long enough for a hold to come before power, on a busy machine too


def _values(system: System, *, metrics: str = "") -> dict[str, Any]:
    """As somebody would write them for this cluster, whose definitions are there already."""
    settings = {
        "temporal": {"address": system.temporal.address, "namespace": system.namespace},
        "clusters": {"this-cluster": None, system.cluster_name: {"in_cluster": True}},
        "scan": {"start_up_grace": "500ms"},
        "worker": {"sticky_timeout": "500ms", "graceful_shutdown": "15s"},
        "metrics": metrics,
    }
    return {"settings": settings, "crds": {"install": False}}


class Shell:
    """Commands of the page, in a folder that looks like a checkout."""

    def __init__(self, system: System, values: dict[str, Any]) -> None:
        self.folder = system.folder / "shell"
        programs = self.folder / "bin"
        programs.mkdir(parents=True)
        (self.folder / "deploy").symlink_to(ROOT / "deploy")
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        helm_command.put_into(programs)
        (programs / "nodewarden").write_text(f'#!/bin/sh\nexec {sys.executable} -m starter.cli "$@"\n', encoding="utf-8")
        (programs / "nodewarden").chmod(0o755)
        places = (programs, Path(sys.executable).parent, find_binary().parent)
        self.environment = {
            "NODEWARDEN_SCAN__MODE": "repair",
            "PATH": os.pathsep.join((*map(str, places), os.environ["PATH"])),
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(system.cluster.kubeconfig_path),
            "NODEWARDEN_CONFIG": str(system.config),
            "TEMPORAL_ADDRESS": system.temporal.address,
            "TEMPORAL_NAMESPACE": system.namespace,
        }

    async def run(self, commands: str) -> str:
        """Each by itself, and what they printed. A version is only made current once its workers poll: asked again until then."""
        printed = ""
        for command in commands.splitlines():
            tries = 40 if "set-current-version" in command else 1
            printed += await self._run(command, tries)
        return printed

    async def _run(self, command: str, tries: int) -> str:
        for _ in range(tries):
            process = await asyncio.create_subprocess_shell(
                command, cwd=self.folder, env=self.environment,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            printed, _ = await asyncio.wait_for(process.communicate(), 60)
            if process.returncode == 0:
                return printed.decode()
            await asyncio.sleep(1)
        raise AssertionError(f"{command}\n{printed.decode()}")


async def version_of(client: Client, workflow_id: str) -> tuple[str, str]:
    """The version that a workflow runs, or ran, on, and how it is bound to it; "" for an unversioned one."""
    described = await client.get_workflow_handle(workflow_id).describe()
    info = described.raw_description.workflow_execution_info.versioning_info
    build = info.deployment_version.build_id
    return build, VersioningBehavior(info.behavior).name if info.behavior else ""


async def _deployments(system: System) -> list[str]:
    found = (await system.client.list(DEPLOYMENTS.path(namespace=NAMESPACE)))["items"]
    return sorted(each["metadata"]["name"] for each in found)


@pytest.fixture
async def versioning(tmp_path: Path) -> AsyncIterator[TemporalServer]:
    """A Temporal server that knows versions of workers."""
    async with TemporalServer(tmp_path, versions=True) as server:
        yield server


async def test_the_page_is_followed_with_an_episode_open(versioning: TemporalServer, make_system: MakeSystem) -> None:
    """An episode ends under the build that began it, the scanner moves to the new one and back, and nothing is repaired twice."""
    system = await make_system(nodes=5, zones=3, demo_workloads=False, temporal=versioning, people=False)
    pods, shell, client = PodsOfChart(system), Shell(system, _values(system)), system.warden.client
    scanner, episode = f"scanner/{system.cluster_name}", f"episode/{system.cluster_name}/node-2"
    helm_first, rest = INSTALL.partition("\n")[::2]
    await shell.run(helm_first)
    await pods.follow()
    await shell.run(rest)
    await system.people_are_known()
    told = pods.running["nodewarden-0-1-0"][1].log.read_text(encoding="utf-8")
    assert "set-current-version --deployment-name fleet --build-id 0.1.0" in told, "a worker says what makes its version current"
    await system.apply_policy(plan=PLAN)
    await system.settled()

    before = system.break_node("node-2", "kubelet-stops")
    await in_phase(system, "node-2", Phase.RUNNING)
    await system.warden.episode(system.cluster_name, "node-2").hold(who="ada", reason="an upgrade is under way")
    old = pods.running["nodewarden-0-1-0"]
    await shell.run(UPGRADE)
    await pods.follow()
    assert await _deployments(system) == ["nodewarden-0-1-0", "nodewarden-0-2-0"]
    assert pods.running["nodewarden-0-1-0"] is old
    await shell.run(MAKE_CURRENT)

    async def scans_under(build: str) -> bool:
        return (await version_of(client, scanner))[0] == build

    system.cluster.break_node("node-4", "kubelet-stops")  # whatever wakes the scanner: it moves with its next step
    await system.until(lambda: scans_under(NEW), "the scanner runs on the new build", seconds=60)
    assert await version_of(client, episode) == (OLD, "PINNED")
    held = system.warden.episode(system.cluster_name, "node-2")
    await held.resume(who="ada", reason="go on", question=(await held.status()).question)
    result = await system.ended(before)
    assert (result.outcome, await version_of(client, episode)) == (Outcome.RECOVERED, (OLD, "PINNED"))

    described = await shell.run(TAKE_OUT)
    assert [queue for queue in (OLD, "nodewarden", "cluster.sim", "power.default") if queue not in described] == []
    await pods.follow()
    assert await _deployments(system) == ["nodewarden-0-2-0"]

    await shell.run(GO_BACK.partition("\n")[0])
    await pods.follow()
    await shell.run(GO_BACK.partition("\n")[2])
    system.cluster.break_node("node-3", "kubelet-stops")
    await system.until(lambda: scans_under(OLD), "the scanner is back on the old build", seconds=60)
    await shell.run(TURN_ROUND)
    await pods.follow()
    assert await _deployments(system) == ["nodewarden-0-1-0", "nodewarden-0-2-0"]


async def test_a_worker_of_the_chart_does_the_main_job(make_system: MakeSystem) -> None:
    """With the settings and the rights that the chart renders, and ready by its own probe; the way back without versions, too."""
    system = await make_system(nodes=5, zones=3, people=False)
    [port] = free_ports("127.0.0.1", 1)
    pods, shell = PodsOfChart(system), Shell(system, _values(system, metrics=f"127.0.0.1:{port}"))
    await shell.run(INSTALL.partition("\n")[0].replace(" --set versioning.deployment=fleet", ""))
    await pods.follow()
    template, worker = pods.running["nodewarden"]
    probe = template["spec"]["containers"][0]["readinessProbe"]["exec"]["command"]

    async def ready() -> bool:
        process = await asyncio.create_subprocess_exec(sys.executable, *probe[1:], stderr=asyncio.subprocess.DEVNULL)
        return await process.wait() == 0

    await system.until(ready, "the worker is ready", seconds=30)
    await system.apply_policy()
    await system.start_scanner()
    assert await version_of(system.warden.client, f"scanner/{system.cluster_name}") == ("", ""), "no deployment is made up"
    await system.settled()
    before = system.break_node(system.node_of_pod("demo/database-0"))
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED, result.message
    assert await system.judge(before, result) == []

    await shell.run(
        "helm upgrade nodewarden deploy/chart/nodewarden --namespace nodewarden --values values.yaml --set settings.scan.cap=3"
    )
    await pods.follow()
    assert pods.running["nodewarden"][1] is not worker  # other settings, another pod
    await system.until(ready, "the new worker is ready", seconds=30)
    await shell.run("helm rollback nodewarden --namespace nodewarden")
    await pods.follow()
    assert pods.running["nodewarden"][0] == template
    assert "helm rollback nodewarden --namespace nodewarden" in PAGE.read_text(encoding="utf-8")
