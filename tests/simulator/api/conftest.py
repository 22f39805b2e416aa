"""One simulated API server per test, with short waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest

from simulator.api.server import ApiServer
from tests.simulator.api.client import Client


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer(
        patience=timedelta(milliseconds=100),
        bookmark_interval=timedelta(milliseconds=50),
        housekeeping_delay=timedelta(milliseconds=10),
        seed=1,
    )
    async with server:
        yield server


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(limit=50)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(api.url, session, "abc")
