"""The search for leaked secrets finds what is planted, in each place where it looks: a search that can't proves nothing (S12).

Planted are values of these tests' own. For that of the whole run everything is searched when it ends (`fixtures.py`).
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from temporalio.client import Client

from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from simulator.cloud.gce import GceEndpoint
from simulator.resources import EVENTS, NODES, SECRETS, Resource
from tests.system import process_watch
from tests.system.canary import Canary
from tests.system.process_watch import ProcessWatch
from tests.system.real_api import simulated_only
from tests.system.temporal_server import TemporalServer
from workers.runtime import runtime

pytestmark = [pytest.mark.system, pytest.mark.timeout(60)]

CONFIG_MAPS = Resource(api_version="v1", kind="ConfigMap", plural="configmaps")
LONGER_THAN_A_PAGE = "of no interest " * 1000
WORKER = b"python\0-m\0starter.cli\0--config\0nodewarden.yaml\0worker\0"

shows_processes = pytest.mark.skipif(not process_watch.possible(), reason="this machine does not show its processes as files")


@pytest.fixture
def planted() -> Canary:
    return Canary()


async def seen(planted: Canary, places: int = 1) -> list[str]:
    """Wait until it was found in so many places; which they are."""
    async with asyncio.timeout(20):
        while len(planted.found) < places:
            await asyncio.sleep(0.01)
    return sorted(planted.found)


async def test_a_secret_in_a_history_or_a_memo_is_found_in_the_servers_database(
    temporal: TemporalServer, free_namespaces: list[str], planted: Canary
) -> None:
    """While the server runs, in a workflow that nobody works on, behind more than fits into a page of the file."""
    client = await Client.connect(temporal.address, namespace=free_namespaces[-1], runtime=runtime())
    told = {"reason": LONGER_THAN_A_PAGE, "device": {"password": f"{planted.value}-and-more"}}
    started = await client.start_workflow("Nobody", told, id=f"nobody-{os.getpid()}", task_queue="nobody")
    planted.look_at_database("temporal.db", temporal.database)
    assert any("history_node" in where for where in planted.found)
    await started.terminate("it was only to be found")

    other = Canary()
    memo = {"note": base64.b64encode(f"login admin {other.value}".encode()).decode()}
    started = await client.start_workflow("Nobody", id=f"memo-{os.getpid()}", task_queue="nobody", memo=memo)
    other.look_at_database("temporal.db", temporal.database)
    assert any("executions" in where for where in other.found)
    await started.terminate("it was only to be found")


def in_base64(before: str) -> Callable[[str], str]:
    return lambda value: base64.b64encode(f"{before}{value}: wrong".encode()).decode()


def test_a_secret_in_a_log_is_found_however_it_is_written(tmp_path: Path) -> None:
    """But in a file that is made to hold secrets."""
    for written in (str, lambda value: value.encode().hex(), in_base64(""), in_base64("a"), in_base64("ab")):
        planted = Canary()
        (tmp_path / "worker-1.log").write_text(f"INFO all is well\nWARNING login {written(planted.value)} refused\n")
        (tmp_path / "worker-2.log").write_text("INFO all is well\n")
        (tmp_path / "kubeconfig").write_text(planted.value)
        planted.look_at_files(tmp_path)
        assert list(planted.found) == ["worker-1.log"]
        assert "WARNING login" in planted.found["worker-1.log"]


async def test_a_secret_that_a_command_prints_is_found(planted: Canary) -> None:
    with planted.hearing():
        for stream in ("stdout", "stderr"):
            said = f"import sys; print(sys.stdin.read(), file=sys.{stream})"
            process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", said, stdin=PIPE, stdout=PIPE, stderr=PIPE)
            printed = await process.communicate(planted.value.encode())
            assert planted.value.encode() in b"".join(printed)
    assert len(planted.found) == 2


def test_a_secret_that_a_test_printed_or_logged_is_found(planted: Canary) -> None:
    sections = [("Captured stdout call", "nothing"), ("Captured log call", f"WARNING {planted.value}")]
    report = pytest.TestReport("test_it", ("", 0, ""), {}, "passed", None, "call", sections=sections)
    planted.look_at_report(report)
    assert list(planted.found) == ["test_it, Captured log call"]


async def test_a_secret_in_the_metrics_is_found(planted: Canary) -> None:
    async def page(request: web.BaseRequest) -> web.Response:
        return web.Response(text=f'devices{{endpoint="ipmi://admin:{planted.value}@node-1"}} 1\n')

    server = await asyncio.get_running_loop().create_server(web.Server(page), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        await planted.look_at_metrics(f"{host}:{port}")
    assert list(planted.found) == [f"the metrics at {host}:{port}"]


async def test_a_secret_in_any_object_but_a_secret_is_found(planted: Canary) -> None:
    """In the moment of its writing, also where it is gone again afterwards; and among what there is at the end."""
    simulated_only("of a real one, objects are searched at the end, and not as they are written")
    meta = {"namespace": "default", "name": "it"}
    async with ApiServer() as server, ApiClient(ApiAddress(url=server.url, token="abc")) as client:
        planted.listen("sim", server.store)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"password": planted.value}}
        await client.create(SECRETS.path(namespace="default"), secret)
        assert planted.searched["objects"] == 0

        told = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"told": planted.value}}
        await client.create(CONFIG_MAPS.path(namespace="default"), told)
        await client.delete(CONFIG_MAPS.path("it", namespace="default"))
        about = {"kind": "Node", "name": "node-1"}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about, "message": planted.value}
        await client.create(EVENTS.path(namespace="default"), event)
        await client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        await client.patch(NODES.path("node-1"), {"metadata": {"annotations": {"mark": planted.value}}})
        assert sorted(planted.found) == ["configmaps, sim, default/it", "events, sim, default/it", "nodes, sim, /node-1"]

        planted.found.clear()
        await planted.look_at_api("sim", client)
    assert sorted(planted.found) == ["events, sim", "nodes, sim"]


@shows_processes
async def test_a_secret_in_the_arguments_or_the_environment_of_a_process_is_seen(planted: Canary) -> None:
    with ProcessWatch(planted.look_at_process):
        told = {"PATH": os.environ["PATH"], "PASSWORD": planted.value}
        loud = await asyncio.create_subprocess_exec("sh", "-c", "read line", planted.value, stdin=PIPE)
        open_handed = await asyncio.create_subprocess_exec("sh", "-c", "read line", stdin=PIPE, env=told)
        found = await seen(planted, places=2)
        for process in (loud, open_handed):
            process.kill()
            await process.wait()
    assert found == ["the arguments of sh", "the environment of sh -c read line"]


@shows_processes
async def test_a_watch_that_stood_still_fails() -> None:
    """S7."""
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def fail(number: int, arguments: bytes, environment: bytes) -> None:
        loop.call_soon_threadsafe(began.set)
        raise ValueError("it can't look at it")

    with pytest.raises(ValueError, match="it can't look at it"), ProcessWatch(fail):  # noqa: PT012 - it is raised at the end
        process = await asyncio.create_subprocess_exec("sleep", "60")
        await asyncio.wait_for(began.wait(), 20)
        process.kill()
        await process.wait()


def test_a_workers_own_environment_may_have_secrets_and_that_of_what_it_starts_may_not(planted: Canary) -> None:
    """As `env:` references want it."""
    environment = f"PATH=/bin\0NODEWARDEN_CREDENTIAL_BMC={planted.value}\0".encode()
    planted.look_at_process(1, WORKER, environment)
    assert planted.found == {}
    planted.look_at_process(2, b"/bin/python\0fork_server.py\0bmc.ipmi\0", environment)
    assert list(planted.found) == ["the environment of python fork_server.py bmc.ipmi"]


def test_a_key_that_cannot_carry_the_canary_is_learnt(planted: Canary) -> None:
    account = GceEndpoint().service_account()
    planted.learn({"service-account-json": account})
    planted.look("a log", f"could not parse {account}")
    planted.look("an object", base64.b64encode(account.encode()))
    assert list(planted.found) == ["a log", "an object"]


def test_a_secret_that_would_leak_unseen_is_refused(planted: Canary) -> None:
    with pytest.raises(AssertionError, match="'password' would leak unseen"):
        planted.learn({"username": "admin", "password": "k3p-my-s3cret"})


def test_a_check_that_did_not_run_is_a_problem_where_there_are_secrets(planted: Canary) -> None:
    """S7."""
    assert planted.problems() == []
    planted.learn({"password": planted.value})
    assert "there were secrets, and nobody looked at rows of databases" in planted.problems()
    planted.look("a log", planted.value)
    assert planted.problems()[0].startswith("a secret in a log")
