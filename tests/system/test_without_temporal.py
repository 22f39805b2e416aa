"""Temporal is away: nothing is begun, people know it within 15 s, and are warned of data at risk all the same."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from policy.episode.messages import Outcome
from simulator.client import PatchType
from simulator.objects import name_of
from simulator.resources import NODES
from starter.web.now import overview_of
from starter.web.views import Views
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from tests.system.questions import commands, events_about
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import ROOT
from workers.embedded.server import free_ports

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

WRITER = "demo/database-0"
WAIT = timedelta(seconds=6)
"""Before a machine is switched off."""
NO_ANSWER = 5
"""How a command ends that Temporal does not answer."""


@pytest.fixture
async def system(make_system: MakeSystem, tmp_path: Path) -> AsyncIterator[System]:
    """With a Temporal that may be killed."""
    (port,) = free_ports("127.0.0.1", 1)
    async with TemporalServer(tmp_path) as temporal:
        made = await make_system(temporal=temporal, settings={"metrics": f"127.0.0.1:{port}"})
        await made.start_worker()
        await made.apply_policy(plan={"waitBeforePower": f"{WAIT.seconds}s"})
        await made.start_scanner(cap=2)
        yield made


async def away(system: System) -> float:
    """The metric, as Prometheus reads it; -1 while there is none yet."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{system.settings.metrics}/metrics") as page:
            found = re.findall(r"^nodewarden_temporal_away(?:{[^}]*})? (\S+)$", await page.text(), re.MULTILINE)
    except aiohttp.ClientConnectionError:
        return -1
    return float(found[0]) if found else -1


async def ask(system: System, *command: str) -> tuple[int | None, str]:
    """A command of a person: how it ended, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "starter.cli", "--config", str(system.config), *command),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def test_without_temporal_nothing_is_begun_people_know_it_and_data_at_risk_is_warned_of(system: System) -> None:
    """S36, S37: in the middle of a fencing, before its off; what was begun goes on when Temporal is back."""
    writer = system.node_of_pod(WRITER)
    other = next(name_of(node) for node in system.cluster.view.nodes if name_of(node) != writer)

    async def is_back() -> bool:
        return await away(system) == 0

    await system.until(is_back, "the metric says that Temporal answers", seconds=30)
    first = system.break_node(other)

    async def is_cordoned() -> bool:
        return bool((await system.live_node(other))["spec"].get("unschedulable"))

    await system.until(is_cordoned, f"{other} is cordoned")
    page = Views(system.warden, (system.cluster_name,)).known(system.cluster_name)
    assert overview_of(await page.status()).unknown == ""
    await system.temporal.kill()
    killed = time.monotonic()

    async def is_known() -> bool:
        return await away(system) == 1

    async def is_shown() -> bool:
        return "Temporal is not available" in overview_of(await page.status()).unknown

    with page.watched():  # an open page is drawn anew with each new status
        await system.until(is_known, "the metric says so", seconds=15)
        await system.until(is_shown, "an open page says so", seconds=3)
    await page.close()
    await system.workers[0].kill()
    await system.start_worker()  # which has never reached Temporal: all that follows is so of it, too
    await system.until(is_known, "its metric says so", seconds=30)
    second = system.break_node(writer)
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds").replace("+00:00", "Z")
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": long_ago}
    path, body = NODES.path(writer, subresource="status"), {"status": {"conditions": [ready]}}
    await system.client.patch(path, body, patch_type=PatchType.STRATEGIC_MERGE)

    for command in ("status", "doctor"):
        code, printed = await ask(system, command)
        assert "cannot reach Temporal" in printed, printed
        assert code == (NO_ANSWER if command == "status" else 1), printed

    async def is_warned_of() -> bool:
        return any(each["reason"] == "DataAtRisk" for each in await events_about(system, "Node", writer))

    await system.until(is_warned_of, f"data on {writer} is at risk", seconds=30)
    _, printed = await ask(system, "explain", writer)
    assert "nothing is begun for it: Temporal does not answer" in " ".join(printed.split()), printed
    assert time.monotonic() - killed > WAIT.total_seconds()
    assert [*commands(system, writer), *commands(system, other)] == []
    await system.temporal.start()
    await system.until(is_back, "the metric says that it is back")
    for before in (first, second):
        result = await system.ended(before)
        assert result.outcome is Outcome.RECOVERED, result.message
        assert await system.judge(before, result) == []
