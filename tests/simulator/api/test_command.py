"""The server alone, as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.simulator.api.client import NODES, Client


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
