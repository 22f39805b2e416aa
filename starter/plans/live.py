"""A cluster as its API shows it now, read once for people who ask; a scanner never works from this."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.watch.offline import ClusterSnapshot
from activities.cluster.watch.snapshot import take_snapshot
from activities.errors import ErrorType
from starter.errors import SilentError
from workers.configuration.clusters import open_cluster
from workers.configuration.setting_sources import SettingsError
from workers.configuration.settings import Settings


async def read_live(
    settings: Settings, connection: ClusterConnection, machines: ClusterConnection | None, *, leased: bool = True
) -> ClusterSnapshot:
    """The cluster as its API shows it now, judged by these settings; leased: see `take_snapshot`. Raises what the API refuses."""
    return await take_snapshot(
        connection,
        machines=machines,
        overlap=settings.scan.overlap,
        takeover=settings.scan.takeover,
        source=settings.policy_source(),
        retries=settings.remediation.retries(),
        leased=leased,
        remediators=settings.remediation.known_remediators(),
    )


async def read_named(settings: Settings, name: str) -> ClusterSnapshot:
    """The same of a cluster that the settings name, by the rights of this process. Raises SilentError where it can't be read."""
    try:
        async with open_cluster(name, settings.connections()[name]) as (connection, machines):
            return await read_live(settings, connection, machines)
    except (KeyError, SettingsError, ApplicationError) as error:
        said = error.message if isinstance(error, ApplicationError) else str(error)
        if isinstance(error, ApplicationError) and error.type == ErrorType.FORBIDDEN:
            # The rest is the server's own sentence, with the name of our account in it.
            what, why = (*said.split(": ", 2), "")[:2]
            read_by = "`nodewarden explain NODE` reads them with your own rights"
            raise SilentError(f"the objects of the cluster {name} are not read here ({what}: {why}): {read_by}") from error
        raise SilentError(f"the objects of the cluster {name} can't be read from here: {said}") from error
