"""The server alone, as a process of its own, and a real kubectl that speaks to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.api.server import ApiServer
from tests.simulator.api.client import CONFIG_MAPS, NODES, Client, config_map, definition, node, pod, stateful_set


@pytest.mark.system
async def test_it_says_where_it_listens_and_ends_on_a_signal(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "simulator.api",
        "--kubeconfig-out",
        str(kubeconfig),
        "--token",
        "secret=admin",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            told = (await process.stdout.readline()).decode().split()
        url = next(word for word in told if word.startswith("http://"))
        secure = next(word for word in told if word.startswith("https://"))
        assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == secure
        async with aiohttp.ClientSession() as session:
            assert (await Client(url, session, "secret").get(NODES)).status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0


# A server that stops, comes back, and may come back with an older memory.


async def test_a_restored_backup_is_older_than_what_clients_know(api: ApiServer, client: Client) -> None:
    """S18: such a server must not be mistaken for one whose objects were deleted."""
    await client.made(CONFIG_MAPS, config_map("a"))
    backup = api.store.snapshot()
    since = (await client.made(CONFIG_MAPS, config_map("b")))["metadata"]["resourceVersion"]
    api.store.restore(backup)
    assert (await client.get(CONFIG_MAPS)).names == ["a"]
    assert (await client.get(f"{CONFIG_MAPS}?resourceVersion={since}")).status == 504
    async with client.watch(CONFIG_MAPS, f"&resourceVersion={since}&allowWatchBookmarks=true") as events:
        again = (await client.made(CONFIG_MAPS, config_map("c")))["metadata"]["resourceVersion"]
        assert again == since
        await client.made(CONFIG_MAPS, config_map("d"))
        told = []
        while not told or told[-1]["type"] == "BOOKMARK":
            told.append(await events.next())
        # The number given out twice is not told to who believes to have seen it; nor is any bookmark below it.
        assert told[-1]["object"]["metadata"]["name"] == "d"
        assert all(int(event["object"]["metadata"]["resourceVersion"]) >= int(since) for event in told)


# A real kubectl, where one is installed: what people type works.

Kubectl = Callable[..., Awaitable[str]]

has_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture
def kubectl(api: ApiServer, tmp_path: Path) -> Kubectl:
    """Runs kubectl to its end and returns what it printed; a failure is the test's failure."""
    path = tmp_path / "kubeconfig"
    path.write_text(api.kubeconfig())
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(path)}

    async def run(*arguments: str, given: object = None, expect: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        sent = yaml.safe_dump_all(given).encode() if isinstance(given, list) else b""
        async with asyncio.timeout(30):
            printed, _ = await process.communicate(sent)
        assert process.returncode == expect, printed.decode()
        return printed.decode()

    return run


@has_kubectl
@pytest.mark.system
async def test_apply_creates_leaves_alone_and_changes(kubectl: Kubectl) -> None:
    objects = [node("n1"), config_map("c"), stateful_set("db"), pod("p1", "n1"), definition()]
    assert (await kubectl("apply", "-f", "-", given=objects)).count("created") == len(objects)
    again = await kubectl("apply", "-f", "-", given=objects)
    assert again.count("unchanged") == len(objects)
    assert "warning" not in again.lower()
    changed = await kubectl("apply", "-f", "-", given=[config_map("c", {"key": "new"}), stateful_set("db", 2)])
    assert changed.count("configured") == 2
    await kubectl("scale", "statefulset", "db", "--replicas=3")
    assert await kubectl("get", "sts", "db", "-o", "jsonpath={.spec.replicas}") == "3"
    assert await kubectl("get", "cm", "c", "-o", "jsonpath={.data.key}") == "new"


@has_kubectl
@pytest.mark.system
async def test_a_service_account_gets_a_token_and_by_a_binding_its_rights(kubectl: Kubectl) -> None:
    """As docs/page.md has people do it."""
    await kubectl("create", "serviceaccount", "ann", "-n", "default")
    await kubectl("create", "clusterrole", "looks", "--verb=get", "--resource=nodes")
    await kubectl("create", "clusterrolebinding", "ann-looks", "--clusterrole=looks", "--serviceaccount=default:ann")
    token = (await kubectl("create", "token", "ann", "-n", "default")).strip()
    assert "system:serviceaccount:default:ann" in await kubectl("auth", "whoami", "--token", token)
    assert (await kubectl("auth", "can-i", "get", "nodes", "--token", token)).endswith("yes\n")
    assert "no" in await kubectl("auth", "can-i", "delete", "nodes", "--token", token, expect=1)
    assert "less than 10 minutes" in await kubectl("create", "token", "ann", "--duration=1m", expect=1)
    await kubectl("create", "token", "nobody", expect=1)


@has_kubectl
@pytest.mark.system
async def test_kubectl_creates_simple_kinds_although_it_speaks_protobuf_then(kubectl: Kubectl) -> None:
    assert "poddisruptionbudgets" in await kubectl("api-resources")
    assert "Server Version: v1.36" in await kubectl("version")
    await kubectl("create", "namespace", "made")
    await kubectl("-n", "made", "create", "configmap", "c", "--from-literal=key=value")
    await kubectl("-n", "made", "create", "secret", "generic", "bmc", "--from-literal=password=x")
    await kubectl("-n", "made", "create", "serviceaccount", "s")
    assert await kubectl("-n", "made", "get", "cm", "c", "-o", "jsonpath={.data.key}") == "value"
    assert await kubectl("-n", "made", "get", "secret", "bmc", "-o", "jsonpath={.data.password}") == "eA=="
    assert "yes" in await kubectl("auth", "can-i", "list", "pods")
    await kubectl("delete", "namespace", "made", "--timeout=10s")
    assert "unknown format" in await kubectl("create", "deployment", "d", "--image=i", expect=1)
