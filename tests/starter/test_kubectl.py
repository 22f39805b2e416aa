"""`kubectl nodewarden`: the same commands, kubectl's flags wherever they stand, and what its shell completion asks."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from activities.contracts import search_attributes
from policy.episode.messages import Kind, episode_id
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from starter import uninstall
from starter.cli import app
from starter.client import Nodewarden
from starter.commands import arguments
from starter.kubectl import hoisted
from tests.starter.builders import nodewarden
from tests.starter.conftest import SETTINGS


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
async def kubeconfig(keyboard: Path, api: ApiServer, person: ApiClient, cluster: str) -> Path:
    """Its only context is called as the cluster of the test, in which node-1 and node-2 are; the settings know no cluster."""
    for name in ("node-1", "node-2"):
        await person.create("/api/v1/nodes", {"metadata": {"name": name}})
    (keyboard / SETTINGS).unlink()
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


async def test_a_context_names_the_cluster_as_kubectl_does(
    kubeconfig: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warden.start_scanner(cluster)
    flags = ("--kubeconfig", str(kubeconfig), "--context", cluster)
    shown = await nodewarden(*hoisted(["scan", "status", *flags, "-o", "json"]))
    assert (shown.exit_code, f'"cluster": "{cluster}"' in shown.stdout) == (0, True), shown.output
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    refused = await nodewarden("--context", "nosuch", "status")
    assert (refused.exit_code, refused.stderr) == (2, f"nodewarden: --context: expected one of {cluster}, got 'nosuch'\n")


async def test_s9_a_context_is_not_taken_for_another_cluster_of_its_name(kubeconfig: Path, keyboard: Path, cluster: str) -> None:
    """Its requests would reach the workers of the cluster that the settings call so."""
    (keyboard / SETTINGS).write_text(f"clusters: {{{cluster}: {{context: admin@elsewhere}}}}", encoding="utf-8")
    refused = await nodewarden("--kubeconfig", str(kubeconfig), "--context", cluster, "status")
    assert (refused.exit_code, f"--context: {cluster} is another cluster in the settings" in refused.stderr) == (2, True)


async def completed(*words: str) -> Sequence[str]:
    """What the shell is offered, as `complete` asks for it; kubectl drops empty lines."""
    asked = ["nodewarden", *hoisted(words)]
    told = {"_NODEWARDEN_COMPLETE": "complete_bash", "COMP_WORDS": shlex.join(asked), "COMP_CWORD": str(len(asked) - 1)}
    try:
        result = await asyncio.to_thread(CliRunner().invoke, app, [], env=told, prog_name="nodewarden")
    finally:
        logging.disable(logging.NOTSET)  # completion silences its process, which is ours
    assert (result.exit_code, result.stderr) == (0, "")
    return [line for line in result.stdout.splitlines() if line]


async def test_names_of_nodes_are_completed(
    kubeconfig: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those who can be spoken to only, where a command speaks to an episode."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(
        arguments, "COMPLETED_WITHIN", 30
    )  # this machine may be busy with other tests, whatever a person would wait for
    await warden.fence(cluster, "node-2", reason="smoke")
    async with asyncio.timeout(10):
        while not await warden.history.open(cluster):
            await asyncio.sleep(0.1)
    assert await completed("explain", "--context", cluster, "node-") == ["node-1", "node-2"]
    assert await completed("--context", cluster, "abort", "") == ["node-2"]
    assert await completed("--context", cluster, "fence", "") == ["begin", "plan", "check", "node-1", "node-2"]
    assert await completed("stat") == ["status"]


async def test_s41_no_name_is_completed_that_a_shell_would_obey(
    kubeconfig: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client of Temporal may begin a workflow under such an id; TAB and Enter ran what was in it."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(arguments, "COMPLETED_WITHIN", 30)
    about = search_attributes.of_episode(Kind.FENCING, cluster=cluster, node="x", reason="x")
    for name in ("$(touch gotcha)", "--yes", "node-2;id", "node-7"):
        await warden.client.start_workflow(
            "Fencing",
            {},
            id=episode_id(cluster, name),
            task_queue="mine",
            search_attributes=about,
            execution_timeout=timedelta(minutes=5),
        )
    async with asyncio.timeout(10):
        while len(await warden.history.open(cluster)) < 4:
            await asyncio.sleep(0.1)
    assert await completed("--context", cluster, "abort", "") == ["node-7"]
    found = await uninstall.workflows(warden, cluster)
    assert f"nodewarden abort '$(touch gotcha)' -c {cluster} --reason uninstalled" in [each.remove for each in found]


async def test_without_a_cluster_nothing_is_completed_and_nothing_said(
    keyboard: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (keyboard / SETTINGS).write_text(f"clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}", encoding="utf-8")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert await completed("explain", "node-") == []
    (keyboard / SETTINGS).write_text("clusters: [", encoding="utf-8")
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
