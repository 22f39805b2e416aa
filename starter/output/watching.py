"""Looking again and again: as often as there is something to see, and no oftener than that.

The server is asked every second while an episode is open, else when the next verdict falls due, at least every few seconds.
In between the picture is drawn anew from what is known, so that countdowns move. Temporal being away is something to show,
not a reason to stop.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

from starter.client import Nodewarden
from starter.errors import RequestError
from starter.handles.status import ClusterStatus

BUSY = timedelta(seconds=1)
IDLE = timedelta(seconds=3)
AFTER_DUE = timedelta(milliseconds=300)
SHORTEST = timedelta(milliseconds=300)


async def look(warden: Nodewarden, cluster: str, last: ClusterStatus | None = None) -> ClusterStatus:
    """A status now; where nobody answers, the last one with the problem named in it."""
    try:
        return await warden.status(cluster)
    except RequestError as error:
        former = last or ClusterStatus(cluster=cluster, at=datetime.now(UTC))
        return dataclasses.replace(former, problem=str(error), unanswered=True)


def until_next(status: ClusterStatus) -> timedelta:
    """When it is worth asking again."""
    scanner = status.scanner
    if status.episodes or status.silent or scanner is None or scanner.queue or scanner.report is None:
        return BUSY
    due = scanner.report.next_due
    if due is None:
        return IDLE
    return min(IDLE, max(SHORTEST, due + AFTER_DUE - datetime.now(UTC)))
