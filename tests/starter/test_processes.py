"""The long-running commands as processes: started, told to stop, and what they leave behind."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from aiohttp import web
from temporalio.client import Client

from starter.client import Nodewarden
from tests.starter.conftest import SETTINGS
from tests.starter.process import nodewarden
from workers.embedded.server import free_ports

pytestmark = [pytest.mark.timeout(120), pytest.mark.system]


async def test_a_worker_waits_for_its_temporal_and_can_be_told_to_stop_meanwhile(keyboard: Path) -> None:
    """S37: nothing starts without it."""
    (port,) = free_ports("127.0.0.1", 1)
    async with nodewarden("worker", "--role", "workflows", TEMPORAL_ADDRESS=f"127.0.0.1:{port}") as worker:
        await worker.says(f"waiting for Temporal at 127.0.0.1:{port}")
        worker.tell(signal.SIGTERM)
        assert await worker.ended() == 0


async def test_a_worker_whose_keys_are_refused_says_so_in_its_log_and_by_its_exit_code(keyboard: Path) -> None:
    """S44: with the setting and the file, for people who read logs as well as for those who see its output."""
    keys = keyboard / "keys"
    keys.write_text("too short\n", encoding="utf-8")
    async with nodewarden(
        "worker", "--role", "workflows", TEMPORAL_ADDRESS="127.0.0.1:1", NODEWARDEN_TEMPORAL__PAYLOAD_KEYS_FILE=str(keys)
    ) as worker:
        await worker.says(f"this worker ends, and nothing is done by it: temporal.payload_keys_file: {keys}")
        assert await worker.ended() == 2


async def test_s44_a_worker_that_temporal_refuses_says_so_in_its_log_to_people_and_by_its_exit_code(
    keyboard: Path, cluster: str
) -> None:
    """With the setting and what to do. It ends at once: a rollout stops there, while the workers before it still run."""
    got: list[str] = []

    async def take(request: web.Request) -> web.Response:
        got.append((await request.json())["message"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    urls = keyboard / "urls"
    urls.write_text(f"json://127.0.0.1:{runner.addresses[0][1]}/\n", encoding="utf-8")
    with (keyboard / SETTINGS).open("a", encoding="utf-8") as settings:
        settings.write(f"\nnotifications: [{{url_file: {urls}}}]\n")
    async with nodewarden("worker", "--role", "cluster", TEMPORAL_NAMESPACE="elsewhere") as worker:
        line = await worker.says("this worker ends, and nothing is done by it: Temporal at 127.0.0.1")
        assert "has no namespace 'elsewhere'; create it (temporal operator namespace create -n elsewhere)" in line
        assert await worker.ended() == 2
    await runner.cleanup()
    assert len(got) == 1
    assert "this worker ends, and nothing is done by it: Temporal at 127.0.0.1" in got[0]


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
        await watching.says("episode node-held: in progress, isolation: does as the script says")
        await warden.episode(cluster, "node-held").abort(who="amy", reason="enough")
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
