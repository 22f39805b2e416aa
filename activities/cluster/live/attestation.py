"""Whether the API server sees to it that nobody makes a NodeAction in another one's name: read live, for one object."""

from __future__ import annotations

import asyncio

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import ADMISSION_BINDINGS, ADMISSION_POLICIES
from activities.cluster.api.refusals import unless_gone
from activities.errors import ErrorType
from policy.episode.attestation import POLICY, doubt
from policy.values.times import EARLIEST, moment_of


async def doubt_of(connection: ClusterConnection, action: JsonObject) -> str:
    """Why its name may be anybody's, "" where it is its maker's."""
    kinds = (ADMISSION_POLICIES, ADMISSION_BINDINGS)
    try:
        policy, binding = await asyncio.gather(*(unless_gone(connection.get(kind.path(POLICY))) for kind in kinds))
    except ApplicationError as error:
        if error.type != ErrorType.FORBIDDEN:
            raise
        return f"whether the API server checks names can't be seen: {error.message}"
    return doubt(policy, binding, moment_of(action["metadata"].get("creationTimestamp")) or EARLIEST)
