"""A cluster as its API shows it now, read once for people who ask; a scanner never works from this."""

from __future__ import annotations

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.watch.offline import OfflineCluster
from activities.cluster.watch.snapshot import take_snapshot
from workers.configuration.settings import Settings


async def read_live(
    settings: Settings, connection: ClusterConnection, machines: ClusterConnection | None, *, leased: bool = True
) -> OfflineCluster:
    """The cluster as its API shows it now, judged by these settings; leased: see `take_snapshot`. Raises what the API refuses."""
    return await take_snapshot(
        connection,
        machines=machines,
        overlap=settings.scan.overlap,
        takeover=settings.scan.takeover,
        source=settings.policy_source(),
        retries=settings.remediation.retries(),
        leased=leased,
    )
