"""docs/upgrade.md, followed as it stands: installed by the chart, upgraded with an episode open, and taken back again."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client
from temporalio.common import VersioningBehavior

from policy.episode.messages import Outcome, Phase, device_check_id, episode_id, scanner_id
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from simulator.resources import DEPLOYMENTS
from starter.handles.episodes import EpisodeHandle
from tests.deploy import helm_command
from tests.documents import ROOT
from tests.system import another_build
from tests.system.fixtures import MakeSystem
from tests.system.harness import TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.pods_of_chart import NAMESPACE, PodsOfChart
from tests.system.questions import commands, in_phase, is_open, parked
from tests.system.temporal_server import TemporalServer
from tests.system.witness import Before
from workers.embedded.server import find_binary, free_ports

pytestmark = [pytest.mark.system, pytest.mark.timeout(480)]

PAGE = ROOT / "docs" / "upgrade.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
INSTALL, UPGRADE, MAKE_CURRENT, TAKE_OUT, GO_BACK, TURN_ROUND = BLOCKS
OLD, NEW = "0.1.0", "0.2.0"
STEP = "fence=10s"  # a busy machine takes four to be off, on and Ready, and a step that is over asks a person again
PLAN = {"waitBeforePower": "12s"}  # long enough for a hold to come before power, on a busy machine too
ONCE = ObjectRef(api_version=TEMPLATES.api_version, kind=TEMPLATES.kind, name="once", namespace=TEMPLATE_NAMESPACE)


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


HELD, AT_WORK, ASKS, LADDER, KEPT, CORDONED, QUEUED = (f"node-{number}" for number in range(2, 9))
RESTING = (HELD, ASKS, LADDER, KEPT, CORDONED)
ADA = {"who": "ada", "reason": "an upgrade is under way"}


class Episodes:
    """One open episode of every kind, at every kind of rest, and one at work."""

    def __init__(self, system: System) -> None:
        self.system, self.cluster = system, system.cluster_name
        self.scanner = system.warden.scanner(self.cluster)
        self.before: dict[str, Before] = {}

    async def begin(self) -> None:
        """With one permit, so that each has given it back before the next one begins; the one at work keeps it."""
        system, warden, by = self.system, self.system.warden, {"requester": ADA["who"], "reason": ADA["reason"]}
        await self.scanner.set_mode("cordon", nodes=(CORDONED,), **ADA)
        self._break(HELD, "kubelet-stops")
        await in_phase(system, HELD, Phase.RUNNING)
        await self._episode(HELD).hold(**ADA)
        await in_phase(system, HELD, Phase.RUNNING, doing="held by")
        self._break(CORDONED, "kubelet-stops")
        await in_phase(system, CORDONED, Phase.RUNNING, doing="its mode is cordon")
        for node in (ASKS, LADDER):
            self._break(node, "bmc-refuses")
        await warden.fence(self.cluster, ASKS, template=ONCE, **by)
        await parked(system, ASKS)
        await warden.remediate(self.cluster, LADDER, strategies=[STEP], **by)
        await parked(system, LADDER)
        self._break(KEPT)
        await warden.preserve(self.cluster, KEPT, hold=timedelta(hours=2), **by)
        await in_phase(system, KEPT, Phase.RUNNING_PRESERVED)
        self._break(AT_WORK, "bmc-hangs", "kernel-hangs")
        await in_phase(system, AT_WORK, Phase.RUNNING, doing="power")
        self._break(QUEUED)
        await warden.fence(self.cluster, QUEUED, **by)
        await in_phase(system, QUEUED, Phase.QUEUED)

    def _break(self, node: str, *how: str) -> None:
        self.before[node] = Before.of(self.system.cluster, node)
        for each in how:
            self.system.cluster.break_node(node, each)

    def _episode(self, node: str) -> EpisodeHandle:
        return self.system.warden.episode(self.cluster, node)

    async def shown(self) -> list[tuple[object, ...]]:
        """What people see of each that rests, which is the same whatever build it is on."""
        found = [await self._episode(node).status() for node in RESTING]
        return [
            (each.incident, each.kind, each.phase, each.doing, each.problem, each.question, each.held, each.preserved_until)
            for each in found
        ]

    async def builds(self) -> dict[str, str]:
        """Which each of them is pinned to."""
        found = {node: await version_of(self.system.warden.client, episode_id(self.cluster, node)) for node in self.before}
        assert {how for _, how in found.values()} == {"PINNED"}
        return {node: build for node, (build, _) in found.items()}

    async def move(self, build: str) -> None:
        """Wait until all that rest, the scanner and the check of devices are on that build; a pause wakes the scanner, and goes
        with it."""
        client = self.system.warden.client
        await self.scanner.pause(who="ada", reason=f"until {build} is there")

        async def are_there() -> bool:
            await asyncio.sleep(1)  # it takes ten at least
            ids = [episode_id(self.cluster, node) for node in RESTING if await is_open(self.system, node)]
            ids += [scanner_id(self.cluster), device_check_id(self.cluster)]
            found = {each: (await version_of(client, each))[0] for each in ids}
            moved.append(found)
            return set(found.values()) == {build}

        moved: list[dict[str, str]] = []
        try:
            await self.system.until(are_there, f"what rests is on {build}", seconds=60)
        except AssertionError as error:
            raise AssertionError(f"{moved[-1]}: {error}") from None
        assert [each.pause.reason for each in await self.scanner.pauses()][-1] == f"until {build} is there"
        await self.scanner.unpause(who="ada", reason="it is there")

    async def end(self, node: str) -> str:
        """Have it end by what it waits for. The build that it ended under."""
        self.system.cluster.hardware.heal_device(node)
        episode = self._episode(node)
        if node == CORDONED:
            await self.scanner.set_mode("repair", nodes=(node,), **ADA)
        elif node == KEPT:
            await episode.release(**ADA)
        elif node in RESTING:
            await episode.resume(**ADA, question=(await episode.status()).question)
        result = await self.system.ended(self.before[node])
        assert result.outcome in {Outcome.RECOVERED, Outcome.RELEASED}, result.message
        offs = [each for each in commands(self.system, node) if (each.command, each.outcome) == ("off", "done")]
        assert len(offs) == (node != KEPT), f"{node}: {offs}"
        return (await version_of(self.system.warden.client, episode_id(self.cluster, node)))[0]


async def test_the_page_is_followed_with_episodes_of_every_kind_open(versioning: TemporalServer, make_system: MakeSystem) -> None:
    """What is at work ends under the build that began it; what rests moves to the new one, where an order of steps is another,
    and back with what that has added to its state; nothing is repaired twice."""
    system = await make_system(nodes=8, zones=3, demo_workloads=False, temporal=versioning, people=False)
    pods = PodsOfChart(system, sources={"nodewarden-0-2-0": another_build.make(system.folder / "newer")})
    shell, episodes = Shell(system, _values(system)), Episodes(system)
    helm_first, rest = INSTALL.partition("\n")[::2]
    await shell.run(helm_first)
    await pods.follow()
    await shell.run(rest)
    await system.people_are_known()
    told = pods.running["nodewarden-0-1-0"][1].log.read_text(encoding="utf-8")
    assert "set-current-version --deployment-name fleet --build-id 0.1.0" in told, "a worker says what makes its version current"
    once = system.fencing_template({**PLAN, "tries": 1, "restarts": 0, "waitBeforeIsolation": "0s"})
    once["metadata"]["name"] = ONCE.name
    await system.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), once)
    await system.apply_policy(plan={**PLAN, "tries": 10, "restarts": 5}, check={"minHealthy": 1})
    await system.settled()
    await episodes.begin()
    shown = await episodes.shown()

    old = pods.running["nodewarden-0-1-0"]
    await shell.run(UPGRADE)
    await pods.follow()
    assert await _deployments(system) == ["nodewarden-0-1-0", "nodewarden-0-2-0"]
    assert pods.running["nodewarden-0-1-0"] is old
    await shell.run(MAKE_CURRENT)
    await episodes.move(NEW)
    assert await episodes.builds() == {node: OLD if node in {AT_WORK, QUEUED} else NEW for node in episodes.before}
    assert await episodes.shown() == shown
    assert [await episodes.end(node) for node in (AT_WORK, QUEUED)] == [OLD, OLD]
    assert await episodes.end(HELD) == NEW

    described = await shell.run(TAKE_OUT)
    assert [queue for queue in (OLD, "nodewarden", "cluster.sim", "power.default") if queue not in described] == []
    await pods.follow()
    assert await _deployments(system) == ["nodewarden-0-2-0"]

    await shell.run(GO_BACK.partition("\n")[0])
    await pods.follow()
    await shell.run(GO_BACK.partition("\n")[2])
    await episodes.move(OLD)
    await shell.run(TURN_ROUND)
    await pods.follow()
    assert await _deployments(system) == ["nodewarden-0-1-0", "nodewarden-0-2-0"]
    assert [await episodes.end(node) for node in (ASKS, LADDER, KEPT, CORDONED)] == [OLD] * 4
    assert (await episodes.scanner.modes()).default is Mode.REPAIR


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
