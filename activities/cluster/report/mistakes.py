"""Reports what is wrong with objects that they, or kubelets, have written: one warning Event for each mistake.

Whether an episode is open or not: what stands on the objects is seen by the scan; its long poll calls `begin_due_work`, and the
work is done beside it. A value that was reported is not reported again by this process as long as it stands there, and by no
other while the server keeps the Event: its name is derived from what it says. Nothing is asked of the API while nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.report.background_writer import BackgroundWriter
from policy.values.object_refs import Mistaken, ObjectRef

log = logging.getLogger(__name__)

AT_ONCE = 8
MOST = 50
"""So many Events before a pause: a whole fleet with a wrong annotation is no flood."""
PAUSE_SECONDS = 60.0
TRY_AGAIN_SECONDS = 30.0
"""Until what could not be written is tried again."""


class MistakeReporter(BackgroundWriter):
    """Of one cluster. One per view; `close` ends what is under way."""

    def __init__(
        self,
        mistaken: Sequence[Mistaken],
        *,
        connection_of: Callable[[ObjectRef], ClusterConnection],
        on_change: Callable[[], None],
        pause: float = PAUSE_SECONDS,
    ) -> None:
        super().__init__("mistaken annotations", on_change=on_change)
        self._mistaken = mistaken
        self._connection_of = connection_of
        self._pause = pause
        self._recorders: dict[int, EventRecorder] = {}
        self._recorded: set[str] = set()
        """Names of the Events of what stands there now."""
        self._seen: tuple[int, ...] = ()
        self._not_before = float("-inf")

    def begin_due_work(self) -> float:
        """See to what is new, beside the caller. In how many seconds to call again; `on_change` says when work has ended."""
        if self.busy or self._seen == self._versions():
            return float("inf")
        if (left := self._not_before - asyncio.get_running_loop().time()) > 0:
            return left
        self.begin(self._work())
        return float("inf")

    def failed(self) -> None:
        """Not at once again."""
        self._not_before = asyncio.get_running_loop().time() + TRY_AGAIN_SECONDS

    async def _work(self) -> None:
        versions, loop = self._versions(), asyncio.get_running_loop()
        standing = {happening.name: happening for happening in self._happenings()}
        self._recorded &= standing.keys()
        due = [happening for name, happening in standing.items() if name not in self._recorded]
        some, failed = due[:MOST], False
        for first in range(0, len(some), AT_ONCE):
            told = await asyncio.gather(*(self._record(each) for each in some[first : first + AT_ONCE]))
            failed = failed or not all(told)
        if failed:
            self._not_before = loop.time() + TRY_AGAIN_SECONDS
        elif len(due) > len(some):
            self._not_before = loop.time() + self._pause
        else:
            self._seen = versions

    def _happenings(self) -> list[Happening]:
        return [
            Happening(about=mistake.about, uid=mistake.uid, reason=mistake.reason, message=word, warning=True)
            for mistaken in self._mistaken
            for mistake in mistaken
            for word in mistake.messages
        ]

    def _versions(self) -> tuple[int, ...]:
        return tuple(each.version for each in self._mistaken)

    async def _record(self, happening: Happening) -> bool:
        connection = self._connection_of(happening.about)
        recorder = self._recorders.setdefault(id(connection), EventRecorder(connection))
        try:
            await recorder.publish_unless_kept(happening)
        except ApplicationError as error:
            log.warning("the Event %s on %s was not written: %s", happening.reason, happening.about.key, error.message)
            return False
        self._recorded.add(happening.name)
        return True
