"""What people with kubectl read of an episode: its NodeFence, Events on the Node and the NodeFence, a note in its mark.

A NodeFence is written whole, with the resourceVersion that was read; of two writers the one with the newer state wins, whichever
comes last. When it is to go stands on the object, so that the next worker that looks takes it away (`sweep`). It is not owned by
its Node: what became of a node that was deleted is what people want to know. Where the kind is not installed nothing is written,
and that is not asked again for a while. Spellings are `policy/episode/nodefence.py`.

Best effort by design: what can't be written is logged, and stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODE_FENCES, NODES, Resource
from activities.cluster.api.refusals import ObjectConflict, ObjectNotFound, edit, unless_gone
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.objects.live_node import LiveNode, readable_mark
from activities.cluster.objects.marks import is_ours, owner, with_note, write_mark
from activities.cluster.objects.node_edits import Edit, edit_node
from activities.contracts.target import EpisodeSnapshot, OffNote, Publication, PublishedEvent, Target
from activities.errors import ErrorType, error_type
from activities.notification_sender import Notify, discard_notice
from activities.worker_clock import Clock, utc_now
from policy.checks.verdict import MACHINE
from policy.episode.decisions import decision_of
from policy.episode.events import EventReason, When
from policy.episode.messages import EpisodeStatus, PathProof, Phase, Reading, RecordEntry, VolumeReading
from policy.episode.nodefence import STATUSES, STEPS, node_fence_name, retries
from policy.episode.notices import Notice
from policy.scan.repeat_alarm import Repetition
from policy.values.display_text import in_a_line
from policy.values.object_refs import ObjectRef

log = logging.getLogger(__name__)

MANAGED_BY = {"app.kubernetes.io/managed-by": "nodewarden"}
OURS = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())

KEPT_FOR = timedelta(hours=1)
NOT_SERVED_SECONDS = 600.0
"""For this long we do not ask again for a kind that the server does not know or does not let us write."""

SWEEP_SECONDS = 300.0
ABANDONED_AFTER = timedelta(days=1)
"""A fence that has not ended, of a node that no open episode holds: its episode was terminated, and no other has come since."""

REMEMBERED = 500
LONGEST_TEXT = 1024


class NodeFences:
    """The NodeFences of one cluster. kept_for: how long one stays after its episode has ended. kind: in which API group."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        kept_for: timedelta = KEPT_FOR,
        kind: Resource = NODE_FENCES,
        clock: Clock = utc_now,
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._kept_for = kept_for
        self._clock = clock
        self._seen: OrderedDict[str, JsonObject] = OrderedDict()
        """The objects as they were last read or written."""
        self._not_before = self._sweep_not_before = float("-inf")

    async def show(self, target: Target, shown: EpisodeSnapshot) -> bool:
        """Write this state, unless a newer one stands there. Whether something was written."""
        if self._not_served():
            return False
        name = node_fence_name(shown.status.node)
        try:
            return await self._write(name, target, shown)
        except ApplicationError as error:
            if error_type(error) is not ErrorType.FORBIDDEN:
                raise
            self._give_up(f"we may not write them: {error.message}")
            return False

    async def reference(self, node: str) -> tuple[ObjectRef, str] | None:
        """The NodeFence of a node and its uid, for an Event about it; None where there is none."""
        name = node_fence_name(node)
        if self._not_served():
            return None
        if name not in self._seen:
            try:
                self._remember(name, await self._connection.get(self._kind.path(name)))
            except ApplicationError as error:
                log.debug("NodeFence/%s can't be read: %s", name, error.message)
                return None
        return self._kind.ref(name), str(self._seen[name]["metadata"].get("uid", ""))

    async def sweep(self, held: Collection[str]) -> int:
        """Take away those that have expired, and those that an episode left behind which was terminated. From time to time; how
        many went. held: nodes that open episodes hold."""
        now = asyncio.get_running_loop().time()
        if self._not_served() or now < self._sweep_not_before:
            return 0
        self._sweep_not_before = now + SWEEP_SECONDS
        try:
            found = await self._connection.list_objects(self._kind.path(), query={"labelSelector": OURS})
            over = [each for each in found if self._is_over(each, held)]
            return sum([await self._delete(each) for each in over])
        except ObjectNotFound:
            self._give_up("the kind is not installed")
        except ApplicationError as error:
            log.warning("NodeFences can't be looked through: %s", error.message)
        return 0

    async def _write(self, name: str, target: Target, shown: EpisodeSnapshot) -> bool:
        body = self._document(name, target, shown)
        copies = [copy] if (copy := self._seen.get(name)) is not None else []
        path = self._kind.path(name)

        async def once() -> bool:
            # What others have written since makes ours a conflict.
            found = copies.pop() if copies else await unless_gone(self._connection.get(path))
            if found is None:
                try:
                    written = await self._connection.create(self._kind.path(), body)
                except ObjectNotFound:
                    self._give_up("the kind is not installed")
                    return False
            elif _is_foreign(found):
                log.warning("NodeFence/%s was not made by nodewarden and is left as it is", name)
                return False
            elif _is_newer(found, target, shown):
                self._remember(name, found)
                return False
            else:
                version = {"resourceVersion": found["metadata"]["resourceVersion"]}
                replaced = body | {"metadata": {**body["metadata"], **version}}
                written = await self._connection.replace(path, replaced)
            self._remember(name, written)
            return True

        return await edit(f"NodeFence/{name}", once, may_vanish=True)

    async def _delete(self, fence: JsonObject) -> bool:
        metadata = fence["metadata"]
        try:
            await self._connection.delete(
                self._kind.path(metadata["name"]), uid=metadata["uid"], resource_version=metadata["resourceVersion"]
            )
        except (ObjectConflict, ObjectNotFound):
            return False  # it has just begun anew, or is gone
        self._seen.pop(metadata["name"], None)
        return True

    def _is_over(self, fence: JsonObject, held: Collection[str]) -> bool:
        now = self._clock()
        expires = _moment(fence, "expiresAt")
        if expires is not None:
            return expires <= now
        updated = _moment(fence, "updatedAt")
        return updated is not None and updated + ABANDONED_AFTER <= now and fence.get("node") not in held

    def _document(self, name: str, target: Target, shown: EpisodeSnapshot) -> JsonObject:
        status = shown.status
        ended = status.phase is Phase.FINAL
        fields = {
            "node": status.node,
            "step": STEPS.get(status.step, ""),
            "status": STATUSES[status.phase],
            "retries": retries(status),
            "jobs": list(shown.jobs),
            "phase": status.phase.value,
            "restarts": status.restarts,
            "incident": status.incident,
            "sequence": shown.sequence,
            "workflowId": target.workflow_id,
            "runId": target.run_id,
            "reason": _short(status.reason),
            "problem": "" if ended else _short(status.problem),
            "outcome": shown.outcome,
            "message": _short(shown.message),
            "startedAt": _written(status.started),
            "updatedAt": _written(shown.at),
            "endedAt": _written(shown.at) if ended else "",
            "expiresAt": _written(shown.at + self._kept_for) if ended else "",
            "proof": _proof(status),
        }
        return {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"name": name, "labels": MANAGED_BY},
            **{key: value for key, value in fields.items() if value or key in {"retries", "jobs", "restarts"}},
        }

    def _not_served(self) -> bool:
        return asyncio.get_running_loop().time() < self._not_before

    def _give_up(self, why: str) -> None:
        log.info("no NodeFences are written for a while: %s", why)
        self._not_before = asyncio.get_running_loop().time() + NOT_SERVED_SECONDS

    def _remember(self, name: str, fence: JsonObject) -> None:
        self._seen[name] = fence
        self._seen.move_to_end(name)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


def _is_foreign(fence: JsonObject) -> bool:
    labels = fence["metadata"].get("labels") or {}
    return any(labels.get(key) != value for key, value in MANAGED_BY.items())


def _is_newer(fence: JsonObject, target: Target, shown: EpisodeSnapshot) -> bool:
    """Whether what stands there is at least as new. A run that was reset counts anew and is the only one that is open."""
    if fence.get("incident") != shown.status.incident:
        started = _moment(fence, "startedAt")
        return started is not None and started > shown.status.started
    return fence.get("runId") == target.run_id and int(fence.get("sequence") or 0) >= shown.sequence


def _proof(status: EpisodeStatus) -> JsonObject:
    proof: JsonObject = {}
    if (off := status.off_proof) is not None:
        proof["off"] = _commanded(off.commanded_at, [(each.endpoint, each) for each in off.readings])
        if (acknowledgement := off.acknowledgement) is not None:
            who = {"who": acknowledgement.speaker or acknowledgement.who, "verified": acknowledgement.verified.value}
            proof["off"]["acknowledgement"] = who | {"why": _short(acknowledgement.why), "at": _written(acknowledgement.at)}
    if status.path_proofs:
        proof["paths"] = [_commanded(each.commanded_at, _cut(each)) for each in status.path_proofs]
    if (restart := status.restart_proof) is not None:
        proof["restart"] = {
            "bootId": restart.boot_id,
            "previousBootId": restart.previous_boot_id,
            "seenAt": _written(restart.seen_at),
        }
    return proof


def _commanded(at: datetime | None, readings: Iterable[tuple[str, Reading | VolumeReading]]) -> JsonObject:
    read = [{"endpoint": name, "state": each.state.value, "at": _written(each.at)} for name, each in readings]
    return {"readings": read} | ({"commandedAt": _written(at)} if at is not None else {})


def _cut(path: PathProof) -> list[tuple[str, Reading | VolumeReading]]:
    return [*((each.endpoint, each) for each in path.readings), *((each.volume, each) for each in path.volumes)]


def _short(text: str) -> str:
    return in_a_line(text, LONGEST_TEXT)


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _moment(fence: JsonObject, field: str) -> datetime | None:
    try:
        return datetime.fromisoformat(str(fence.get(field) or ""))
    except ValueError:
        return None


# Everything that is new of an episode -----------------------------------------------------------------------------------

NOTIFIED: Mapping[str, When] = {
    EventReason.NEEDS_HUMAN: When.NEEDS_HUMAN,
    EventReason.CIRCUIT_BREAKER_OVERRIDDEN: When.CIRCUIT_BREAKER,
    EventReason.REPEATED_REPAIRS: When.REPEATED,
}

PATIENCE_SECONDS = 3.0
"""So long an act waits for the news that it takes along."""


class EpisodePublisher:
    """What is new of episodes, on a Node, on its NodeFence where there is one, and in the decision stream. notify: notifies
    people elsewhere."""

    def __init__(
        self,
        served: ServedCluster,
        fences: NodeFences | None,
        *,
        notify: Notify = discard_notice,
    ) -> None:
        self._cluster = served.name
        self._connections = served.connections
        self._fences = fences
        self._notify = notify
        self._record_decisions = served.record
        self._clock = served.clock

    async def publish_beside(self, target: Target, publication: Publication | None) -> None:
        """Publish what an act takes along. Raises nothing, and takes no longer than a moment."""
        if publication is None:
            return
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.publish(target, publication, anyway=True)
        except TimeoutError:
            activity.logger.warning("not all news of %s were published in time", target.pinned.node)

    async def publish(self, target: Target, publication: Publication, *, anyway: bool) -> None:
        """Notifications first and without waiting, since the API may be away; then the NodeFence, since Events stand on it too.
        anyway: Events are written whether or not the rest could be, which is logged then, and raised else."""
        for event in publication.events:
            self._notify_of(target, event)
        writes = (self._stream(target, publication.entries), self._show(target, publication), self._note(target, publication.off))
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, ApplicationError) and anyway:
                activity.logger.warning("what is new of %s was not written: %s", target.pinned.node, outcome.message)
            elif isinstance(outcome, BaseException):
                raise outcome
        pinned = target.pinned
        for event in publication.events:
            full = replace(event, message=f"incident {target.incident}: {event.message}")
            if not pinned.node.startswith(MACHINE):
                await self._record_on_node(pinned.node, pinned.uid, full)
            if (about := event.about) is not None:
                await self._record(self._connections.of(about.api_version), about, event.about_uid, full)

    async def publish_repetition(self, again: Repetition) -> None:
        """An Event of type Warning that names what was there each time, and a notification."""
        subject = f"{again.node} {again.cause}"
        self._notify(Notice(when=When.REPEATED, cluster=self._cluster, node=again.node, subject=subject, text=again.message))
        event = PublishedEvent(reason=EventReason.REPEATED_FENCING, message=again.message, warning=True)
        await self._record_on_node(again.node, again.node_uid, event)

    def _notify_of(self, target: Target, event: PublishedEvent) -> None:
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
                    commands_given=event.commands_given,
                )
            )

    async def _stream(self, target: Target, entries: Sequence[RecordEntry]) -> None:
        if self._record_decisions is None:
            return
        about = {"cluster": target.cluster, "node": target.pinned.node, "uid": target.pinned.uid, "incident": target.incident}
        ours = {"workflow_id": target.workflow_id, "run_id": target.run_id}
        await self._record_decisions([decision_of(each, **about, **ours) for each in entries])

    async def _show(self, target: Target, publication: Publication) -> None:
        if publication.shown is not None and self._fences is not None:
            await self._fences.show(target, publication.shown)

    async def _note(self, target: Target, note: OffNote | None) -> None:
        """Only in our own mark, where it says something else."""
        if note is None:
            return

        def decide(node: LiveNode) -> Edit:
            found = readable_mark(node.view)
            if found is None or not is_ours(found, target):
                return Edit(detail=f"left alone: the node is held by {owner(found)}")
            detail = "noted" if note.off_proven is not None else "noted no longer"
            return Edit(detail=detail, operations=write_mark(node, with_note(found, note)))

        try:
            await edit_node(self._connections.nodes, target.pinned.node, decide, not_after=note.not_after)
        except ObjectNotFound:
            activity.logger.info("Node/%s is gone, and our mark with it", target.pinned.node)

    async def _record_on_node(self, node: str, uid: str, event: PublishedEvent) -> None:
        """On the Node and on its NodeFence."""
        abouts = [(NODES.ref(node), uid)]
        if self._fences is not None and (fence := await self._fences.reference(node)) is not None:
            abouts.append(fence)
        await asyncio.gather(*(self._record(self._connections.nodes, about, its_uid, event) for about, its_uid in abouts))

    async def _record(self, connection: ClusterConnection, about: ObjectRef, uid: str, event: PublishedEvent) -> None:
        happening = Happening(about=about, uid=uid, reason=event.reason, message=event.message, warning=event.warning)
        try:
            await EventRecorder(connection, clock=self._clock).publish(happening)
        except ApplicationError as error:
            activity.logger.warning("the Event %s on %s was not written: %s", happening.reason, about.key, error.message)
