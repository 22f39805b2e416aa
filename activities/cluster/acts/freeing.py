"""Consequences: let what ran on a node that is proven off run elsewhere. Nothing here happens without that proof (S1).

Each consequence checks everything anew in the activity that writes: the proof covers every pinned device, its time is not over,
the cluster Lease is held, and the live Node is the pinned one, still down, on the boot that was fenced, and ours. A reading
that licenses it is fresh because the workflow reads the power just before and bounds `not_after` by it (S2). What is in the
way is said by `objects/workload.py`; the way back from the taint is here too, since only this module knows what it added.

What protects a machine (a preservation, an exclusion, another holder's lease) does not keep its workloads from running elsewhere:
a consequence takes nothing from the machine. A hold does, and so does the off switch. Only the deletion of the Node takes more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.isolation import another_machine, may_untaint, taint_beside_mark
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import NODES, PODS, VOLUME_ATTACHMENTS, VOLUMES
from activities.cluster.api.refusals import ObjectConflict, ObjectNotFound, edit, unless_gone
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.claims import CheckedDevices, Identities, claimed_by
from activities.cluster.live.cluster_lease import cluster_lease_problem
from activities.cluster.live.last_look import require_go, require_leave
from activities.cluster.live.plans import live_policies
from activities.cluster.objects.live_node import LiveNode, find_node, readable_mark
from activities.cluster.objects.marks import is_ours, owner, require_pinned, spelled, untainted, with_note, write_mark
from activities.cluster.objects.node_edits import Edit, append_taint, edit_node
from activities.cluster.objects.workload import (
    MAXIMUM_NAMES,
    Attachment,
    Pod,
    a_few_at_once,
    count,
    read_attachments,
    read_pods,
    read_standing,
    volume_of_claim,
    volumes_of,
)
from activities.contracts.target import (
    ActResult,
    Consequence,
    FreeCutRequest,
    FreeDumpingRequest,
    FreeingActivities,
    FreeRequest,
    FreeResult,
    LookRequest,
    LookResult,
    Target,
    UntaintRequest,
    Workload,
    WorkloadRequest,
)
from activities.errors import ErrorType, error_type, failure
from activities.licences import HOW_TO, Levels, Licences
from activities.worker_clock import begin_by, in_time
from policy.checks.fence_policies import NO_POLICIES, PolicySource
from policy.episode.gate import Operation, Seen
from policy.episode.messages import OffProof, Reading, VolumeReading
from policy.episode.node_action import Verb
from policy.episode.proofs import paths_cut, proof_stands, ran_since, writes_only_behind_cut
from policy.fence.kdump import dead_stands, normal_address
from policy.fence.plan import CutStorage, levels_with
from policy.objects.marks import Mark
from policy.objects.nodes import OUR_TAINT
from policy.values.display_text import counted
from policy.values.times import written


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWorkload:
    """The pods of which every volume is cut, and the names of the cut PersistentVolumes among all that are in use."""

    pods: tuple[Pod, ...]
    volumes: frozenset[str]


async def behind_cut(connection: ClusterConnection, pods: Iterable[Pod], storage: CutStorage) -> CutWorkload:
    """Trace every claim of these pods to its volume (live)."""
    pods = tuple(pods)
    of_claim = await a_few_at_once(
        partial(volume_of_claim, connection), sorted(frozenset().union(*(pod.claimed for pod in pods)))
    )
    covered = await a_few_at_once(partial(_is_cut, connection, storage), sorted({name for name in of_claim.values() if name}))
    cut = frozenset(name for name, is_cut in covered.items() if is_cut)
    volumes = {pod.key: [of_claim[pod.metadata.namespace, claim] for claim in pod.claims] for pod in pods}
    behind = [pod for pod in pods if writes_only_behind_cut(volumes[pod.key], pod.spec.volumes.sources, cut)]
    return CutWorkload(pods=tuple(behind), volumes=cut)


async def _is_cut(connection: ClusterConnection, storage: CutStorage, name: str) -> bool:
    found = await unless_gone(connection.get(VOLUMES.path(name)))
    if found is None:
        return False
    spec = found.get("spec") or {}
    csi = spec.get("csi") or {}
    legacy = (spec.get("awsElasticBlockStore") or {}).get("volumeID") or (spec.get("gcePersistentDisk") or {}).get("pdName") or ""
    return storage.covers(
        storage_class=str(spec.get("storageClassName") or ""),
        driver=str(csi.get("driver") or ""),
        handle=str(csi.get("volumeHandle") or legacy),
    )


PARALLEL_DELETES = 10
"""Between two rows of this many the time is looked at again; the API server's fairness takes a row of ten in its stride."""

NOT_OURS = f"no power worker of this deployment has read that lately, of such a device ({HOW_TO})"

SETTLES = 0.6
"""About so many seconds after the taint what is left is told at the latest."""

T = TypeVar("T")


class ClusterFreeing(ClusterActivities, FreeingActivities):
    """Served by the workers of one cluster's queue."""

    def __init__(
        self,
        served: ServedCluster,
        look: Callable[[LookRequest], Awaitable[LookResult]],
        licences: Licences,
        *,
        identities: Identities | None = None,
        checked: CheckedDevices | None = None,
    ) -> None:
        """look: the last look at this cluster. licences: which know what a power worker of ours has read."""
        self._licences = licences
        super().__init__(served)
        self._look = look
        self._identities = identities or Identities(served.connections)
        self._checked = checked

    async def taint_out_of_service(self, request: FreeRequest) -> ActResult:
        """Add the taint and the note in our mark that it is ours, in one patch; then delete the pods that it drives out.

        Kubernetes would delete them for the taint, too, but its pod garbage collector looks every 20 s only. Whatever we are
        refused is left to it, and the attachments to the attach-detach controller.
        """
        target = request.target
        # Before the node is looked at, as in `_delete_workload`.
        pods = await read_pods(self._connection, target.pinned.node)
        found = await find_node(self._connection, target.pinned.node)
        if (limit := await self._require_licence(request, found)) is not None:
            problem = f"only {limit} pods may be freed in a minute, and a taint frees all at once: they are deleted in portions"
            raise failure(ErrorType.NOT_LICENSED, problem)

        def decide(node: LiveNode) -> Edit:
            if node is not found:  # others have written to it since, a hold for example (S20)
                require_leave(Seen(node=node.view, cluster_lease="", policies=NO_POLICIES), Operation.FREE, self._clock())
            mark = self._require_fenced(request, node)
            if any((taint.key, taint.effect) == (OUR_TAINT.key, OUR_TAINT.effect) for taint in node.taints):
                by = "by us" if mark.out_of_service else "by another owner; left unchanged"
                return Edit(detail=f"tainted out-of-service already {by}", mark=mark)
            noted = replace(mark, out_of_service=True)
            operations = (*write_mark(node, noted), *append_taint(node, OUR_TAINT))
            return Edit(detail=f"tainted {spelled(OUR_TAINT)}", operations=operations, mark=noted)

        try:
            tainted = await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after, read=found)
            tainted = self._licences.sealed_result(target, tainted)
        except ObjectNotFound as error:
            message = f"Node/{target.pinned.node} is gone and can't be tainted: delete what is left of its workload"
            raise failure(ErrorType.NOT_FOUND, message) from error
        driven_out = [pod for pod in pods if pod.in_the_way and not pod.stays_under(OUR_TAINT)]
        try:
            detail = f"{counted(await self._in_rows(request, driven_out, self._delete_pod), 'pod')} deleted"
        except ApplicationError as error:
            detail = f"pods are left to Kubernetes' garbage collector: {error.message}"
        return replace(tainted, detail=f"{tainted.detail}; {detail}", left=await self._left_soon(target.pinned.node))

    async def _left_soon(self, node: str) -> Workload:
        """What is left, as soon as nothing is or the moment is over that volumes take to follow their pods."""
        pause = SETTLES / 8
        while True:
            left = await count(self._connection, await read_standing(self._connection, node), OUR_TAINT)
            if (left.pods, left.attachments) == (0, 0) or pause > SETTLES:
                return left
            await asyncio.sleep(pause)
            pause *= 2

    async def delete_workload(self, request: FreeRequest) -> FreeResult:
        """One round: pods first, then the attachments that no pod still there needs. Called again until nothing is left."""
        return await self._delete_workload(request, await self._require_licence(request))

    async def free_while_dumping(self, request: FreeDumpingRequest) -> FreeResult:
        """The same round on another proof."""
        return await self._delete_workload(request, await self._require_dead(request))

    async def _delete_workload(self, request: Consequence, limit: int | None) -> FreeResult:
        name = request.target.pinned.node
        # Listed before the node is looked at: what is then deleted was bound to the node that the look found, or to one
        # that no longer exists, never to a namesake that registered in between. The uids hold the rest.
        pods = await read_pods(self._connection, name)
        await self._require_still_fenced(request)
        chosen = _portion([pod for pod in pods if pod.in_the_way], limit, request.at_most)
        deleted_pods = await self._in_rows(request, chosen, self._delete_pod)

        attachments = [each for each in await read_attachments(self._connection, name) if not each.deleting]
        remaining = [pod for pod in await read_pods(self._connection, name) if not pod.finished]
        used = await volumes_of(self._connection, remaining, attachments)
        free = [each for each in attachments if not used.may_have(each)]
        if free and self._clock() <= request.not_after:
            await self._require_still_fenced(request)
        deleted_attachments = await self._in_rows(request, free, self._delete_attachment)
        return FreeResult(
            deleted_pods=deleted_pods,
            deleted_attachments=deleted_attachments,
            left=replace(await count(self._connection, await read_standing(self._connection, name), OUR_TAINT), per_minute=limit),
        )

    async def delete_node(self, request: FreeRequest) -> ActResult:
        """The Node that was fenced and no namesake: what registers under the name meanwhile has another uid (S9).

        Read before the last look, and deleted only in that version: whatever is written on it meanwhile is looked at.
        """
        await self._require_licence(request)
        name = request.target.pinned.node

        async def once() -> ActResult:
            node = await find_node(self._connection, name)
            if node is None or node.view.deleting:
                return ActResult(changed=False, detail=f"the Node is {'gone' if node is None else 'being deleted'} already")
            mark = self._require_fenced(request, node)
            if mark.paths:
                problem = f"Node/{name} is not deleted: its mark tells which paths are cut ({', '.join(mark.paths)})"
                raise failure(ErrorType.INVALID_CONFIG, problem)
            await self._require_look(request)
            uid, version = node.view.uid, node.view.resource_version
            await self._connection.delete(NODES.path(name), uid=uid, resource_version=version, not_after=request.not_after)
            return ActResult(changed=True, detail=f"deleted Node/{name}, uid {uid}")

        return await edit(f"Node/{name}", once, may_vanish=True)

    async def _require_look(self, request: FreeRequest) -> None:
        """All that a destructive act needs but the need itself: once off is proven, its end is no reason to leave things half
        done."""
        look = LookRequest(target=request.target, need=request.need, holder=request.holder, operation=Operation.DELETE_NODE)
        require_go(await self._look(look), f"Node/{request.target.pinned.node} is not deleted")

    async def free_cut_pods(self, request: FreeCutRequest) -> FreeResult:
        """One round, in the order of `delete_workload`, of what lies behind the cut."""
        name = request.target.pinned.node
        limit = await self._require_cut(request)
        pods = await read_pods(self._connection, name)
        found = await behind_cut(self._connection, [pod for pod in pods if pod.in_the_way], request.storage)
        if found.pods:  # a node that says Ready and has nothing there loses nothing, and is cut off all the same
            await self._require_still_fenced(request)
        deleted_pods = await self._in_rows(request, _portion(found.pods, limit, request.at_most), self._delete_pod)

        remaining = [pod for pod in await read_pods(self._connection, name) if not pod.finished]
        attachments = [each for each in await read_attachments(self._connection, name) if each.volume in found.volumes]
        used = await volumes_of(self._connection, remaining, attachments)
        free = [each for each in attachments if not each.deleting and not used.may_have(each)]
        if free and self._clock() <= request.not_after:
            await self._require_still_fenced(request)
        deleted_attachments = await self._in_rows(request, free, self._delete_attachment)
        there = {pod.metadata.uid: pod for pod in await read_pods(self._connection, name)}
        left = [there[pod.metadata.uid] for pod in found.pods if pod.metadata.uid in there]
        return FreeResult(
            deleted_pods=deleted_pods,
            deleted_attachments=deleted_attachments,
            left=Workload(
                pods=len(left),
                attachments=len(attachments) - deleted_attachments,
                names=tuple(pod.key for pod in left[:MAXIMUM_NAMES]),
                forced=sum(pod.forced for pod in left),
                per_minute=limit,
            ),
        )

    async def read_workload(self, request: WorkloadRequest) -> Workload:
        """Read and count; by the node's name, so that it answers for a Node that is gone as well. What a taint goes on doing
        needs all that was asked for when it was set (S1, S20, S38)."""
        if (under := request.under) is not None:
            await self._require_licence(under)
            await self._require_still_fenced(under)
        return await standing_workload(self._connection, request.target.pinned.node, self._source)

    async def untaint_out_of_service(self, request: UntaintRequest) -> ActResult:
        """Take our taint off, and the notes of it and of off, in one patch. Restoring: it needs no proof. The look comes last, so
        that what it sees is moments old when power comes on."""
        target, look, noted = request.target, request.look, False
        added = self._licences.believed(target, request.added)
        note = look.publication.off if look is not None and look.publication is not None else None

        def decide(node: LiveNode) -> Edit:
            nonlocal noted
            noted = False
            if another_machine(node, target):
                return Edit(detail=f"left alone: it is another machine now ({node.view.provider_id})")
            mark, ours = readable_mark(node.view), request.ours and may_untaint(node, added)
            if mark is None or not is_ours(mark, target):
                return taint_beside_mark(node, mark, ours=ours)
            if not (mark.out_of_service or ours):
                return Edit(detail="no out-of-service taint of ours on it")
            detail = "removed our out-of-service taint" if OUR_TAINT in node.taints else "no out-of-service taint on it"
            noted = note is not None
            return Edit(detail=detail, operations=untainted(node, with_note(mark, note) if note else mark, self._clock()))

        try:
            result = await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after)
        except ObjectNotFound:
            result = ActResult(changed=False, detail="the Node is gone, and the taint with it")
        if look is not None and look.publication is not None and noted:
            look = replace(look, publication=replace(look.publication, off=None))
        return result if look is None else replace(result, look=await self._look(look))

    async def _require_licence(self, request: FreeRequest, read: LiveNode | None = None) -> int | None:
        """What does not depend on the node: which worker we are, the time, the proof, the cluster Lease. Answers how many pods
        may be freed in a minute, None for as many as there are. read: the node, where an edit goes by that very version of it."""
        pinned = request.target.pinned
        self._require_other_node(pinned.node, ", so it can't be off")
        if not proof_stands(request.proof, pinned.levels):
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node} is not proven off: {_spelled(request.proof)}")
        if request.proof.acknowledgement is None:
            self._require_read(request.target, request.proof.readings, pinned.levels)
        if doubt := await self._acknowledgement_problem(request):
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node} is not proven off: {doubt}")
        return await self._require_leave(request, read)

    async def _acknowledgement_problem(self, request: FreeRequest) -> str:
        """Why a person's word for off is not known to be theirs, and of this boot, "" where it is or need not be (S8, S42). Which
        boot was pinned the caller says, and so that is no answer."""
        acknowledgement = request.proof.acknowledgement
        if acknowledgement is None:
            return ""
        node = await find_node(self._connection, request.target.pinned.node)
        view = node.view if node is not None else None
        if (ran := ran_since(view, acknowledgement.at)) or not self._served.only_verified:
            return ran
        return self._licences.command_problem(request.target, view, acknowledgement.sealed, Verb.ACK_OFF)

    async def _require_cut(self, request: FreeCutRequest) -> int | None:
        """The same for what lies behind cut paths."""
        pinned = request.target.pinned
        self._require_other_node(pinned.node, " and frees nothing of it itself")
        if not paths_cut(request.proofs, pinned.endpoints):
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node}: no path of it is proven cut")
        for proof in request.proofs:
            self._require_read(request.target, (*proof.readings, *proof.volumes))
        available = {each.volume for proof in request.proofs for each in proof.volumes}
        ports = any(proof.readings for proof in request.proofs)  # what lies behind a port may be named by its handle, too
        if unproven := set(request.storage.handles) - available if available and not ports else set():
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node}: not proven detached: {', '.join(sorted(unproven))}")
        return await self._require_leave(request)

    async def _require_dead(self, request: FreeDumpingRequest) -> int | None:
        """The same for a node that writes its crash dump."""
        pinned, proof = request.target.pinned, request.proof
        self._require_other_node(pinned.node, ", so its kernel can't be dead")
        if not dead_stands(proof, not_ready_since=pinned.not_ready_since, addresses=pinned.addresses):
            raise failure(
                ErrorType.NOT_PROVEN, f"Node/{pinned.node}: no message of its own says that its kernel is dead: {proof}"
            )
        if not self._licences.vouches_for(proof, self._clock()):
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node}: {proof}: {NOT_OURS}")
        if other := await self._identities.at_address(pinned.node, proof.address):
            detail = f"Node/{other} shows the address {proof.address}, too: which node's kernel is dead is not known (S39)"
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node}: {detail}")
        return await self._require_leave(request)

    def _require_read(self, target: Target, readings: Iterable[Reading | VolumeReading], levels: Levels = ()) -> None:
        """What a caller says that devices have said is hearsay: each client of Temporal can schedule activities (S1, S42).

        levels: of power, that they are to prove; none: a path. A switch port that says off says nothing of power, nor does one
        supply of two speak for the machine (S4).
        """
        for reading in readings:
            said = reading.endpoint if isinstance(reading, Reading) else reading.volume
            if not self._licences.has_read(target, reading, self._clock(), levels_with(said, levels)):
                raise failure(ErrorType.NOT_PROVEN, f"Node/{target.pinned.node}: {said} said {reading.state.value}: {NOT_OURS}")

    async def _require_leave(self, request: Consequence, read: LiveNode | None = None) -> int | None:
        self._require_time(request)
        # A Lease that lapsed for a moment must not end an episode with a node that is off. What is left to do then waits for the
        # switch, and for a person.
        problem = await cluster_lease_problem(self._connection, request.holder, self._clock())
        node = read or await find_node(self._connection, request.target.pinned.node)
        policies = await live_policies(self._connection, self._source)
        contested = await self._identities.contested(node.view) if node is not None else ""
        by_devices = not isinstance(request, FreeDumpingRequest)
        by_devices = by_devices and not (isinstance(request, FreeRequest) and request.proof.acknowledgement is not None)
        claim = await claimed_by(self._served, request.target, self._identities, self._checked) if by_devices else None
        seen = Seen(
            node=node.view if node is not None else None,
            contested=contested or (claim.sentence if claim is not None else ""),
            cluster_lease=problem,
            policies=policies,
        )
        require_leave(seen, Operation.FREE, self._clock())
        return policies.pods_per_minute

    def _require_time(self, request: Consequence) -> None:
        in_time(request.not_after, self._clock(), f"freeing Node/{request.target.pinned.node}")

    async def _require_still_fenced(self, request: Consequence) -> None:
        """The same for acts on other objects than the Node; a Node that is gone is as far down as can be, if its machine is."""
        node = await find_node(self._connection, request.target.pinned.node)
        if node is not None:
            self._require_fenced(request, node)
            return
        if isinstance(request, FreeDumpingRequest):
            name = request.target.pinned.node
            raise failure(ErrorType.NOT_PROVEN, f"Node/{name} is gone: whether its machine has booted can't be seen")
        self._require_time(request)

    def _require_fenced(self, request: Consequence, node: LiveNode) -> Mark:
        """The live Node is the pinned one, down since it was fenced, and ours. Answers our mark on it."""
        pinned = request.target.pinned
        self._require_time(request)
        require_pinned(node, request.target)
        if node.view.boot_id != pinned.boot_id:
            booted = f"boot id {node.view.boot_id!r}, pinned was {pinned.boot_id!r}"
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node} has booted since it was pinned: {booted}")
        if node.view.ready:
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node} says Ready, so it is not off")
        if isinstance(request, FreeDumpingRequest) and request.proof.address not in map(normal_address, node.addresses):
            raise failure(ErrorType.NOT_PROVEN, f"Node/{pinned.node} no longer has the address {request.proof.address}")
        mark = readable_mark(node.view)
        if mark is None or not is_ours(mark, request.target):
            raise failure(ErrorType.VETOED, f"Node/{pinned.node} is held by {owner(mark)}, not by this episode")
        return mark

    async def _in_rows(self, request: Consequence, items: Sequence[T], delete: Callable[[T, datetime], Awaitable[bool]]) -> int:
        """Delete row by row while there is time. A refusal is raised unless something got done: the next round meets it again."""
        deleted, refusals = 0, list[ApplicationError]()
        for start in range(0, len(items), PARALLEL_DELETES):
            if self._clock() > (until := begin_by(request.not_after)):
                break
            row = [delete(item, until) for item in items[start : start + PARALLEL_DELETES]]
            for outcome in await asyncio.gather(*row, return_exceptions=True):
                if isinstance(outcome, ApplicationError):
                    refusals.append(outcome)
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    deleted += outcome
        if refusals and not deleted:
            raise refusals[0]
        for refusal in refusals:
            activity.logger.warning("freeing %s: %s", request.target.pinned.node, refusal.message)
        return deleted

    async def _delete_pod(self, pod: Pod, until: datetime) -> bool:
        metadata = pod.metadata
        return await self._delete(PODS.path(metadata.name, namespace=metadata.namespace), metadata.uid, until, grace_seconds=0)

    async def _delete_attachment(self, attachment: Attachment, until: datetime) -> bool:
        return await self._delete(VOLUME_ATTACHMENTS.path(attachment.metadata.name), attachment.metadata.uid, until)

    async def _delete(self, path: str, uid: str, until: datetime, *, grace_seconds: int | None = None) -> bool:
        """False where that very object is gone already; one of the same name and another uid is none of ours."""
        try:
            await self._connection.delete(path, uid=uid, grace_seconds=grace_seconds, not_after=until)
        except (ObjectNotFound, ObjectConflict):
            return False
        return True


async def standing_workload(connection: ClusterConnection, node: str, source: PolicySource) -> Workload:
    """What stands against a node of that name, and how many pods of it may be freed in a minute. Policies that can't be used hold
    up the act, and not a reading."""
    try:
        limit = (await live_policies(connection, source)).pods_per_minute
    except ApplicationError as error:
        if error_type(error) is not ErrorType.NOT_LICENSED:
            raise
        limit = None
    return replace(await count(connection, await read_standing(connection, node), OUR_TAINT), per_minute=limit)


def _portion(pods: Sequence[Pod], limit: int | None, at_most: int | None) -> list[Pod]:
    """Those that may go now. What has gone already but for a finalizer is asked again and is no part of it; what was told to stay
    under our taint is not counted (`objects/workload.py`), and so goes last. Before it goes what no kubelet has taken up: who may
    create pods can bind more of those to the node at any time (S41)."""
    if limit is None:
        return list(pods)
    fresh = sorted((pod for pod in pods if not pod.forced), key=lambda pod: (pod.stays_under(OUR_TAINT), not pod.taken_up))
    return [*fresh[: at_most or 0], *(pod for pod in pods if pod.forced)]


def _spelled(proof: OffProof) -> str:
    """What a proof that is not one says, in a line."""
    if proof.acknowledgement is not None:
        return "the acknowledgement lacks who or why"
    if proof.commanded_at is None:
        return "no off command has ended"
    readings = ", ".join(f"{each.endpoint} said {each.state} at {written(each.at)}" for each in proof.readings)
    return f"off was commanded by {written(proof.commanded_at)}, then {readings or 'nothing was read'}"
