"""What still stands against a node: its pods and its volume attachments, read live, and which of them count.

A pod counts if it is in the way of running elsewhere. Mirror pods and DaemonSet pods belong to the node; finished pods run
nowhere; pods that tolerate the out-of-service taint for ever are meant to stay. An attachment counts unless a pod that stays
uses its volume. Deleting what counts is `acts/freeing.py`; nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import CLAIMS, PODS, VOLUME_ATTACHMENTS, VOLUMES
from activities.cluster.api.refusals import unless_gone
from activities.contracts.target import Workload
from activities.errors import ErrorType, failure
from policy.objects.nodes import OUT_OF_SERVICE_TAINT, Taint
from policy.scan.data_at_risk import TAINTS
from policy.values.fields import mapping, mappings
from policy.values.object_refs import LONGEST_NAME
from policy.values.times import later, moment_of

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
TOLERATED = frozenset({"", OUT_OF_SERVICE_TAINT, *TAINTS})
"""Keys of the tolerations that are asked for."""
LONGEST_DISK, TOO_MANY = 2048, "too many volumes"
MAXIMUM_NAMES = 10
MAXIMUM_WORKLOADS = 20
READ_AT_ONCE = 50
RANDOMLY_NAMED = frozenset({"ReplicaSet", "ReplicationController", "Job"})
"""Owners that give their pods another name each time."""

INLINE_DISKS = {
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskURI",
    "cinder": "volumeID",
    "gcePersistentDisk": "pdName",
    "portworxVolume": "volumeID",
    "rbd": "image",
    "vsphereVolume": "volumePath",
}
"""Sources by which a pod names a disk in its own spec, each with the field that does; CSI migration makes its handle of that."""


MOST_VOLUMES = 256
"""Claims, and disks, of a pod that are looked at: no machine has room for as many. One with more can't be traced."""


class _Owner(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None

    def __post_init__(self) -> None:
        self.name = self.name[:LONGEST_NAME]


class _Metadata(msgspec.Struct, rename="camel"):
    """owner_references: the one that controls it; of annotations what is read."""

    name: str
    uid: str
    namespace: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        self.annotations = {MIRROR_ANNOTATION: ""} if MIRROR_ANNOTATION in (self.annotations or {}) else None
        self.owner_references = list(islice((each for each in self.owner_references or () if each.controller), 1))


class _Toleration(msgspec.Struct, rename="camel", frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def always_tolerates(self, taint: Taint) -> bool:
        """The rule of core/v1: an empty effect is any effect, an empty key with Exists is any key."""
        if self.toleration_seconds is not None or self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.operator in ("", "Equal") and self.key == taint.key and self.value == taint.value


class PodVolumes:
    """What a pod's spec says of its volumes, each thing once. sources: which kinds there are. claims: names of
    PersistentVolumeClaims; ephemeral: of the volumes that get one of their own. disks: see `INLINE_DISKS`."""

    __slots__ = ("claims", "disks", "ephemeral", "sources")

    def __init__(self, volumes: Iterable[Mapping[str, Any]] = ()) -> None:
        sources, claims, ephemeral, disks = (dict[str, None]() for _ in range(4))
        for volume in volumes:
            for source in volume.keys() - {"name"}:
                says = mapping(volume[source])
                sources[source[:LONGEST_NAME]] = None
                if source == "persistentVolumeClaim":
                    claims[str(says.get("claimName"))[:LONGEST_NAME]] = None
                elif source == "ephemeral":
                    ephemeral[str(volume.get("name"))[:LONGEST_NAME]] = None
                elif source in INLINE_DISKS:
                    disks[str(says.get(INLINE_DISKS[source]))[:LONGEST_DISK]] = None
        if max(len(claims) + len(ephemeral), len(disks), len(sources)) > MOST_VOLUMES:
            sources = dict.fromkeys([TOO_MANY, *islice(sources, MOST_VOLUMES)])
        self.sources = tuple(sources)
        self.claims, self.ephemeral = tuple(islice(claims, MOST_VOLUMES)), tuple(islice(ephemeral, MOST_VOLUMES))
        self.disks = frozenset(islice(disks, MOST_VOLUMES))

    @classmethod
    def read(cls, _wanted: type, found: Any) -> PodVolumes:
        """As a decoder asks for it."""
        return cls(mappings(found))


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    termination_grace_period_seconds: int | None = None
    tolerations: list[_Toleration] | None = None
    volumes: PodVolumes = msgspec.field(default_factory=PodVolumes)

    def __post_init__(self) -> None:
        known = dict.fromkeys(each for each in self.tolerations or () if each.key in TOLERATED)
        self.tolerations = list(islice(known, MOST_VOLUMES))


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: str | None = None


class Pod(msgspec.Struct):
    """A pod, as far as freeing needs it. A person who may create pods may bind hundreds to a node, each of a megabyte, and JSON
    takes ten times as much once it is decoded: nothing else of one is held (S41)."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus | None = None

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def workload(self) -> str:
        """`namespace/name`, or `namespace/Kind/name` of the owner where the pod's own name is made up anew each time."""
        owner = next((each for each in self.metadata.owner_references or () if each.controller), None)
        if owner is not None and owner.kind in RANDOMLY_NAMED:
            return f"{self.metadata.namespace}/{owner.kind}/{owner.name}"
        return self.key

    @property
    def belongs_to_node(self) -> bool:
        """Whether it is a mirror or DaemonSet pod: never touched by freeing (S29)."""
        mirrored = MIRROR_ANNOTATION in (self.metadata.annotations or {})
        return mirrored or any(
            owner.controller and owner.kind == "DaemonSet" and owner.api_version.startswith("apps/")
            for owner in self.metadata.owner_references or ()
        )

    @property
    def terminating(self) -> bool:
        """Whether its deletion has been asked for; on a node that is off it stays so until it is forced (S31)."""
        return self.metadata.deletion_timestamp is not None

    @property
    def forced(self) -> bool:
        """Whether it was asked to go at once: all that keeps it is a finalizer."""
        return self.terminating and self.metadata.deletion_grace_period_seconds == 0

    @property
    def deletion_requested(self) -> datetime | None:
        """When its deletion was asked for: the API says when its grace is over. None where it was not."""
        ends = moment_of(self.metadata.deletion_timestamp)
        return ends and later(ends, timedelta(seconds=-max(self.metadata.deletion_grace_period_seconds or 0, 0)))

    @property
    def finished(self) -> bool:
        """Whether it has run to its end and no owner waits for it to vanish, as a StatefulSet does once it is being deleted."""
        return not self.terminating and self.status is not None and self.status.phase in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        """Whether its containers were started, as its kubelet has said last."""
        return self.status is not None and self.status.phase == "Running"

    @property
    def taken_up(self) -> bool:
        """Whether a kubelet has begun with it, as far as it has said. One that was bound to a node that is silent was not."""
        return self.status is not None and (self.status.phase not in {"", "Pending"} or self.status.start_time is not None)

    @property
    def in_the_way(self) -> bool:
        """Whether it is to be gone before its like can run elsewhere."""
        return not self.belongs_to_node and not self.finished

    def stays_under(self, taint: Taint) -> bool:
        """Whether it may stay on a node with that taint, and its deletion was not asked for."""
        return not self.terminating and any(each.always_tolerates(taint) for each in self.spec.tolerations or ())

    @property
    def claims(self) -> list[str]:
        """Names of the PersistentVolumeClaims it mounts, those of generic ephemeral volumes included."""
        volumes = self.spec.volumes
        return [*volumes.claims, *(f"{self.metadata.name}-{name}" for name in volumes.ephemeral)]

    @property
    def claimed(self) -> frozenset[tuple[str, str]]:
        """The same with their namespace."""
        return frozenset((self.metadata.namespace, claim) for claim in self.claims)


class _Csi(msgspec.Struct, rename="camel"):
    volume_handle: str = ""


class _InlineVolume(msgspec.Struct, rename="camel"):
    csi: _Csi | None = None


class _AttachmentSource(msgspec.Struct, rename="camel"):
    persistent_volume_name: str | None = None
    inline_volume_spec: _InlineVolume | None = None


class _AttachmentSpec(msgspec.Struct, rename="camel"):
    node_name: str
    source: _AttachmentSource


class Attachment(msgspec.Struct):
    """A VolumeAttachment, as far as freeing needs it. One without a PersistentVolume is of a volume inline in a pod."""

    metadata: _Metadata
    spec: _AttachmentSpec

    @property
    def volume(self) -> str:
        """Name of the PersistentVolume, "" for an inline volume."""
        return self.spec.source.persistent_volume_name or ""

    @property
    def handle(self) -> str:
        """What its cloud calls an inline volume, "" where that is not said."""
        inline = self.spec.source.inline_volume_spec
        return inline.csi.volume_handle if inline is not None and inline.csi is not None else ""

    @property
    def deleting(self) -> bool:
        """Whether its removal has been asked for; the attacher detaches and then lets it go."""
        return self.metadata.deletion_timestamp is not None


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class _List(msgspec.Struct, Generic[Item]):
    items: list[Item] | None = None


_pods = msgspec.json.Decoder(_List[Pod], dec_hook=PodVolumes.read)
_attachments = msgspec.json.Decoder(_List[Attachment])


def _items(decoder: msgspec.json.Decoder[_List[Item]], body: bytes) -> list[Item]:
    try:
        return decoder.decode(body).items or []
    except msgspec.DecodeError as error:
        raise failure(ErrorType.TRANSIENT, f"the API server's list cannot be read: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorkload:
    """Everything bound to the node at one moment."""

    pods: tuple[Pod, ...]
    attachments: tuple[Attachment, ...]


async def read_pods(connection: ClusterConnection, node: str, *, cached: bool = False) -> tuple[Pod, ...]:
    """The pods bound to a node of that name, whether or not the Node exists.

    cached: as the API server remembers them, which may be a moment old, and costs it no walk over all pods of the cluster.
    """
    found: list[Pod] = []
    query = {"fieldSelector": f"spec.nodeName={node}"} | ({"resourceVersion": "0"} if cached else {})
    async for page in connection.list_pages(PODS.path(), query=query):
        found += _items(_pods, page.body)
    return tuple(found)


async def read_attachments(connection: ClusterConnection, node: str) -> tuple[Attachment, ...]:
    """The attachments to a node of that name. The API has no selector for them, so all are read, a page at a time."""
    found: list[Attachment] = []
    async for page in connection.list_pages(VOLUME_ATTACHMENTS.path()):
        found += [each for each in _items(_attachments, page.body) if each.spec.node_name == node]
    return tuple(found)


async def read_attachment(connection: ClusterConnection, name: str) -> Attachment | None:
    """One of them, None where it is gone; as the API server remembers it. A list, for which the right is there."""
    query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": "0"}
    pages = connection.list_pages(VOLUME_ATTACHMENTS.path(), query=query)
    found = [each async for page in pages for each in _items(_attachments, page.body)]
    return found[0] if found else None


async def read_standing(connection: ClusterConnection, node: str) -> NodeWorkload:
    pods, attachments = await asyncio.gather(read_pods(connection, node), read_attachments(connection, node))
    return NodeWorkload(pods=pods, attachments=attachments)


async def count(connection: ClusterConnection, standing: NodeWorkload, taint: Taint) -> Workload:
    """What of it is in the way. An attachment that is not known to be a staying pod's counts: a doubt is never "nothing left"."""
    counted = [pod for pod in standing.pods if pod.in_the_way and not pod.stays_under(taint)]
    staying = [pod for pod in standing.pods if not pod.finished and (pod.belongs_to_node or pod.stays_under(taint))]
    used = await volumes_of(connection, staying, standing.attachments)
    attachments = [each for each in standing.attachments if not used.has(each)]
    names = [pod.key for pod in counted] + [f"VolumeAttachment/{each.metadata.name}" for each in attachments]
    workloads = sorted({pod.workload for pod in counted})
    return Workload(
        pods=len(counted),
        attachments=len(attachments),
        names=tuple(names[:MAXIMUM_NAMES]),
        workloads=tuple(workloads[:MAXIMUM_WORKLOADS]),
        forced=sum(pod.forced for pod in counted),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedVolumes:
    """The attached PersistentVolumes that some pods use. disks: those that they name in their own spec. unknown:
    PersistentVolumes that are gone themselves, so that they may be any claim's.

    Of both there is none where no kubelet has taken up such a pod: a person who may create pods may bind one to a node (S41).
    """

    names: frozenset[str] = frozenset()
    disks: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    def has(self, attachment: Attachment) -> bool:
        """One that does not say of which disk it is may be of any."""
        if attachment.volume:
            return attachment.volume in self.names
        return any(_same_disk(each, attachment.handle) for each in self.disks)

    def may_have(self, attachment: Attachment) -> bool:
        return self.has(attachment) or attachment.volume in self.unknown


def _same_disk(one: str, handle: str) -> bool:
    """Pods name Amazon's also with their zone before, and handles Google's with all of their path."""
    return handle in {"", one} or handle.endswith(f"/{one}") or one.endswith(f"/{handle}")


async def volumes_of(connection: ClusterConnection, pods: Iterable[Pod], attachments: Iterable[Attachment]) -> UsedVolumes:
    """Which of these volumes the pods use (live): those that are bound to a claim of theirs, there or gone (S41)."""
    pods = tuple(pods)
    claims = frozenset[tuple[str, str]]().union(*(pod.claimed for pod in pods))
    names = sorted({each.volume for each in attachments if each.volume}) if claims else []
    bound = await a_few_at_once(partial(claim_of, connection), names)
    return UsedVolumes(
        names=frozenset(name for name, claim in bound.items() if claim in claims),
        disks=frozenset[str]().union(*(pod.spec.volumes.disks for pod in pods if pod.taken_up)),
        unknown=frozenset(name for name in names if bound[name] is None and any(pod.claims and pod.taken_up for pod in pods)),
    )


async def a_few_at_once(ask: Callable[[Key], Awaitable[Answer]], keys: Iterable[Key]) -> dict[Key, Answer]:
    """What is answered to each. Pods may name any number of objects, and no request waits for a connection (S41)."""
    room, once = asyncio.Semaphore(READ_AT_ONCE), tuple(dict.fromkeys(keys))

    async def answer(key: Key) -> Answer:
        async with room:
            return await ask(key)

    return dict(zip(once, await asyncio.gather(*map(answer, once)), strict=True))


async def claim_of(connection: ClusterConnection, volume: str) -> tuple[str, str] | None:
    """See `bound_claim`. None where the volume is gone."""
    found = await unless_gone(connection.get(VOLUMES.path(volume)))
    return bound_claim(found) if found is not None else None


def bound_claim(volume: JsonObject) -> tuple[str, str]:
    """Namespace and name of the claim that a PersistentVolume is bound to, empty for none. That is written by Kubernetes and
    administrators alone, while a tenant may name any volume in a claim, and take one away that is in use (S41)."""
    ref = (volume.get("spec") or {}).get("claimRef") or {}
    return str(ref.get("namespace") or ""), str(ref.get("name") or "")


async def volume_of_claim(connection: ClusterConnection, place: tuple[str, str]) -> str | None:
    """The PersistentVolume that a claim names (live), "" for none yet. None where the claim is gone. place: its namespace and
    name."""
    namespace, claim = place
    found = await unless_gone(connection.get(CLAIMS.path(claim, namespace=namespace)))
    return str((found.get("spec") or {}).get("volumeName") or "")[:LONGEST_NAME] if found is not None else None
