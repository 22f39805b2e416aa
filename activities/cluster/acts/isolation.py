"""Cordon and taint a node in an episode's name, and take back exactly what that episode had put on it (S28, S35).

The cordon and the note "this cordon is ours" go in one patch, and so do their removals: no crash can leave a cordon of unknown
origin behind; taints likewise. Evicting its pods is the other section, freeing the workload of a node that is off `freeing.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.clocks import begin_by, in_time
from activities.cluster.api.paths import CLAIMS, DAEMON_SETS, PODS
from activities.cluster.api.refusals import NamespaceEnding, ObjectConflict, ObjectNotFound, unless_gone
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster, require_cluster
from activities.cluster.live.last_look import GrantedPermits, mode_now, require_last_look, require_leave
from activities.cluster.live.leases import cluster_lease_problem
from activities.cluster.live.plans import live_policies
from activities.cluster.objects.live_machines import read_subject
from activities.cluster.objects.live_node import (
    Edit,
    LiveNode,
    append_taint,
    cordon,
    edit_node,
    read_node,
    readable_mark,
    remove_taint,
    remove_taints,
    uncordon,
)
from activities.cluster.objects.marks import (
    claim,
    is_ours,
    owner,
    remove_mark,
    require_held,
    require_pinned,
    spelled,
    still_there,
    untainted,
    write_mark,
)
from activities.cluster.objects.object_reader import reading_once
from activities.cluster.objects.workload import MIRROR_ANNOTATION, Pod, read_attachments, read_pods, volumes_of
from activities.cluster.report.nodefences import EpisodePublisher, NodeFences
from activities.contracts.target import (
    ActResult,
    CordonRequest,
    DrainRequest,
    DrainResult,
    IsolationActivities,
    LookRequest,
    LookResult,
    LookVerdict,
    PathRequest,
    RestoreRequest,
    TaintRequest,
    Target,
)
from activities.errors import ErrorType, error_type, failure
from activities.licences import Licences
from activities.notification_sender import Notify, discard_notice
from policy.checks.verdicts import MACHINE
from policy.episode.drain import DrainClaim, DrainPod, grace_seconds, is_single_writer, plan_drain
from policy.episode.fencing import same_machine
from policy.episode.gate import By, Operation, Seen, begun_as_failed, kept_by, objection
from policy.episode.messages import Kind
from policy.episode.operator_commands import Verb
from policy.fence.config import EFFECTS
from policy.fence.plan import Chosen
from policy.objects.machines import MachineView, may_be_its_node
from policy.objects.marks import Added, Mark, is_marked
from policy.objects.nodes import MARK_LABEL, OUR_TAINT, NodeView
from policy.values.times import moment_of

# One round of a drain: ask, through the eviction API, for the pods of a node to go; disruption budgets have their say.
#
# `policy/episode/drain.py` chooses the pods. A refused eviction is left to the next round and never turned into a delete (S30);
# rounds, pauses and the end of patience are the workflow's. A pod has gone when it is not there any more, or another one has its
# name; one that is terminating has not, and a drain proves nothing about what still runs (S31).
#
# On a node that is not Ready an eviction is a deletion that no kubelet carries out, and it starts the clock by which Kubernetes
# takes the pod's volumes away though the machine may write (S36): before off is proven such pods with attached single-writer
# volumes are withheld. Node, mode, Lease and permit are looked at anew right before each row of requests.

AT_ONCE = 10
"""Between two rows of this many the time is looked at again."""

MAXIMUM_NAMES = 10
MAXIMUM_WORDS = 20
LONGEST_WORDS = 300

FATAL = frozenset({ErrorType.FORBIDDEN, ErrorType.INVALID_CONFIG, ErrorType.NOT_SUPPORTED})
"""What no further round mends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """To one request for an eviction. evicted: it was taken; else why it was not, "" where the pod has gone."""

    evicted: bool
    refusal: str = ""


class Drain(ClusterActivities):
    """Of the nodes of one cluster; it keeps nothing between rounds."""

    def __init__(
        self, served: ServedCluster, permits: GrantedPermits, licences: Licences, *, verified_words: bool = False
    ) -> None:
        """verified_words: as of a `LastLook`."""
        super().__init__(served)
        self._verified_words = verified_words
        self._permits = permits
        self._licences = licences

    async def round(self, request: DrainRequest) -> DrainResult:
        """Look, then ask. Errors of the look: nothing was asked for."""
        name = request.target.pinned.node
        self._require_other_node(name, " and never drains it itself")
        in_time(request.not_after, self._clock(), f"draining Node/{name}")
        # Before the node is looked at: whatever is evicted was bound to the node that the look found, or has another uid.
        pods = {pod.metadata.uid: pod for pod in await read_pods(self._connection, name)}
        mounting = await self._mounting(request.only, pods.values()) if request.only is not None else frozenset[str]()
        if request.only is not None:
            pods = {uid: pod for uid, pod in pods.items() if uid in mounting or uid in request.only.pods}
        plan = plan_drain(await self._described(pods.values()), request.options, self._clock())
        if plan.errors:
            return DrainResult(skipped=plan.skipped, warnings=_some(plan.warnings), errors=_some(plan.errors))
        chosen = [pods[each.uid] for each in plan.evict]
        ready = await self._require_licence(request)
        withheld = [] if ready else await self._held_by_volumes(name, [pod for pod in chosen if not pod.terminating])
        chosen = [pod for pod in chosen if pod not in withheld]
        waiting = [pod for pod in chosen if not pod.terminating]
        answers = await self._ask(request, waiting[: request.at_most], ready=ready)
        gone = {uid for uid, answer in answers.items() if not answer.evicted and not answer.refusal}
        left = [pod for pod in chosen if pod.metadata.uid not in gone]
        return DrainResult(
            evicted=sum(answer.evicted for answer in answers.values()),
            left=len(left),
            skipped=plan.skipped,
            names=tuple(pod.key for pod in left[:MAXIMUM_NAMES]),
            blocked=_some(f"{pods[uid].key}: {answer.refusal}" for uid, answer in answers.items() if answer.refusal),
            withheld=tuple(pod.key for pod in withheld[:MAXIMUM_NAMES]),
            warnings=_some(plan.warnings),
            mounting=_some(pods[uid].key for uid, answer in answers.items() if answer.refusal and uid in mounting),
        )

    async def _mounting(self, only: Chosen, pods: Iterable[Pod]) -> frozenset[str]:
        """The uids of those that mount a chosen volume now: also of one that has come since it was chosen."""
        pods = tuple(pods)
        used = await asyncio.gather(*(volumes_of(self._connection, [pod]) for pod in pods))
        return frozenset(pod.metadata.uid for pod, its in zip(pods, used, strict=True) if its.names.intersection(only.volumes))

    async def _require_licence(self, request: DrainRequest) -> bool:
        """The cluster is ours, the node the pinned one and ours, the permit held, no hold on it, and its mode allows it (S9, S14,
        S20, S38, S52). Whether it is Ready."""
        pinned = request.target.pinned
        problem = await cluster_lease_problem(self._connection, request.holder, self._clock())
        policies = await live_policies(self._connection, self._source)
        try:
            node = await read_node(self._connection, pinned.node)
        except ObjectNotFound as error:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{pinned.node} is gone: there is nothing to drain") from error
        mark = require_held(node, request.target, "it is not drained")
        kept = mark.kind == Kind.PRESERVATION.value and begun_as_failed(node.view)
        permit, (mode, unread) = await asyncio.gather(
            self._permit(request.target, kept=kept),
            mode_now(self._served, self._permits, pinned.node, node.view, None if kept else request.need),
        )
        seen = Seen(node=node.view, cluster_lease=problem, policies=policies, permit=permit, mode=mode, mode_unread=unread)
        by = await self._kept_by(node.view) if kept else self._decided_by(request)
        require_leave(seen, Operation.EVICT, self._clock(), by=by, about=f"Node/{pinned.node} is not drained")
        return node.view.ready

    async def _kept_by(self, node: NodeView) -> By:
        return kept_by(node, (await read_subject(reading_once(self._connections), None, node.name)).machines_of(node))

    def _decided_by(self, request: DrainRequest) -> By:
        """A person, where that counts as in a last look."""
        if (need := request.need) is None or need.kind.automatic:
            return By.PROGRAM
        doubt = self._verified_words and self._licences.command_problem(request.target, need.word, Verb.FENCE, Verb.REMEDIATE)
        return By.PROGRAM if doubt else By.PERSON

    async def _permit(self, target: Target, *, kept: bool) -> str:
        """What is wrong with it, "" for nothing. A preservation needs none: that its machine has failed, and is kept by it, the
        Node itself says. A pause stops it all the same."""
        try:
            if kept:
                return await self._permits.paused(target.cluster)
            overridden = self._licences.overridden(target)
            held, why = await self._permits.holds(target.cluster, target.pinned.node, target.incident, overridden)
        except Exception as error:  # noqa: BLE001 - a scanner that can't be asked has not said yes (S20)
            return f"the permit could not be asked for: {error}"
        return "" if held else why or "the permit is not held"

    # What the filters ask -------------------------------------------------------------------------------------------

    async def _described(self, pods: Iterable[Pod]) -> list[DrainPod]:
        pods = tuple(pods)
        wanted = sorted({(pod.metadata.namespace, name) for pod in pods if (name := _daemon_set(pod)) and not _ended(pod)})
        exist = dict(zip(wanted, await asyncio.gather(*(self._exists(*each) for each in wanted)), strict=True))
        return [
            DrainPod(
                name=pod.key,
                uid=pod.metadata.uid,
                finished=_ended(pod),
                deleting=moment_of(pod.metadata.deletion_timestamp),
                daemon_set=_daemon_set(pod),
                orphaned=not exist.get((pod.metadata.namespace, _daemon_set(pod)), True),
                mirror=MIRROR_ANNOTATION in (pod.metadata.annotations or {}),
                empty_dir=any("emptyDir" in volume for volume in pod.spec.volumes or ()),
                managed=any(owner.controller for owner in pod.metadata.owner_references or ()),
            )
            for pod in pods
        ]

    async def _exists(self, namespace: str, daemon_set: str) -> bool:
        return await unless_gone(self._connection.get(DAEMON_SETS.path(daemon_set, namespace=namespace))) is not None

    async def _held_by_volumes(self, node: str, pods: Sequence[Pod]) -> list[Pod]:
        """Those that may still write alone to a volume from this node (S36)."""
        with_volumes = [pod for pod in pods if pod.claims or pod.has_inline_volume]
        attached = {each.volume for each in await read_attachments(self._connection, node)} if with_volumes else set[str]()
        claims = await asyncio.gather(*(self._claims_of(pod) for pod in with_volumes))
        return [
            pod
            for pod, its in zip(with_volumes, claims, strict=True)
            if is_single_writer(its, attached, running=pod.running, inline_disk=pod.has_inline_volume)
        ]

    async def _claims_of(self, pod: Pod) -> list[DrainClaim | None]:
        paths = [CLAIMS.path(claim, namespace=pod.metadata.namespace) for claim in pod.claims]
        found = await asyncio.gather(*(unless_gone(self._connection.get(path)) for path in paths))
        specs = [None if each is None else each.get("spec") or {} for each in found]
        return [
            None
            if spec is None
            else DrainClaim(volume=str(spec.get("volumeName") or ""), modes=frozenset(spec.get("accessModes") or ()))
            for spec in specs
        ]

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _ask(self, request: DrainRequest, pods: Sequence[Pod], *, ready: bool) -> dict[str, _Answer]:
        """Row by row while there is time and the node is as it was. What no round mends is raised, unless something got done: the
        next one meets it again."""
        answers, fatal = dict[str, _Answer](), list[ApplicationError]()
        for start in range(0, len(pods), AT_ONCE):
            if self._clock() > begin_by(request.not_after) or (start and await self._require_licence(request) is not ready):
                break
            row = pods[start : start + AT_ONCE]
            outcomes = await asyncio.gather(*(self._evict(pod, request) for pod in row), return_exceptions=True)
            for pod, outcome in zip(row, outcomes, strict=True):
                if isinstance(outcome, ApplicationError):
                    fatal.append(outcome)
                    answers[pod.metadata.uid] = _Answer(evicted=False, refusal=outcome.message)
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    answers[pod.metadata.uid] = outcome
        if fatal and not any(answer.evicted for answer in answers.values()):
            raise fatal[0]
        for refusal in fatal:
            activity.logger.warning("draining %s: %s", request.target.pinned.node, refusal.message)
        return answers

    async def _evict(self, pod: Pod, request: DrainRequest) -> _Answer:
        """One request, by uid. A lost answer is looked into by the next round: to ask again for what is going does no harm."""
        metadata = pod.metadata
        delete = {"preconditions": {"uid": metadata.uid}}
        seconds = grace_seconds(request.options, pod.spec.termination_grace_period_seconds)
        grace = {"gracePeriodSeconds": seconds} if seconds is not None else {}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {**delete, **grace},
        }
        path = PODS.path(metadata.name, namespace=metadata.namespace, subresource="eviction")
        try:
            await self._connection.create(path, eviction, not_after=request.not_after)
        except (ObjectNotFound, ObjectConflict):
            return _Answer(evicted=False)  # gone, or another pod has its name
        except NamespaceEnding:
            return _Answer(evicted=False, refusal="its namespace is being terminated, and it with that")
        except ApplicationError as error:
            if error_type(error) in FATAL:
                raise
            return _Answer(evicted=False, refusal=error.message)
        return _Answer(evicted=True)


def _daemon_set(pod: Pod) -> str:
    owners = pod.metadata.owner_references or ()
    return next((owner.name for owner in owners if owner.controller and owner.kind == DAEMON_SETS.kind), "")


def _ended(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in {"Succeeded", "Failed"}


def _some(words: Iterable[str]) -> tuple[str, ...]:
    """As many as a history may carry, and a count of the rest."""
    listed = [each if len(each) <= LONGEST_WORDS else f"{each[:LONGEST_WORDS]}…" for each in words]
    more = len(listed) - MAXIMUM_WORDS
    return (*listed[:MAXIMUM_WORDS], *([f"and {more} more"] if more > 0 else []))


class ClusterIsolation(ClusterActivities, IsolationActivities):
    """Served by the workers of one cluster's queue. fences: where episodes are shown, None for nowhere."""

    def __init__(
        self,
        served: ServedCluster,
        look: Callable[[LookRequest], Awaitable[LookResult]],
        permits: GrantedPermits,
        licences: Licences,
        *,
        fences: NodeFences | None = None,
        notify: Notify = discard_notice,
        verified_words: bool = False,
    ) -> None:
        """look: the last look at this cluster (`live/last_look.py`). licences: which know what we have added. verified_words:
        as of a `LastLook`."""
        super().__init__(served)
        self._licences = licences
        self._look = look
        self._drain = Drain(served, permits, licences, verified_words=verified_words)
        self._publisher = EpisodePublisher(served, fences, notify=notify)

    async def mark_unschedulable(self, request: CordonRequest) -> ActResult:
        """Cordon, unless another owner had."""
        target = request.target
        require_cluster(target.cluster, self._cluster)

        def decide(node: LiveNode) -> Edit:
            now = self._clock()
            found = require_held(node, target, "it is not cordoned")
            if node.view.unschedulable:
                by = "by us" if found.cordoned else "by another owner; left unchanged"
                return Edit(detail=f"cordoned already {by}", mark=found)
            mark = replace(claim(found, target, now), cordoned=True)
            return Edit(detail="cordoned", operations=(*write_mark(node, mark, cordons=True), *cordon()), mark=mark)

        return await self._licensed(request.look, request.not_after, decide)

    async def _licensed(self, request: LookRequest, not_after: datetime | None, decide: Callable[[LiveNode], Edit]) -> ActResult:
        """One edit of the Node, milliseconds after a look that says go (S20)."""
        require_last_look(request, request.target, Operation.CORDON)
        seen = await self._look(request)
        if seen.verdict is not LookVerdict.GO:
            return ActResult(changed=False, detail=seen.reason, look=seen)
        result = await edit_node(self._connection, request.target.pinned.node, decide, not_after=not_after)
        return replace(self._licences.sealed_result(request.target, result), look=seen)

    async def note_path(self, request: PathRequest) -> ActResult:
        """Before a path is cut, and after it was given back. A Node that is gone has no mark to keep."""
        target = request.target
        require_cluster(target.cluster, self._cluster)

        def decide(node: LiveNode) -> Edit:
            if request.cut:
                require_pinned(node, target)
            found = readable_mark(node.view)
            if found is None or not is_ours(found, target):
                if request.cut:
                    raise failure(ErrorType.VETOED, f"Node/{target.pinned.node} is held by {owner(found)}, no path of it is cut")
                return Edit(detail=f"left alone: the node is held by {owner(found)}")
            others = tuple(each for each in found.paths if each != request.endpoint)
            paths = (*others, request.endpoint) if request.cut else others
            return Edit(
                detail=f"paths cut: {', '.join(paths) or 'none'}", operations=write_mark(node, replace(found, paths=paths))
            )

        try:
            return await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after)
        except ObjectNotFound:
            if request.cut:
                raise
            return ActResult(changed=False, detail="the Node is gone, and our mark with it")

    async def taint(self, request: TaintRequest) -> ActResult:
        """The taint and the note that it is ours, in one patch. Of two taints with one key and effect the API takes only one."""
        target, taint = request.target, request.taint
        require_cluster(target.cluster, self._cluster)
        if taint.effect not in EFFECTS:
            raise failure(
                ErrorType.INVALID_CONFIG,
                f"taint {spelled(taint)}: expected the effect {' or '.join(EFFECTS)}; NoExecute deletes pods, for which off"
                " has to be proven first",
            )

        def decide(node: LiveNode) -> Edit:
            now = self._clock()
            found = require_held(node, target, "it is not tainted")
            if any((each.key, each.effect) == (taint.key, taint.effect) for each in node.taints):
                ours = taint in node.taints and spelled(taint) in found.taints
                return Edit(detail=f"tainted already {'by us' if ours else 'by another owner; left unchanged'}", mark=found)
            kept = (each for each in found.taints if each != spelled(taint))
            mark = replace(claim(found, target, now), taints=(*kept, spelled(taint)))
            operations = (*write_mark(node, mark), *append_taint(node, taint))
            return Edit(detail=f"tainted {spelled(taint)}", operations=operations, mark=mark)

        return await self._licensed(request.look, request.not_after, decide)

    async def drain(self, request: DrainRequest) -> DrainResult:
        """See `Drain`."""
        require_cluster(request.target.cluster, self._cluster)
        return await self._drain.round(request)

    async def mark_schedulable(self, request: RestoreRequest) -> ActResult:
        """Remove our cordon, our taint and our mark in one patch; whatever else is on the node stays byte for byte.

        A node that is preserved stays cordoned (S21). Where its Machine can't be read,
        that is not known, and the node stays as it is until it can be.
        """
        target = request.target
        require_cluster(target.cluster, self._cluster)
        added = self._licences.believed(target, request.added)
        machines: tuple[MachineView, ...] = ()
        unread: ApplicationError | None = None
        try:
            if not target.pinned.node.startswith(MACHINE):
                machines = (await read_subject(self._connections, None, target.pinned.node)).machines
        except ApplicationError as error:
            unread = error

        def decide(node: LiveNode) -> Edit:
            now = self._clock()
            if another_machine(node, target):
                return Edit(detail=f"left alone: it is another machine now ({node.view.provider_id})")
            tainted = request.tainted and may_untaint(node, added)
            found = readable_mark(node.view)
            # With a mark that we have taken away, or a person, its label went; not with one that a kubelet has changed, who can't
            # have us leave what we have added, nor take away what we have not (S28, S41).
            changed = found is None and MARK_LABEL in node.view.labels
            if not changed and (found is None or not is_ours(found, target)):
                return taint_beside_mark(node, found, ours=tainted)
            found = found or claim(None, target, now, still_there(node, added))
            ours = replace(found, out_of_service=found.out_of_service or tainted)
            ours = replace(ours, cordoned=False) if request.keep_cordon else ours
            if unread is not None and ours.cordoned and node.view.unschedulable:
                raise unread
            return _way_back(node, ours, machines, now)

        try:
            result = await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after)
        except ObjectNotFound:
            result = ActResult(changed=False, detail="the Node is gone, and our marks with it")
        await self._publisher.publish_beside(target, request.publication)
        return result


def _keep_for_paths(node: LiveNode, mark: Mark, now: datetime) -> Edit:
    kept = replace(mark, off_proven="")
    operations = untainted(node, kept, now) if mark.out_of_service else write_mark(node, kept)
    return Edit(detail=f"our mark and our cordon stay: cut are {', '.join(mark.paths)}", operations=operations)


def another_machine(node: LiveNode, target: Target) -> bool:
    """Whether restoring must keep off this node: a restoring act compares the machine, not the Node object (S9)."""
    return node.view.uid != target.pinned.uid and not same_machine(target.pinned, node.view)


def may_untaint(node: LiveNode, added: Added) -> bool:
    """Whether the out-of-service taint may be called ours without our mark: where that is sealed, or none stands (yet)."""
    return added.out_of_service or OUR_TAINT not in node.taints


def taint_beside_mark(node: LiveNode, mark: Mark | None, *, ours: bool) -> Edit:
    """Of a node that does not carry our mark (any more) only the out-of-service taint is ours to remove, where the episode knows
    that it has set it: it must not stand on a machine that is switched on (S32). Raises Vetoed where the mark of another episode
    says that the taint is its own."""
    if not ours or OUR_TAINT not in node.taints:
        return Edit(detail=f"left alone: the node is held by {owner(mark)}")
    if mark is not None and mark.out_of_service:
        problem = f"Node/{node.view.name}: {owner(mark)} calls the out-of-service taint its own, so we can't remove it"
        raise failure(ErrorType.VETOED, problem)
    detail = f"removed our out-of-service taint; the node is held by {owner(mark)}"
    return Edit(detail=detail, operations=remove_taint(node, OUR_TAINT))


def _way_back(node: LiveNode, mark: Mark, machines: tuple[MachineView, ...], now: datetime) -> Edit:
    if mark.paths:
        # The next holder must know of them, and nothing is scheduled onto a node without its storage (S35).
        return _keep_for_paths(node, mark, now)
    removed = ["our mark"] if is_marked(node.view) else []
    operations = remove_mark(node)
    seen = Seen(node=node.view, machines=tuple(each for each in machines if may_be_its_node(each, node.view)))
    left = ""
    if mark.cordoned and node.view.unschedulable:
        if (preserved := objection(seen, Operation.UNCORDON, By.PERSON, now)) is not None:
            # From here on the cordon belongs to what preserves the node, as the mark that called it ours goes (S21).
            left = f"; left cordoned: {preserved.words}"
        else:
            removed.append("our cordon")
            operations += uncordon()
    noted = [
        taint for taint in node.taints if spelled(taint) in mark.taints and taint.effect in EFFECTS
    ]  # NoExecute is no method's
    ours = [*noted, *([OUR_TAINT] if mark.out_of_service and OUR_TAINT in node.taints else [])]
    removed += ["our out-of-service taint" if taint == OUR_TAINT else f"our taint {spelled(taint)}" for taint in ours]
    operations += remove_taints(node, ours)
    return Edit(detail=f"removed {', '.join(removed) or 'nothing'}{left}", operations=operations)
