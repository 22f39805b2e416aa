"""Find out which volumes of a node have failed: what is said of it, what is attached to it and which pods mount that, all live.

What the words mean is `policy/remediation/failed_volumes.py`; nothing here writes. A volume counts as the node's only by a
VolumeAttachment: what a message names beside that belongs to another node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from heapq import nlargest
from itertools import islice

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import LONGEST_READ, events_on_node
from activities.cluster.api.paths import VOLUME_DETACHMENTS, VOLUMES
from activities.cluster.api.refusals import ObjectNotFound, unless_gone
from activities.cluster.api.served_cluster import ClusterActivities
from activities.cluster.objects.live_machines import find_check
from activities.cluster.objects.live_node import LiveNode, read_node
from activities.cluster.objects.workload import Pod, bound_claim, read_attachments, read_pods
from activities.contracts.remediation import FailedVolumes, FailedVolumesRequest, VolumeActivities
from activities.errors import ErrorType, as_invalid_config, failure
from policy.dialects import parse
from policy.episode.messages import Need, NeedKind
from policy.objects.nodes import READY
from policy.remediation.failed_volumes import (
    EVICTION_TIMEOUT,
    AttachedVolume,
    PodOnNode,
    VolumeMessage,
    find_failure,
    read_volume_template,
)
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef

MOST_MESSAGES, MOST_READ = 10, 100
"""As many are reported, and are read: each is looked through for each volume and pod of the node."""
LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """is_sign: whether a condition of that type and status does; events: reasons of Events that do, and how old they may be."""

    is_sign: Callable[[str, str], bool]
    events: frozenset[str]
    within: timedelta
    eviction_timeout: timedelta


class ClusterFailedVolumes(ClusterActivities, VolumeActivities):
    """Served by the workers of one cluster's queue. `machines`: where Cluster API's objects live, if elsewhere."""

    async def find_volumes(self, request: FailedVolumesRequest) -> FailedVolumes:
        """Words first, then what they may be about."""
        target = request.target
        asked = (
            await self._from_template(request.template) if request.template is not None else await self._from_check(request.need)
        )
        name = target.pinned.node
        try:
            node = await read_node(self._connection, name)
        except ObjectNotFound as error:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{name} is gone") from error
        if node.view.uid != target.pinned.uid:
            detail = f"uid {node.view.uid}, pinned was {target.pinned.uid}"
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{name} is another object now: {detail}")
        messages = [
            *islice(_conditions(node, asked.is_sign), MOST_READ),
            *(await self._events(name, asked) if asked.events else ()),
        ]
        bound, pods = await asyncio.gather(self._attached(name), read_pods(self._connection, name))
        there = [_there(pod, bound) for pod in pods if not pod.finished]
        return FailedVolumes(
            failure=find_failure(messages, list(bound), there),
            eviction_timeout=asked.eviction_timeout,
            messages=tuple(
                VolumeMessage(by=each.by, message=each.message[:LONGEST_MESSAGE]) for each in messages[:MOST_MESSAGES]
            ),
        )

    async def _from_template(self, ref: ObjectRef) -> _Asked:
        if ref.kind != VOLUME_DETACHMENTS.kind or not ref.namespace:
            raise failure(ErrorType.INVALID_CONFIG, f"{ref.key}: expected a {VOLUME_DETACHMENTS.kind} with its namespace")
        try:
            rule = read_volume_template(await self._connection.get(VOLUME_DETACHMENTS.path(ref.name, namespace=ref.namespace)))
        except ObjectNotFound as error:
            raise failure(ErrorType.INVALID_CONFIG, f"{ref.key} does not exist") from error
        except PolicyError as error:
            raise failure(ErrorType.INVALID_CONFIG, str(error)) from error
        named = frozenset(rule.conditions)
        return _Asked(
            is_sign=lambda kind, status: kind in named and (status != "True" if kind == READY else status == "True"),
            events=named,
            within=rule.events_within,
            eviction_timeout=rule.eviction_timeout,
        )

    async def _from_check(self, need: Need) -> _Asked:
        """By the conditions for which the check calls it unhealthy. Who asks without one has to name a template."""
        document = await find_check(self._connections, need) if need.kind is NeedKind.CHECK else None
        if document is None:
            problem = f"no health check says what ails the node: expected one that names a {VOLUME_DETACHMENTS.kind}"
            raise failure(ErrorType.INVALID_CONFIG, problem)
        with as_invalid_config():
            unhealthy = {(each.type, each.status) for each in parse(document).conditions}
        return _Asked(
            is_sign=lambda kind, status: (kind, status) in unhealthy,
            events=frozenset(),
            within=timedelta(0),
            eviction_timeout=EVICTION_TIMEOUT,
        )

    async def _events(self, node: str, asked: _Asked) -> list[VolumeMessage]:
        now, events = self._clock(), await events_on_node(self._connection, node)
        recent = [event for event in events if event.reason in asked.events and abs(now - event.at) <= asked.within]
        newest = nlargest(MOST_READ, recent, key=lambda event: event.at)
        return [VolumeMessage(by=each.reason, message=each.message) for each in newest]

    async def _attached(self, node: str) -> dict[AttachedVolume, tuple[str, str]]:
        """With the claim that each is bound to (S41). Without what a pod's own spec has attached: no claim leads there."""
        names = sorted({each.volume for each in await read_attachments(self._connection, node) if each.volume})
        found = await asyncio.gather(*(unless_gone(self._connection.get(VOLUMES.path(name))) for name in names))
        return {
            AttachedVolume(name=name, handle=_handle(document.get("spec") or {})): bound_claim(document)
            for name, document in zip(names, found, strict=True)
            if document is not None
        }


def _there(pod: Pod, bound: Mapping[AttachedVolume, tuple[str, str]]) -> PodOnNode:
    volumes = tuple(volume.name for volume, claim in bound.items() if claim in pod.claimed)
    return PodOnNode(key=pod.key, uid=pod.metadata.uid, volumes=volumes, stays=pod.belongs_to_node)


def _conditions(node: LiveNode, is_sign: Callable[[str, str], bool]) -> Iterable[VolumeMessage]:
    """What a view leaves out as well: the messages of conditions, which are read only here."""
    for condition in (node.document.get("status") or {}).get("conditions") or ():
        kind = str(condition.get("type") or "")
        if is_sign(kind, str(condition.get("status") or "")):
            yield VolumeMessage(by=kind, message=str(condition.get("message") or "")[:LONGEST_READ])


def _handle(spec: Mapping[str, JsonObject]) -> str:
    """As the cloud calls it. Volumes from before CSI are attached by its drivers as well; Amazon's may say their zone before."""
    amazon = str((spec.get("awsElasticBlockStore") or {}).get("volumeID") or "").rpartition("/")[2]
    google = str((spec.get("gcePersistentDisk") or {}).get("pdName") or "")
    return str((spec.get("csi") or {}).get("volumeHandle") or "") or amazon or google
