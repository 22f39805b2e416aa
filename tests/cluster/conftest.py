"""A simulated API server, a person with a client, and nodewarden's own connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.cluster.api.connection import ClusterConnection, Timeouts
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from tests.cluster.skipping import skipping


@pytest.fixture(autouse=True)
async def no_waiting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Time passes as fast as all that happens in it."""
    with skipping(monkeypatch):
        yield


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def person(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAddress(url=api.url, token="abc"), user_agent="a-person") as client:
        yield client


@pytest.fixture
async def connection(api: ApiServer) -> AsyncIterator[ClusterConnection]:
    timeouts = Timeouts(connect=0.5, read=0.5, write=0.5, page=1.0)
    async with ClusterConnection.to(api.url, token="abc", timeouts=timeouts) as opened:
        yield opened
