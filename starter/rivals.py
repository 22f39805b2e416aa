"""Whether the deployment that a cluster's Lease names is alive, or only left its name there when it was killed.

The scanner decides by itself when a Lease has lapsed; this only tells `nodewarden up` whether it is worth staying.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from temporalio.exceptions import ApplicationError

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection

LOOK_SECONDS = 1.0
MARGIN_SECONDS = 5.0


async def is_alive(connection: ClusterConnection, holder: str) -> bool:
    """Watch the Lease until its holder renews it (True) or lets its whole duration pass, or it changes hands (False).

    By our own clock alone: the clocks of two hosts may differ by more than a Lease lasts.
    """
    from activities.cluster.api.leases import CLUSTER_LEASE, LeaseView, read_lease

    loop = asyncio.get_running_loop()
    first: LeaseView | None = None
    end = loop.time() + MARGIN_SECONDS
    while loop.time() < end:
        with contextlib.suppress(ApplicationError):  # an API that is down for a moment proves nothing either way
            lease = read_lease(await connection.get(CLUSTER_LEASE))
            if lease.holder != holder:
                return False
            if lease.duration is None or (first is not None and lease.renewed != first.renewed):
                return True
            if first is None:
                first = lease
                end = loop.time() + lease.duration.total_seconds() + MARGIN_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
    return False
