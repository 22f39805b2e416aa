"""Worker deployment versions: shown by Temporal, episodes pinned to theirs, the scanner moving on; without the flags none of it.

One story in its order: unversioned workers, a first version beside them, a second version that takes over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.common import VersioningBehavior

from policy.episode.messages import EpisodeResult, Outcome, Phase
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, episode, in_phase, status
from tests.system.witness import Before
from tests.system.worker_process import WorkerProcess
from workers.embedded.server_process import find_binary

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

DEPLOYMENT = "fleet"
FIRST, SECOND = "2026-11-20", "2026-11-21"
QUEUES = {"nodewarden", "cluster.sim", "power.default"}
PLAN = {"waitBeforePower": "5s"}  # long enough for a hold to come before power, on a busy machine too


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4, demo_workloads=False) as running:
        await running.start_worker(anew=True)
        await start_version(running, FIRST)  # polls, and gets nothing to do before it is made current
        await running.apply_policy(plan=PLAN, check={"minHealthy": 1})
        yield running


async def start_version(system: System, build_id: str) -> WorkerProcess:
    """`nodewarden worker --deployment … --build-id …`, as one would deploy it."""
    flags = ("--deployment", DEPLOYMENT, "--build-id", build_id)
    worker = await WorkerProcess.start(system.folder, config=system.config, name=f"version-{build_id}", arguments=flags)
    system.workers.append(worker)
    return worker


async def temporal_command(system: System, *words: str) -> tuple[int, Any]:
    """The `temporal` command, its answer as JSON where it gives one."""
    where = ("--address", system.temporal.address, "--namespace", system.namespace, "--output", "json")
    process = await asyncio.create_subprocess_exec(
        str(find_binary()), *words, *where,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, complained = await asyncio.wait_for(process.communicate(), 20)
    text = (printed or complained).decode()
    return process.returncode or 0, json.loads(text) if text.lstrip().startswith(("{", "[")) else text


async def make_current(system: System, build_id: str) -> None:
    async def accepted() -> bool:
        arguments = ("--deployment-name", DEPLOYMENT, "--build-id", build_id, "--yes")
        code, _ = await temporal_command(system, "worker", "deployment", "set-current-version", *arguments)
        return code == 0

    await system.until(accepted, f"version {build_id} becomes current", seconds=30)


async def version_of(client: Client, workflow_id: str) -> tuple[str, str]:
    """The version that a workflow runs, or ran, on, and how it is bound to it; "" for an unversioned one."""
    described = await client.get_workflow_handle(workflow_id).describe()
    info = described.raw_description.workflow_execution_info.versioning_info
    build = info.deployment_version.build_id
    return build, VersioningBehavior(info.behavior).name if info.behavior else ""


async def test_without_the_flags_a_worker_is_unversioned_and_works(system: System) -> None:
    """No deployment is made up: whoever does not ask for versioning has none to look after."""
    await system.start_scanner()
    assert await version_of(system.warden.client, f"scanner/{system.cluster_name}") == ("", "")
    code, listed = await temporal_command(system, "worker", "deployment", "list")
    assert code == 0
    assert "nodewarden" not in json.dumps(listed)


async def test_the_flags_register_a_version_with_all_its_queues(system: System) -> None:
    """`temporal worker deployment describe` shows it, and describe-version that every queue is served."""

    async def shown() -> bool:
        code, described = await temporal_command(system, "worker", "deployment", "describe", "--name", DEPLOYMENT)
        return code == 0 and FIRST in json.dumps(described)

    await system.until(shown, "the version is registered", seconds=40)

    async def serves_all() -> bool:
        arguments = ("--deployment-name", DEPLOYMENT, "--build-id", FIRST)
        code, described = await temporal_command(system, "worker", "deployment", "describe-version", *arguments)
        return code == 0 and all(f'"{queue}"' in json.dumps(described) for queue in QUEUES)

    await system.until(serves_all, "every queue of ours is seen under it")


async def test_a_fencing_runs_pinned_on_the_current_version(system: System) -> None:
    """And the scanner, which began unversioned, goes on under it without being restarted."""
    await make_current(system, FIRST)
    assert await system.workers[0].stop() == 0
    before = system.break_node("node-2", "kubelet-stops")
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert await system.judge(before, result) == []
    assert await version_of(system.warden.client, f"episode/{system.cluster_name}/node-2") == (FIRST, "PINNED")


async def test_an_open_episode_stays_on_its_build_and_the_scanner_moves_to_the_next(system: System) -> None:
    """A roll-out in mid-episode: the old workers finish what they began, the new ones scan; then the old ones may go."""
    node, client = "node-3", system.warden.client
    told_before = len(commands(system, node))  # none, but where this is tried once more
    await make_current(system, FIRST)  # it is, but where this is tried once more
    await start_version(system, SECOND)
    before = system.break_node(node, "kubelet-stops")
    await in_phase(system, node, Phase.RUNNING)
    await system.warden.episode(system.cluster_name, node).hold(who="ada", reason="a roll-out is under way")
    await make_current(system, SECOND)
    # Whatever wakes the scanner: it learns of the new version with its next step.
    after = Before.of(system.cluster, "node-4")
    system.cluster.break_node("node-4", "kubelet-stops")

    async def has_moved() -> bool:
        return (await version_of(client, f"scanner/{system.cluster_name}"))[0] == SECOND

    await system.until(has_moved, "the scanner runs on the new build", seconds=40)
    assert await version_of(client, f"episode/{system.cluster_name}/{node}") == (FIRST, "PINNED")

    await system.warden.episode(system.cluster_name, node).resume(who="ada", reason="go on")
    result: EpisodeResult = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert await version_of(client, f"episode/{system.cluster_name}/{node}") == (FIRST, "PINNED")
    assert await system.workers[1].stop() == 0

    assert (await system.ended(after)).outcome is Outcome.RECOVERED
    assert await version_of(client, f"episode/{system.cluster_name}/node-4") == (SECOND, "PINNED")
    assert [each.command for each in commands(system, node)[told_before:]] == ["off", "on"]
    assert await status(system, node) is None
    assert (await episode(system, node).describe()).close_time is not None
