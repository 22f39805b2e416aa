"""A second API server, where Cluster API's objects live apart from the nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.cluster.api.connection import ClusterConnection
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient


@asynccontextmanager
async def management_cluster() -> AsyncIterator[tuple[ApiServer, ApiClient, ClusterConnection]]:
    """It, a person's client of it, and the connection by which we read it."""
    async with (
        ApiServer() as server,
        ApiClient(ApiAddress(url=server.url, token="abc"), user_agent="a-person") as person,
        ClusterConnection.to(server.url, token="abc") as connection,
    ):
        yield server, person, connection
