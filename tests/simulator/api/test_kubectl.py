"""A real kubectl, where one is installed: what people type works."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from simulator.api.server import ApiServer
from tests.simulator.api.client import config_map, definition, node, pod, stateful_set

Kubectl = Callable[..., Awaitable[str]]

pytestmark = [pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"), pytest.mark.system]


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
