"""`kubectl nodewarden`: the same commands, kubectl's flags wherever they stand, and what its shell completion asks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from simulator.api.server import ApiServer
from simulator.client import ApiClient
from starter.client import Nodewarden
from starter.kubectl import hoisted
from tests.starter.keyboard import nodewarden

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["status", "--context", "prod"], ["--context", "prod", "status"]),
        (["fence", "n", "--kubeconfig=f", "-r", "x"], ["--kubeconfig=f", "fence", "n", "-r", "x"]),
        (["status", "--context"], ["status", "--context"]),
        (["abort", "--", "--context", "n"], ["abort", "--", "--context", "n"]),
    ],
)
def test_flags_of_kubectl_are_global_ones_wherever_they_stand(given: list[str], expected: list[str]) -> None:
    assert hoisted(given) == expected


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer(tokens={"administrator": "admin"}) as server:
        yield server


@pytest.fixture
async def kubeconfig(keyboard: Path, api: ApiServer, person: ApiClient, cluster: str) -> Path:
    """Its only context is called as the cluster of the test, in which node-1 and node-2 are; the settings know no cluster."""
    for name in ("node-1", "node-2"):
        await person.create("/api/v1/nodes", {"metadata": {"name": name}})
    (keyboard / "nodewarden.yaml").unlink()
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "",
        "contexts": [{"name": cluster, "context": {"cluster": "lab", "user": "me"}}],
        "clusters": [{"name": "lab", "cluster": {"server": api.url}}],
        "users": [{"name": "me", "user": {"token": "administrator"}}],
    }
    path = keyboard / "lab.kubeconfig"
    path.write_text(yaml.safe_dump(written))
    return path


async def plugin(entry: str, *words: str) -> tuple[int, list[str]]:
    """As kubectl runs it: its exit code, and the lines that it prints."""
    # This machine may be busy with other tests, whatever a person would wait for.
    patient = "from starter.commands import completing; completing.WITHIN = 30"
    script = f"{patient}; import sys; sys.argv[0] = 'kubectl'; from starter.kubectl import {entry}; {entry}()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode or 0, (out + err).decode().splitlines()


async def test_a_context_names_the_cluster_as_kubectl_does(
    kubeconfig: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warden.start_scanner(cluster)
    flags = ("--kubeconfig", str(kubeconfig), "--context", cluster)
    code, lines = await plugin("main", "scan", "status", *flags, "-o", "json")
    assert (code, f'"cluster": "{cluster}"' in "".join(lines)) == (0, True), lines
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    refused = await nodewarden("--context", "nosuch", "status")
    assert (refused.exit_code, refused.stderr) == (2, f"nodewarden: --context: expected one of {cluster}, got 'nosuch'\n")


async def completed(*words: str) -> Sequence[str]:
    code, lines = await plugin("complete", *words)
    assert (code, lines[-1]) == (0, ":4"), lines
    return [line for line in lines[:-1] if line]  # kubectl drops empty ones


async def test_names_of_nodes_are_completed(
    kubeconfig: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those who can be spoken to only, where a command speaks to an episode."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await warden.fence(cluster, "node-2", reason="smoke")
    async with asyncio.timeout(10):
        while not await warden.history.open(cluster):
            await asyncio.sleep(0.1)
    assert await completed("explain", "--context", cluster, "node-") == ["node-1", "node-2"]
    assert await completed("--context", cluster, "abort", "") == ["node-2"]
    assert await completed("--context", cluster, "fence", "") == ["plan", "check", "begin", "node-1", "node-2"]
    assert await completed("stat") == ["status"]


async def test_where_nobody_can_be_asked_nothing_is_completed_and_nothing_said(
    keyboard: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (keyboard / "nodewarden.yaml").write_text(f"clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}", encoding="utf-8")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert await completed("explain", "node-") == []
    (keyboard / "nodewarden.yaml").write_text("clusters: [", encoding="utf-8")
    assert await completed("explain", "node-") == []


@pytest.mark.parametrize(
    ("words", "printed"),
    [(("nodewarden", "version"), [f"nodewarden {version('nodewarden')}"]), (("__complete", "nodewarden", "fe"), ["fence", ":4"])],
    ids=["command", "completion"],
)
async def test_kubectl_itself_finds_the_plugin(words: tuple[str, ...], printed: list[str]) -> None:
    """By the names of the programs that an installation brings; kubectl is the development environment's."""
    programs = Path(sys.executable).parent
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "kubectl"), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert (process.returncode, out.decode().splitlines()[: len(printed)]) == (0, printed)
