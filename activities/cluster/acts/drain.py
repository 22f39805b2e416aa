"""One round of a drain: ask, through the eviction API, for the pods of a node to go; disruption budgets have their say.

`policy/episode/drain.py` chooses the pods. A refused eviction is left to the next round and never turned into a delete (S30);
rounds, pauses and the end of patience are the workflow's. A pod has gone when it is not there any more, or another one has its
name; one that is terminating has not, and a drain proves nothing about what still runs (S31).

On a node that is not Ready an eviction is a deletion that no kubelet carries out, and it starts the clock by which Kubernetes
takes the pod's volumes away though the machine may write (S36): before off is proven such pods with attached single-writer
volumes are withheld. Before the first row comes a last look, since a round may be asked for by any client (S42); node, mode,
Lease and permit are looked at anew right before each further one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.paths import CLAIMS, DAEMON_SETS, PODS, Resource
from activities.cluster.api.refusals import NamespaceEnding, ObjectConflict, ObjectNotFound, unless_gone
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.cluster_lease import cluster_lease_problem
from activities.cluster.live.last_look import GrantedPermits, mode_now, require_go, require_leave
from activities.cluster.live.plans import live_policies
from activities.cluster.objects.live_machines import read_subject
from activities.cluster.objects.live_node import read_node
from activities.cluster.objects.marks import require_held
from activities.cluster.objects.object_reader import reading_once
from activities.cluster.objects.workload import (
    MIRROR_ANNOTATION,
    TOO_MANY,
    Pod,
    a_few_at_once,
    claim_of,
    read_attachments,
    read_pods,
)
from activities.contracts.target import DrainRequest, DrainResult, LookRequest, LookResult, Target
from activities.errors import ErrorType, error_type, failure
from activities.licences import Licences
from activities.worker_clock import begin_by, in_time
from policy.episode.drain import DrainClaim, DrainPod, grace_seconds, is_single_writer, plan_drain
from policy.episode.gate import By, Operation, Seen, begun_as_failed, kept_by
from policy.episode.messages import Kind, NeedKind
from policy.episode.node_action import REPAIRS
from policy.fence.plan import Chosen
from policy.objects.nodes import NodeView
from policy.values.times import moment_of

AT_ONCE = 10
"""Between two rows of this many the time is looked at again."""

MAXIMUM_NAMES = 10
MOST_LINES = 20
LONGEST_LINE = 300

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
        self,
        served: ServedCluster,
        look: Callable[[LookRequest], Awaitable[LookResult]],
        permits: GrantedPermits,
        licences: Licences,
    ) -> None:
        """look: the last look at this cluster."""
        super().__init__(served)
        self._look = look
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
        ready = await self._require_licence(request, first=True)
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
        claims = await asyncio.gather(*(claim_of(self._connection, volume) for volume in only.volumes))
        return frozenset(pod.metadata.uid for pod in pods if pod.claimed.intersection(claims))

    async def _require_licence(self, request: DrainRequest, *, first: bool = False) -> bool:
        """The cluster is ours, the node the pinned one and ours, the permit held, no hold on it, and its mode allows it (S9, S14,
        S20, S38, S52). first: also all else that a last look asks, the need before all; a machine that is kept needs none but to
        be kept. Whether it is Ready."""
        pinned = request.target.pinned
        problem = await cluster_lease_problem(self._connection, request.holder, self._clock())
        policies = await live_policies(self._connection, self._source)
        try:
            node = await read_node(self._connection, pinned.node)
        except ObjectNotFound as error:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{pinned.node} is gone: there is nothing to drain") from error
        mark = require_held(node, request.target, "it is not drained")
        kept = mark.kind == Kind.PRESERVATION.value and begun_as_failed(node.view)
        if first and not kept:
            await self._require_need(request)
        permit, (mode, unread) = await asyncio.gather(
            self._permit(request.target, node.view, kept=kept),
            mode_now(self._served, self._permits, pinned.node, None if kept else request.need),
        )
        seen = Seen(node=node.view, cluster_lease=problem, policies=policies, permit=permit, mode=mode, mode_unread=unread)
        if kept:
            machines = (await read_subject(reading_once(self._connections), None, pinned.node)).machines_of(node.view)
            by = kept_by(node.view, machines)
        else:
            by = self._decided_by(request, node.view)
        require_leave(seen, Operation.EVICT, self._clock(), by=by, about=f"Node/{pinned.node} is not drained")
        return node.view.ready

    async def _require_need(self, request: DrainRequest) -> None:
        """That the node is sick, or that a person wants it drained, only its need says, and that is read anew (S20)."""
        name = request.target.pinned.node
        if request.need is None:
            raise failure(ErrorType.NOT_LICENSED, f"Node/{name} is not drained: nothing says why it should be")
        look = LookRequest(target=request.target, need=request.need, holder=request.holder, operation=Operation.DRAIN)
        require_go(await self._look(look), f"Node/{name} is not drained")

    def _decided_by(self, request: DrainRequest, node: NodeView) -> By:
        """A person, where that counts as in a last look."""
        if (need := request.need) is None or need.kind is not NeedKind.PERSON:
            return By.PROGRAM
        doubt = self._served.only_verified and self._licences.command_problem(request.target, node, need.command, *REPAIRS)
        return By.PROGRAM if doubt else By.PERSON

    async def _permit(self, target: Target, node: NodeView, *, kept: bool) -> str:
        """What is wrong with it, "" for nothing. A preservation needs none: that its machine has failed, and is kept by it, the
        Node itself says. A pause stops it all the same."""
        try:
            if kept:
                return await self._permits.paused(target.cluster)
            overridden = self._licences.overridden(target, node)
            held, why = await self._permits.holds(target.cluster, target.pinned.node, target.incident, overridden)
        except Exception as error:  # noqa: BLE001 - a scanner that can't be asked has not said yes (S20)
            return f"the permit could not be asked for: {error}"
        return "" if held else why or "the permit is not held"

    # What the filters ask -------------------------------------------------------------------------------------------

    async def _described(self, pods: Iterable[Pod]) -> list[DrainPod]:
        pods = tuple(pods)
        wanted = {(pod.metadata.namespace, name) for pod in pods if (name := _daemon_set(pod)) and not _ended(pod)}
        found = await a_few_at_once(partial(self._find, DAEMON_SETS), sorted(wanted))
        gone = {each for each, daemon_set in found.items() if daemon_set is None}
        return [
            DrainPod(
                name=pod.key,
                uid=pod.metadata.uid,
                finished=_ended(pod),
                deleting=moment_of(pod.metadata.deletion_timestamp),
                daemon_set=_daemon_set(pod),
                orphaned=(pod.metadata.namespace, _daemon_set(pod)) in gone,
                mirror=MIRROR_ANNOTATION in (pod.metadata.annotations or {}),
                empty_dir="emptyDir" in pod.spec.volumes.sources,
                managed=any(owner.controller for owner in pod.metadata.owner_references or ()),
            )
            for pod in pods
        ]

    async def _held_by_volumes(self, node: str, pods: Sequence[Pod]) -> list[Pod]:
        """Those that may still write alone to a volume from this node (S36)."""
        with_volumes = [pod for pod in pods if pod.claims or pod.spec.volumes.disks]
        attached = {each.volume for each in await read_attachments(self._connection, node)} if with_volumes else set[str]()
        claims = await a_few_at_once(self._claim, sorted(frozenset().union(*(pod.claimed for pod in with_volumes))))
        return [
            pod
            for pod in with_volumes
            if TOO_MANY in pod.spec.volumes.sources
            or is_single_writer(
                [claims[place] for place in pod.claimed],
                attached,
                running=pod.running,
                inline_disk=bool(pod.spec.volumes.disks),
            )
        ]

    async def _claim(self, place: tuple[str, str]) -> DrainClaim | None:
        found = await self._find(CLAIMS, place)
        if found is None:
            return None
        spec = found.get("spec") or {}
        return DrainClaim(volume=str(spec.get("volumeName") or ""), modes=frozenset(spec.get("accessModes") or ()))

    async def _find(self, resource: Resource, place: tuple[str, str]) -> JsonObject | None:
        """Of that namespace and name; None where there is none."""
        namespace, name = place
        return await unless_gone(self._connection.get(resource.path(name, namespace=namespace)))

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _ask(self, request: DrainRequest, pods: Sequence[Pod], *, ready: bool) -> dict[str, _Answer]:
        """Row by row while there is time and the node is as it was. What no round mends is raised, unless something got done: the
        next one meets it again."""
        answers, fatal = dict[str, _Answer](), list[ApplicationError]()
        for start in range(0, len(pods), AT_ONCE):
            if self._clock() > begin_by(request.not_after):
                break
            # Of a node that is not Ready the volumes were read after the look, which may take seconds (S20).
            if (start or not ready) and await self._require_licence(request) is not ready:
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
    listed = [each if len(each) <= LONGEST_LINE else f"{each[:LONGEST_LINE]}…" for each in words]
    more = len(listed) - MOST_LINES
    return (*listed[:MOST_LINES], *([f"and {more} more"] if more > 0 else []))
