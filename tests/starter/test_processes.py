"""The long-running commands as processes: started, told to stop, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from starter.client import Nodewarden
from tests.starter.process import nodewarden
from tests.workers.server import VERSIONED
from workers.configuration.settings import load
from workers.embedded.server_process import find_binary, free_ports

pytestmark = [pytest.mark.timeout(120), pytest.mark.system]


async def pollers(client: Client, queue: str) -> int:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    return len((await client.workflow_service.describe_task_queue(request)).pollers)


async def test_a_worker_serves_its_cluster_and_ends_cleanly_when_told(keyboard: Path, client: Client, cluster: str) -> None:
    (keyboard / "nodewarden.yaml").write_text(f"clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}", encoding="utf-8")
    async with nodewarden("worker", "--role", "cluster") as worker:
        await worker.says(f"serving task queue cluster.{cluster}")
        async with asyncio.timeout(30):
            while not await pollers(client, f"cluster.{cluster}"):
                await asyncio.sleep(0.1)
        worker.tell(signal.SIGTERM)
        assert await worker.ended() == 0
    assert not [line for line in worker.said if "Traceback" in line]


async def test_a_worker_waits_for_its_temporal_and_can_be_told_to_stop_meanwhile(keyboard: Path) -> None:
    """S37: nothing starts without it."""
    (port,) = free_ports("127.0.0.1", 1)
    async with nodewarden("worker", "--role", "workflows", TEMPORAL_ADDRESS=f"127.0.0.1:{port}") as worker:
        await worker.says(f"waiting for Temporal at 127.0.0.1:{port}")
        worker.tell(signal.SIGTERM)
        assert await worker.ended() == 0


async def temporal(server: str, *arguments: str) -> dict[str, Any] | None:
    """The real command line of Temporal; None where it fails."""
    process = await asyncio.create_subprocess_exec(
        str(find_binary()),
        *("--address", server, "--namespace", VERSIONED, "-o", "json", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    return json.loads(output or b"{}") if process.returncode == 0 else None


async def eventually(server: str, *arguments: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (answer := await temporal(server, *arguments)) is None:
            await asyncio.sleep(0.2)
    return answer


async def test_a_deployment_is_a_version_that_temporal_shows_and_that_works_once_it_is_current(
    keyboard: Path, server: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", VERSIONED)
    version = ("--deployment-name", "nodewarden", "--build-id", "build-1")
    async with nodewarden("worker", "--role", "workflows", "--deployment", "nodewarden", "--build-id", "build-1") as worker:
        await worker.says("temporal worker deployment set-current-version --deployment-name nodewarden --build-id build-1")
        described = await eventually(server, "worker", "deployment", "describe", "--name", "nodewarden")
        assert [summary["BuildID"] for summary in described["versionSummaries"]] == ["build-1"]
        await eventually(server, "worker", "deployment", "set-current-version", *version, "--yes")
        async with Nodewarden.connect(load()) as warden:
            await warden.start_scanner(cluster)
            assert (await warden.scanner_status(cluster)).cluster == cluster
        worker.tell(signal.SIGTERM)
        assert await worker.ended() == 0


async def test_metrics_are_served_where_the_settings_say(keyboard: Path, client: Client) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    async with nodewarden(
        "worker", "--role", "power", NODEWARDEN_SECRETS_DIRECTORY=str(keyboard), NODEWARDEN_METRICS=f"127.0.0.1:{port}"
    ) as worker:
        await worker.says("serving task queue power.default")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            page = (await reader.read()).decode()
        writer.close()
        assert "temporal_request" in page
        worker.tell(signal.SIGINT)
        assert await worker.ended() == 0


async def test_status_watch_prints_a_line_for_each_change_where_there_is_no_terminal(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    await warden.start_scanner(cluster)
    async with nodewarden("status", "--watch", "-c", cluster) as watching:
        await watching.says("node node-1: unhealthy (ReadyUnknown)")
        await warden.fence(cluster, "node-held", reason="smoke")
        await watching.says("episode node-held: running, isolation: does as the script says")
        await warden.abort(cluster, "node-held", who="amy", reason="enough")
        await watching.says("episode node-held: aborted after")
        watching.tell(signal.SIGINT)
        assert await watching.ended() == 130
    assert len([line for line in watching.said if "node-1: unhealthy" in line]) == 1


async def test_who_stops_waiting_is_told_that_it_goes_on(keyboard: Path, client: Client, cluster: str) -> None:
    async with nodewarden("fence", "node-1", "--reason", "smoke", "--yes", "--wait") as waiting:
        await waiting.says("does as the script says")
        waiting.tell(signal.SIGINT)
        assert await waiting.ended() == 130
        how = "`nodewarden status --watch` shows it, `nodewarden abort node-1` stops it"
        assert waiting.said[-1] == f"nodewarden: the fencing of node-1 goes on: {how}"
    assert await Nodewarden(client).episode(cluster, "node-1").is_open()
