"""Clusters as the settings describe them, opened. The client is loaded with the first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from temporalio.exceptions import ApplicationError

from workers.configuration.clusters import ClusterSettings, ConnectionSettings
from workers.configuration.setting_sources import SettingsError

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection


async def open_connection(name: str, cluster: ConnectionSettings) -> ClusterConnection:
    """The connection that the settings describe. It is made when first used: an API that is down now is no mistake."""
    from activities.cluster.api.connection import ClusterConnection

    try:
        if cluster.in_cluster:
            return ClusterConnection.in_cluster()
        if cluster.server:
            return ClusterConnection.to(cluster.server, token_file=cluster.token_file, certificate_authority=cluster.ca_file)
        return await ClusterConnection.from_kubeconfig(cluster.kubeconfig, cluster.context)
    except ApplicationError as error:
        raise SettingsError(f"clusters.{name}: {error.message}") from error


@asynccontextmanager
async def open_cluster(name: str, cluster: ClusterSettings) -> AsyncIterator[tuple[ClusterConnection, ClusterConnection | None]]:
    """Its connection, and that to where Cluster API's objects live, None where they live in the cluster itself."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await open_connection(name, cluster))
        machines = None
        if cluster.machines is not None:
            machines = await stack.enter_async_context(await open_connection(f"{name}.machines", cluster.machines))
        yield connection, machines
