"""A cheap live question beside the watches: does the API server answer at all, and is it still the same cluster?

A watch may be silent for a minute because nothing happens or because nothing arrives any more; nodes in particular are quiet,
since their heartbeats are Leases. Reading one small object tells the two apart within seconds. Judging the view is `view.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.refusals import Unconnected

log = logging.getLogger(__name__)

Call = Callable[[], None]


class Probe:
    """Asks for the namespace kube-system, whose uid also names the cluster. `problem`: why not to believe in the view."""

    def __init__(self, connection: ClusterConnection, *, on_answer: Call, on_return: Call, every: float, again: float) -> None:
        """on_return: for a server that answers again."""
        self.uid = ""
        self.problem = ""
        self._connection = connection
        self._on_answer = on_answer
        self._on_return = on_return
        self._every = every
        self._again = again
        self.answered_at = self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def seconds_left(self, quiet: float) -> float:
        """Until the next question is due, for watches that have been quiet for so long."""
        if self._asking is not None:
            return float("inf")
        since_asked = asyncio.get_running_loop().time() - self._asked_at
        if self.problem or not self.uid:
            return self._again - since_asked
        return self._every - min(since_asked, quiet)

    def ask_if_due(self, quiet: float) -> None:
        """Ask in the background where it is time; never two at once."""
        if self._asking is None and self.seconds_left(quiet) <= 0:
            self._asked_at = asyncio.get_running_loop().time()
            self._asking = asyncio.create_task(self._ask(), name="probe")
            self._asking.add_done_callback(self._answered)

    async def stop(self) -> None:
        """Drop the question that is open."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        try:
            uid = await self._connection.cluster_uid(live=True)
        except ApplicationError as error:
            if not self.problem:
                level = logging.DEBUG if isinstance(error, Unconnected) else logging.WARNING  # the connection has said it
                log.log(level, "%s does not answer: %s", self._connection.url, error.message)
                self.problem = f"the API server does not answer: {error.message}"
            return
        self.answered_at = asyncio.get_running_loop().time()
        if self.uid and uid != self.uid:
            # Not forgiven: nobody here can know which of the two clusters the episodes are about.
            self.problem = (
                f"another cluster answers now: the uid of kube-system was {self.uid} and is {uid}; `nodewarden scan stop`,"
                " a restart of this worker and `scan start` accept it"
            )
            return
        if self.problem:
            self._on_return()
        self.uid, self.problem = uid, ""

    def _answered(self, _: asyncio.Task[None]) -> None:
        self._asking = None
        self._on_answer()
