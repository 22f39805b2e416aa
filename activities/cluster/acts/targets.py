"""The node of an episode over the Kubernetes API: pin it, mark it, look at it, hold its lease, tell its story.

Each activity is a few lines here and an idea of its own beside: the plan in `live/plans.py`, the mark in `objects/marks.py`,
the last look in `live/last_look.py`, the lease in `live/node_leases.py`, Events in `api/events.py`. Cordon and consequences are
`isolation.py` and `freeing.py`.
"""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.freeing import standing_workload
from activities.cluster.acts.isolation import cordon_edit
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.claims import CheckedDevices, Identities
from activities.cluster.live.last_look import GrantedPermits, LastLook
from activities.cluster.live.node_leases import release_node_lease
from activities.cluster.live.plans import kinds_for, plan_for, require_kind, with_live_delegate
from activities.cluster.objects.fencing_requests import answer
from activities.cluster.objects.live_machines import read_subject
from activities.cluster.objects.live_node import LiveNode, all_names, find_node, pinned_of, readable_mark, seen_node
from activities.cluster.objects.marks import mark_edit
from activities.cluster.objects.node_edits import Edit, edit_node
from activities.cluster.objects.object_reader import reading_once
from activities.cluster.report.nodefences import EpisodePublisher, NodeFences
from activities.contracts.scan import RepetitionActivities, RepetitionRequest
from activities.contracts.target import (
    ActRequest,
    ActResult,
    AnswerRequest,
    AnswerResult,
    Configured,
    LookRequest,
    LookResult,
    LookVerdict,
    PinRequest,
    PinResult,
    PublishRequest,
    ReleaseRequest,
    Target,
    TargetActivities,
)
from activities.errors import ErrorType, failure
from activities.licences import Licences
from activities.notification_sender import Notify, discard_notice
from activities.worker_clock import waited_for_a_worker
from policy.episode.gate import Operation
from policy.episode.messages import Kind, Need, NeedKind, Pinned
from policy.episode.proofs import licenses
from policy.fence.plan import begins_with_cordon
from policy.objects.marks import NOTHING_ADDED, Added
from policy.values.errors import no_such_target

AT_ONCE_SECONDS = 3.0
"""So long a pin may take to look and to cordon: an attempt at it has more time than that left, and is not to fail for it."""


class ClusterTarget(ClusterActivities, TargetActivities, RepetitionActivities):
    """Served by the workers of one cluster's queue. fences: where episodes are shown, None for nowhere."""

    def __init__(
        self,
        served: ServedCluster,
        permits: GrantedPermits,
        licences: Licences,
        *,
        fences: NodeFences | None = None,
        identities: Identities | None = None,
        checked: CheckedDevices | None = None,
        notify: Notify = discard_notice,
    ) -> None:
        super().__init__(served)
        self._licences = licences
        self._identities = identities or Identities(served.connections)
        self._last_look = LastLook(served, permits, identities=self._identities, checked=checked, licences=licences)
        self._publisher = EpisodePublisher(served, fences, notify=notify)

    async def pin(self, request: PinRequest) -> PinResult:
        """Everything an episode keeps of its target; at last our mark, once nothing more can be wrong with it."""
        wanted = request.wanted
        once = reading_once(self._connections)
        node = await find_node(once.nodes, wanted.node)
        if node is None:
            raise failure(ErrorType.NOT_FOUND, no_such_target(wanted.node, await all_names(self._connection)))
        view = node.view
        if wanted.node_uid and wanted.node_uid != view.uid:
            raise failure(
                ErrorType.TARGET_CHANGED,
                f"Node/{wanted.node} is another object now: uid {view.uid}, asked for was {wanted.node_uid}",
            )
        mark = readable_mark(view)
        # Another incident's, or ours from a run that was terminated or reset: whatever it had begun may still be under way (S34).
        run_id = request.run_id or activity.info().workflow_run_id or ""
        adopted = mark is not None and (mark.incident, mark.run_id) != (wanted.incident, run_id)
        need = wanted.need or Need(kind=NeedKind.PERSON, reason=wanted.reason, requester=wanted.requester)
        require_kind(need, kinds_for(activity.info().workflow_type))
        need = await with_live_delegate(self._connection, need, view.name, self._source.requests)
        paths = mark.paths if mark is not None else ()
        # Left-overs that only a device can undo need the plan of one that would have cut them.
        planned = replace(need, kind=NeedKind.PERSON) if paths and need.kind is not NeedKind.FOREIGN_OBJECT else need
        plan, repairs = await asyncio.gather(
            plan_for(self._connections, view, wanted.template, planned, source=self._source),
            self._served.repairs(view.name, view.system_uuid),
        )
        named = await read_subject(once, need if need.kind is NeedKind.CHECK else None, view.name)
        # As each look finds them: another answer here would be another target there, for ever.
        machines = (await self._identities.with_unnamed(once, named, view)).machines_of(view)
        pinned = replace(
            pinned_of(node),
            endpoints=plan.endpoints,
            levels=plan.endpoints_of_levels,
            machine_uids=tuple(each.uid for each in machines),
        )
        hosts = await self._served.credential_hosts()
        target, at_once = _target_of(request, pinned), bool(request.marks_as) and not adopted
        cordons = at_once and request.cordons and begins_with_cordon(plan)
        cordoned = await self._cordoned_at_once(target, need, request) if cordons else None
        added = cordoned.added if cordoned is not None else None
        if at_once and cordoned is None:
            added = await self._marked_at_once(target, request.not_after, node)
        return PinResult(
            pinned=pinned,
            plan=self._licences.sealed(wanted.cluster, view.name, plan, hosts),
            need=need,
            control_plane=view.control_plane or any(each.control_plane for each in machines),
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=paths,
            seen=seen_node(view.name, view),
            added=added,
            repairs=repairs,
            streams=self._served.record is not None,
            cordoned=cordoned.detail if cordoned is not None else "",
            version=cordoned.version if cordoned is not None else "",
        )

    async def mark(self, request: ActRequest) -> ActResult:
        """Look and write in one; a second call finds its own mark and writes nothing."""
        result = await self._mark(request.target, request.not_after, self._licences.believed(request.target, request.added))
        await self._publisher.publish_beside(request.target, request.publication)
        return result

    async def _marked_at_once(self, target: Target, not_after: datetime | None, node: LiveNode) -> Added | None:
        """None: the node is not marked, for all that is known. A mark of its own then says why it can't be."""
        try:
            return (await self._mark(target, not_after, read=node)).added
        except ApplicationError as error:
            activity.logger.info("Node/%s is pinned and not marked yet: %s", target.pinned.node, error.message)
            return None

    async def _cordoned_at_once(self, target: Target, need: Need, request: PinRequest) -> ActResult | None:
        """Our mark and the cordon in one write, of the very Node that was looked at. None: it is not cordoned, for all that is
        known. Its isolation looks again, and says what is in the way."""
        look = LookRequest(
            target=target,
            need=replace(need, reason="", requester=""),
            holder=request.wanted.holder,
            operation=Operation.CORDON,
            configured=Configured(template=request.wanted.template),
        )
        try:
            async with asyncio.timeout(AT_ONCE_SECONDS):
                seen, node = await self._last_look.look_at_node(look)
                if seen.verdict is not LookVerdict.GO:
                    return None

                def decide(read: LiveNode) -> Edit:
                    if read.view.resource_version != seen.version:
                        raise failure(ErrorType.TRANSIENT, "it was changed since it was looked at")
                    now = self._clock()
                    return cordon_edit(read, target, now, mark_edit(read, target, now).mark)

                result = await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after, read=node)
                return self._licences.sealed_result(target, result)
        except (ApplicationError, TimeoutError) as error:
            why = str(error) or f"not done within {AT_ONCE_SECONDS:g} s"
            activity.logger.info("Node/%s is not cordoned yet: %s", target.pinned.node, why)
            return None

    async def _mark(
        self, target: Target, not_after: datetime | None, added: Added = NOTHING_ADDED, *, read: LiveNode | None = None
    ) -> ActResult:
        def decide(node: LiveNode) -> Edit:
            return mark_edit(node, target, self._clock(), added)

        result = await edit_node(self._connection, target.pinned.node, decide, not_after=not_after, read=read)
        return self._licences.sealed_result(target, result)

    async def last_look(self, request: LookRequest) -> LookResult:
        """Nothing of it comes from the watch cache. News are told meanwhile: they are of what was before. A go licenses the power
        act that was asked for (S42), on devices that are configured for the node now."""
        result, _, workload = await asyncio.gather(
            self._last_look.look(request),
            self._publisher.publish_beside(request.target, request.publication),
            standing_workload(self._connection, request.target.pinned.node, self._source) if request.counts else _nothing(),
        )
        queued = waited_for_a_worker()
        return replace(result, workload=workload, licence=self._licence(request, result, queued), queued=queued)

    def _licence(self, request: LookRequest, result: LookResult, queued: timedelta) -> str:
        wanted, target = request.licenses, request.target
        found = {"devices_compared": request.configured is not None, "preserving": target.kind == Kind.PRESERVATION.value}
        if wanted is None or result.verdict is not LookVerdict.GO:
            return ""
        if not licenses(request.operation, wanted.act, target.pinned, result.seen, **found):
            return ""
        return self._licences.licence(target, replace(wanted, not_after=wanted.not_after + queued), self._clock())

    async def release_lease(self, request: ReleaseRequest) -> None:
        """Give it back if this episode took it."""
        await release_node_lease(self._connection, request, self._clock)
        await self._publisher.publish_beside(request.target, request.publication)

    async def publish(self, request: PublishRequest) -> None:
        """The second attempt tells the Events whether or not the rest could be written."""
        await self._publisher.publish(request.target, request.publication, anyway=activity.info().attempt > 1)

    async def publish_repetition(self, request: RepetitionRequest) -> None:
        await self._publisher.publish_repetition(request.repetition)

    async def answer_request(self, request: AnswerRequest) -> AnswerResult:
        """Look and write in one; an object that is gone is told nothing."""
        return AnswerResult(withdrawn=await answer(self._connection, request.answer, clock=self._clock))


def _target_of(request: PinRequest, pinned: Pinned) -> Target:
    info = activity.info()
    return Target(
        cluster=request.wanted.cluster,
        pinned=pinned,
        incident=request.wanted.incident,
        kind=info.workflow_type or "",
        workflow_id=info.workflow_id or "",
        run_id=request.marks_as,
    )


async def _nothing() -> None:
    return None
