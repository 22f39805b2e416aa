"""What people with kubectl are told, over the Kubernetes API: an episode's NodeFence, its Events, and nodes that keep failing.

Best effort by design: what can't be told is logged, and stops nothing.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.one_cluster import OfOneCluster, require_cluster
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.objects.live_node import Edit, LiveNode, edit_node, readable_mark
from activities.cluster.objects.marks import is_ours, owner, write_mark
from activities.cluster.report.nodefences import NodeFences
from activities.contracts.episode_news import News, OffNote, RepetitionActivities, RepetitionRequest, ToldEvent
from activities.contracts.target import Target
from activities.notification_sender import Notify, nobody
from policy.checks.targets import MACHINE
from policy.episode.events import EventReason, When
from policy.episode.notices import Notice
from policy.values.object_refs import ObjectRef
from policy.values.times import written

NOTIFIED: Mapping[str, When] = {
    EventReason.NEEDS_HUMAN: When.NEEDS_HUMAN,
    EventReason.CIRCUIT_BREAKER_OVERRIDDEN: When.CIRCUIT_BREAKER,
}

PATIENCE_SECONDS = 3.0
"""So long an act waits for the news that it takes along."""


class EpisodeTeller:
    """News of episodes, on a Node and on its NodeFence where there is one. notify: tells people elsewhere."""

    def __init__(self, served: ServedCluster, fences: NodeFences | None, *, notify: Notify = nobody) -> None:
        self._notify = notify
        self._connections = served.connections
        self._fences = fences
        self._clock = served.clock

    async def along(self, target: Target, news: News | None) -> None:
        """Tell what an act takes along. Raises nothing, and takes no longer than a moment."""
        if news is None:
            return
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.tell_all(target, news, anyway=True)
        except TimeoutError:
            activity.logger.warning("not all news of %s were told in time", target.pinned.node)

    async def tell_all(self, target: Target, news: News, *, anyway: bool) -> None:
        """The NodeFence first, since Events stand on it too. anyway: Events are told whether or not the rest could be written,
        which is logged then, and raised else."""
        for event in news.events:
            self._notify_of(target, event)
        for outcome in await asyncio.gather(self._show(target, news), self._note(target, news.off), return_exceptions=True):
            if isinstance(outcome, ApplicationError) and anyway:
                activity.logger.warning("what is new of %s was not written: %s", target.pinned.node, outcome.message)
            elif isinstance(outcome, BaseException):
                raise outcome
        for event in news.events:
            await self._tell(target, event)

    def _notify_of(self, target: Target, event: ToldEvent) -> None:
        """First, and without waiting: Events are told later, or not at all while the API is away."""
        when = NOTIFIED.get(event.reason, When.ENDED if event.outcome else None)
        if when is not None:
            self._notify(
                Notice(
                    when=when,
                    cluster=target.cluster,
                    node=target.pinned.node,
                    subject=target.incident,
                    text=f"incident {target.incident}: {event.message}",
                    outcome=event.outcome,
                    words=event.words,
                )
            )

    async def tell(self, node: str, uid: str, event: ToldEvent) -> None:
        """An Event on the Node and on its NodeFence; what can't be written is logged."""
        abouts = [(NODES.ref(node), uid)]
        fence = await self._fences.reference(node) if self._fences is not None else None
        both = [*abouts, *([fence] if fence is not None else [])]
        await asyncio.gather(*(self._record(self._connections.nodes, about, its_uid, event) for about, its_uid in both))

    async def _show(self, target: Target, news: News) -> None:
        if news.shown is not None and self._fences is not None:
            await self._fences.show(target, news.shown)

    async def _note(self, target: Target, note: OffNote | None) -> None:
        """Only in our own mark, where it says something else."""
        if note is None:
            return
        off = note.off_proven

        def decide(node: LiveNode) -> Edit:
            found = readable_mark(node.view)
            if found is None or not is_ours(found, target):
                return Edit(detail=f"left alone: the node is held by {owner(found)}")
            mark = replace(found, off_proven=written(off) if off is not None else "")
            return Edit(detail="noted" if off is not None else "noted no longer", operations=write_mark(node, mark))

        try:
            await edit_node(self._connections.nodes, target.pinned.node, decide, not_after=note.not_after)
        except ObjectNotFound:
            activity.logger.info("Node/%s is gone, and our mark with it", target.pinned.node)

    async def _tell(self, target: Target, event: ToldEvent) -> None:
        pinned, event = target.pinned, replace(event, message=f"incident {target.incident}: {event.message}")
        if not pinned.node.startswith(MACHINE):
            await self.tell(pinned.node, pinned.uid, event)
        if (about := event.about) is not None:
            await self._record(self._connections.of(about.api_version), about, event.about_uid, event)

    async def _record(self, connection: ClusterConnection, about: ObjectRef, uid: str, event: ToldEvent) -> None:
        happening = Happening(about=about, uid=uid, reason=event.reason, message=event.message, warning=event.warning)
        try:
            await EventRecorder(connection, clock=self._clock).tell(happening)
        except ApplicationError as error:
            activity.logger.warning("the Event %s on %s was not written: %s", happening.reason, about.key, error.message)


class ClusterRepetitions(OfOneCluster, RepetitionActivities):
    """Served by the workers of one cluster's queue."""

    def __init__(self, served: ServedCluster, *, fences: NodeFences | None = None, notify: Notify = nobody) -> None:
        super().__init__(served)
        self._notify = notify
        self._teller = EpisodeTeller(served, fences or NodeFences(served.connection, clock=served.clock))

    @activity.defn(name="scan.tell-repetition")
    async def tell_repetition(self, request: RepetitionRequest) -> None:
        """An Event of type Warning that names what was there each time."""
        require_cluster(request.cluster, self._cluster)
        again = request.repetition
        event = ToldEvent(reason=EventReason.REPEATED_FENCING, message=again.message, warning=True)
        notice = Notice(
            when=When.REPEATED, cluster=self._cluster, node=again.node, subject=f"{again.node} {again.cause}", text=again.message
        )
        self._notify(notice)
        await self._teller.tell(again.node, again.node_uid, event)
