"""What people with kubectl are shown, over the Kubernetes API: an episode's NodeFence and Events, and nodes that keep failing.

Best effort by design: what can't be told is logged, and stops nothing.
"""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.isolation import require_cluster
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES
from activities.cluster.objects.livenode import Clock, utc_now
from activities.cluster.report.nodefences import NodeFences
from activities.contracts.mirror import MirrorActivities, MirrorRequest, RepetitionRequest
from policy.episode.events import EpisodeEvent, EventReason
from policy.values.object_refs import ObjectRef


class EpisodeTeller:
    """Events about an episode, on its Node and on its NodeFence where there is one."""

    def __init__(self, connection: ClusterConnection, fences: NodeFences | None, *, clock: Clock = utc_now) -> None:
        self._fences = fences
        self._recorder = EventRecorder(connection, clock=clock)

    async def tell(self, node: str, uid: str, reason: str, message: str, *, warning: bool) -> None:
        """Tell it on both; what can't be written is logged."""
        abouts = [(ObjectRef(api_version=NODES.api_version, kind=NODES.kind, name=node), uid)]
        fence = await self._fences.reference(node) if self._fences is not None else None
        for about, its_uid in (*abouts, *([fence] if fence is not None else [])):
            happening = Happening(about=about, uid=its_uid, reason=reason, message=message, warning=warning)
            await tell_or_log(self._recorder, happening)


async def tell_or_log(recorder: EventRecorder, happening: Happening) -> None:
    """What can't be written is logged: a story that can't be told stops nothing."""
    try:
        await recorder.tell(happening)
    except ApplicationError as error:
        activity.logger.warning("the Event %s on %s was not written: %s", happening.reason, happening.about.key, error.message)


class ClusterMirror(MirrorActivities):
    """Served by the workers of one cluster's queue."""

    def __init__(
        self, cluster: str, connection: ClusterConnection, *, fences: NodeFences | None = None, clock: Clock = utc_now
    ) -> None:
        self._cluster = cluster
        self._fences = fences or NodeFences(connection, clock=clock)
        self._teller = EpisodeTeller(connection, self._fences, clock=clock)

    @activity.defn(name="target.mirror")
    async def mirror(self, request: MirrorRequest) -> None:
        """The NodeFence first, since Events stand on it too; the second attempt tells them whether or not it could be written."""
        require_cluster(request.target.cluster, self._cluster)
        try:
            await self._fences.show(request)
        except ApplicationError as error:
            if activity.info().attempt == 1:
                raise
            activity.logger.warning("the NodeFence of %s was not written: %s", request.status.node, error.message)
        for event in request.events:
            await self._tell(request, event)

    @activity.defn(name="scan.tell-repetition")
    async def tell_repetition(self, request: RepetitionRequest) -> None:
        """An Event of type Warning that names what was there each time."""
        require_cluster(request.cluster, self._cluster)
        again = request.repetition
        await self._teller.tell(again.node, again.node_uid, EventReason.REPEATED_FENCING, again.message, warning=True)

    async def _tell(self, request: MirrorRequest, event: EpisodeEvent) -> None:
        pinned = request.target.pinned
        message = f"incident {request.status.incident}: {event.message}"
        await self._teller.tell(pinned.node, pinned.uid, event.reason, message, warning=event.warning)
