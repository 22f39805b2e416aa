"""From the API's bytes to what `policy` knows: only the fields that are used are decoded and kept.

A node is 11 KB of JSON of which a decision needs 1 KB; at 5,000 nodes that is the difference between 0.3 s and 3.5 s for a list.
Machines and what belongs to them are `machines_decoding.py`.
Policy objects are few and go to `policy/dialects` as plain JSON objects, mistakes and all. Nulls and missing fields read alike.

One object that can't be read holds up no other: a stand-in takes its place, which counts against every limit and is never acted
upon (S18: it is no reason to be blind, and none to count less).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from activities.cluster.api.responses import Status, shallow
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.episode.fencing_requests import SUCCEEDED
from policy.objects.nodes import Condition, NodeView, Taint
from policy.objects.remediations import (
    GIVEN_UP_ANNOTATION,
    HEALTHY_DELAY_ANNOTATION,
    NODE_NAME_ANNOTATION,
    Owner,
    RemediationObject,
)
from policy.preservation.machine_snapshot import CONDITION
from policy.remediation.ladder import OWNER_REMEDIATED
from policy.remediation.remediation_objects import (
    INCIDENT_ANNOTATION,
    REMEDIATORS,
    TEMPLATE_NAME_ANNOTATION,
    TIMED_OUT_ANNOTATION,
    Remediator,
    remediator_of,
)
from policy.values.object_refs import LONGEST_NAME, ObjectRef
from policy.values.times import moment_of

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_OUT = frozenset({CONDITION, OWNER_REMEDIATED})
"""Types of conditions of which the message is read."""

IP_ADDRESSES, MOST_ADDRESSES = frozenset({"InternalIP", "ExternalIP"}), 32

LONGEST_PROBLEM = 200
LONGEST_IDENTITY, LONGEST_PROVIDER_ID = 128, 512
"""Characters. Cluster API takes no longer providerID either."""
LONGEST_WORD, LONGEST_ANNOTATION = 317, 32 * 1024
"""Of a condition's type (a name behind a domain), status and reason; of an annotation, far above what we read of any. Longer ones
are cut: a kubelet, or who may create an object, writes them at any length (S41)."""
_NONE: Mapping[str, str] = {}
"""For all nodes together."""


class EventType(StrEnum):
    """What a line of a watch is about."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """One object of a list or watch. `key`: its name, with the namespace before it where it has one."""

    key: str
    resource_version: str
    value: T


@dataclass(frozen=True, slots=True)
class WatchLine(Generic[T]):
    """One event of a watch. Only ADDED, MODIFIED and DELETED carry an item, only ERROR a status."""

    type: EventType
    resource_version: str
    item: Item[T] | None = None
    status: Status | None = None


class PlainMetadata(msgspec.Struct, rename="camel"):
    """What decisions use of any object's `metadata`."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class WireOwner(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    def __post_init__(self) -> None:
        self.kind, self.name, self.uid = (text[:LONGEST_NAME] for text in (self.kind, self.name, self.uid))


class WireMetadata(PlainMetadata, rename="camel"):
    """With what is used of a Machine's, a Cluster's and a remediation object's. Moments are whatever was written."""

    owner_references: list[WireOwner] | None = None
    finalizers: list[str] | None = None
    creation_timestamp: Any = None

    @property
    def controller(self) -> str:
        """Kind and name of the owner that controls it, "" where there is none."""
        return next((f"{owner.kind}/{owner.name}" for owner in self.owner_references or () if owner.controller), "")


class _Taint(msgspec.Struct):
    key: str = ""
    effect: str = ""
    value: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class WireCondition(msgspec.Struct, rename="camel"):
    """One entry of `status.conditions` as it is on the wire; objects of all kinds have the same.

    Its moment is whatever was written: there are years that the API takes and no calendar of ours has, and one of them must not
    make a whole list unreadable.
    """

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: Any = None


class _NodeInfo(msgspec.Struct, rename="camel"):
    boot_id: str | None = msgspec.field(name="bootID", default=None)
    system_uuid: str | None = msgspec.field(name="systemUUID", default=None)


class _Address(msgspec.Struct):
    type: str = ""
    address: str = ""


class _NodeStatus(msgspec.Struct, rename="camel"):
    conditions: list[WireCondition] | None = None
    addresses: list[_Address] | None = None
    node_info: _NodeInfo | None = None


class _Node(msgspec.Struct):
    metadata: PlainMetadata
    spec: _Spec | None = None
    status: _NodeStatus | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ObjectMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str | None = None
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Object(msgspec.Struct):
    metadata: _ObjectMetadata


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _AttachmentSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Attachment(msgspec.Struct):
    metadata: _ObjectMetadata
    spec: _AttachmentSpec | None = None


_node = msgspec.json.Decoder(_Node)
_attachment = msgspec.json.Decoder(_Attachment)
_object = msgspec.json.Decoder(_Object)
_list = msgspec.json.Decoder(_List)
_line = msgspec.json.Decoder(_Line)
_status = msgspec.json.Decoder(Status)
_anything = msgspec.json.Decoder(dict[str, Any])


def decode_node(body: bytes) -> NodeView:
    """One Node as the API answers it. Raises msgspec.DecodeError for anything else."""
    return NODE_DECODING.one(body).value


def _read_node(raw: msgspec.Raw) -> Item[NodeView]:
    node = _node.decode(raw)
    metadata, spec, status = node.metadata, node.spec or _Spec(), node.status or _NodeStatus()
    node_info = status.node_info or _NodeInfo()
    addresses = (each.address[:LONGEST_IDENTITY] for each in status.addresses or () if each.type in IP_ADDRESSES)
    view = NodeView(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        # Interned: fifty thousand nodes have the same labels, and it is a fifth of what they take.
        labels={sys.intern(key): sys.intern(value) for key, value in (metadata.labels or {}).items()},
        annotations=annotations_of(metadata),
        conditions=conditions_of(status.conditions),
        taints=tuple(
            Taint(key=sys.intern(taint.key), effect=sys.intern(taint.effect), value=taint.value or "")
            for taint in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        deleting=metadata.deletion_timestamp is not None,
        provider_id=provider_id_of(spec.provider_id),
        boot_id=identity_of(node_info.boot_id),
        system_uuid=identity_of(node_info.system_uuid),
        addresses=tuple(dict.fromkeys(addresses))[:MOST_ADDRESSES],
    )
    return Item(metadata.name, metadata.resource_version, view)


def annotations_of(metadata: PlainMetadata) -> Mapping[str, str]:
    """Those of any object. The names are interned: they are the same on fifty thousand nodes."""
    there = metadata.annotations
    return {sys.intern(key): value[:LONGEST_ANNOTATION] for key, value in there.items()} if there else _NONE


def identity_of(said: str | None, longest: int = LONGEST_IDENTITY) -> str:
    """As a kubelet says it; "", not known, where it is longer than any can be: reports and records of the whole cluster carry
    it (S41)."""
    return said if said is not None and len(said) <= longest else ""


def provider_id_of(said: str | None) -> str:
    return identity_of(said, LONGEST_PROVIDER_ID)


def conditions_of(conditions: list[WireCondition] | None) -> tuple[Condition, ...]:
    """The entries of `status.conditions`, none where there are none."""
    texts = {each.last_transition_time for each in conditions or () if isinstance(each.last_transition_time, str)}
    moments = {each: moment_of(each) for each in texts}  # most conditions of a node have the same
    return tuple(
        Condition(  # interned: fifty thousand nodes say the same twenty words
            type=sys.intern(condition.type[:LONGEST_WORD]),
            status=sys.intern(condition.status[:LONGEST_WORD]),
            since=moments[condition.last_transition_time] if isinstance(condition.last_transition_time, str) else None,
            reason=sys.intern((condition.reason or "")[:LONGEST_WORD]),
            message=condition.message or "" if condition.type in READ_OUT else "",
        )
        for condition in conditions or ()
    )


def _unread_node(rest: Fragments, problem: str) -> NodeView:
    return NodeView(
        name=rest.name,
        uid=rest.text("metadata", "uid"),
        resource_version=rest.resource_version,
        labels=rest.texts("metadata", "labels"),
        annotations=rest.texts("metadata", "annotations"),
        provider_id=provider_id_of(rest.text("spec", "providerID")),
        unreadable=problem,
    )


def _read_attachment(raw: msgspec.Raw) -> Item[str]:
    found = _attachment.decode(raw)
    # Interned: a node has a hundred of them, and its own name is in memory already.
    node = sys.intern(found.spec.node_name) if found.spec is not None else ""
    return Item(found.metadata.name, found.metadata.resource_version, node)


def _read_object(raw: msgspec.Raw) -> Item[dict[str, Any]]:
    metadata = _object.decode(raw).metadata
    return Item(metadata.key, metadata.resource_version, _anything.decode(raw))


def _read_name(raw: msgspec.Raw) -> Item[str]:
    metadata = _object.decode(raw).metadata
    return Item(metadata.name, metadata.resource_version, metadata.resource_version)


class Fragments:
    """What can be made out of an object that can't be read as its kind. It has a name, or it raises msgspec.DecodeError."""

    def __init__(self, raw: msgspec.Raw) -> None:
        metadata = _object.decode(raw).metadata
        self.name = metadata.name
        self.key = metadata.key
        self.namespace = metadata.namespace or ""
        self.resource_version = metadata.resource_version
        self._object = _anything.decode(raw)

    def texts(self, *path: str) -> dict[str, str]:
        found: Any = self._object
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        texts = found.items() if isinstance(found, dict) else ()
        return {key: value[:LONGEST_ANNOTATION] for key, value in texts if isinstance(value, str)}

    def text(self, *path: str) -> str:
        return self.texts(*path[:-1]).get(path[-1], "")


@lru_cache(maxsize=4096)
def _log_unreadable(kind: str, key: str, problem: str) -> None:
    """Once for each object and problem: a Node says the same thing every few seconds."""
    log.warning("%s %s can't be read, and is never acted upon until it can: %s", kind, key, problem)


@dataclass(frozen=True, slots=True)
class Decoding(Generic[T]):
    """How the bytes of one kind become items. All raise msgspec.DecodeError for what is no list, no line, or no such object.

    kind: as the log names it. read: one object. stand_in: what takes the place of one that can't be read; None where one makes
    the whole unreadable.
    """

    kind: str
    read: Callable[[msgspec.Raw], Item[T]]
    stand_in: Callable[[Fragments, str], T] | None = None

    def brief_unless(self, counts: Callable[[str], bool], brief: Callable[[msgspec.Raw], Item[T]]) -> Decoding[T]:
        """The same for objects of namespaces that count; of those of others no more than `brief` reads is ever held."""

        def read(raw: msgspec.Raw) -> Item[T]:
            return self.read(raw) if counts(_object.decode(raw).metadata.namespace or "") else brief(raw)

        return replace(self, read=read)

    def one(self, body: bytes) -> Item[T]:
        """One object, without a stand-in."""
        return self.read(msgspec.Raw(body))

    def items(self, body: bytes) -> list[Item[T]]:
        try:
            return self._items(body)
        except RecursionError:
            return self._items(shallow(body))

    def line(self, body: bytes) -> WatchLine[T]:
        try:
            return self._line(body)
        except RecursionError:
            return self._line(shallow(body))

    def _items(self, body: bytes) -> list[Item[T]]:
        return [self._item(raw) for raw in _list.decode(body).items or ()]

    def _line(self, body: bytes) -> WatchLine[T]:
        line = _line.decode(body)
        try:
            kind = EventType(line.type)
        except ValueError as error:
            raise msgspec.ValidationError(f"an event of the unknown type {line.type!r}") from error
        if kind is EventType.ERROR:
            return WatchLine(kind, "", status=_status.decode(line.object))
        if kind is EventType.BOOKMARK:
            return WatchLine(kind, _object.decode(line.object).metadata.resource_version)
        item = self._item(line.object)
        return WatchLine(kind, item.resource_version, item)

    def _item(self, raw: msgspec.Raw) -> Item[T]:
        try:
            return self.read(raw)
        except msgspec.ValidationError as error:
            if self.stand_in is None:
                raise
            rest, problem = Fragments(raw), str(error)[:LONGEST_PROBLEM]
            _log_unreadable(self.kind, rest.key, problem)
            return Item(rest.key, rest.resource_version, self.stand_in(rest, problem))


NODE_DECODING: Decoding[NodeView] = Decoding("Node", _read_node, _unread_node)
NAME_DECODING: Decoding[str] = Decoding("object", _read_name)
"""Of objects of which the names are enough: the version stands for the rest."""
OBJECT_DECODING: Decoding[dict[str, Any]] = Decoding("object", _read_object)
ATTACHMENT_DECODING: Decoding[str] = Decoding("VolumeAttachment", _read_attachment, lambda _rest, _problem: "")
"""To which node each is attached: of a quarter of a million of them nothing more is worth keeping."""


# Objects that do not count, because no setting names their namespace. A person who may create objects in one has room for
# hundreds that are as large as can be, and JSON takes eight times as much once it is decoded: the memory of a worker, and with it
# all of its clusters (S41).

MOST_OWNERS = 20
_SAYS_WHAT_IT_IS = (NODE_NAME_ANNOTATION, GIVEN_UP_ANNOTATION, INCIDENT_ANNOTATION)


class _Brief(msgspec.Struct):
    metadata: WireMetadata
    status: msgspec.Raw = msgspec.Raw(b"null")


class _Conditions(msgspec.Struct):
    conditions: list[WireCondition] | None = None


_brief = msgspec.json.Decoder(_Brief)
_conditions = msgspec.json.Decoder(_Conditions | None)


def brief_object(raw: msgspec.Raw) -> Item[dict[str, Any]]:
    """Which object it is, and of a request what a refusal shows of it."""
    metadata = _object.decode(raw).metadata
    says: dict[str, Any] = {"name": metadata.name, "namespace": metadata.namespace, "resourceVersion": metadata.resource_version}
    conditions: list[dict[str, str]] = []
    with suppress(msgspec.ValidationError):
        found = _brief.decode(raw)
        annotations, owners = found.metadata.annotations or {}, found.metadata.owner_references or []
        says |= {
            "uid": found.metadata.uid,
            "creationTimestamp": found.metadata.creation_timestamp,
            "deletionTimestamp": found.metadata.deletion_timestamp,
            "annotations": {key: annotations[key][:LONGEST_WORD] for key in _SAYS_WHAT_IT_IS if key in annotations},
            "ownerReferences": [{"kind": each.kind, "name": each.name} for each in owners[:MOST_OWNERS]],
        }
        status = _conditions.decode(found.status) or _Conditions()
        answers = (each for each in status.conditions or () if each.type == SUCCEEDED)
        conditions += [{"type": each.type, "status": each.status[:LONGEST_WORD]} for each in islice(answers, 1)]
    item = {"metadata": {key: value for key, value in says.items() if value}, "status": {"conditions": conditions}}
    return Item(metadata.key, metadata.resource_version, item)


class _TemplateSpec(msgspec.Struct):
    template: dict[str, msgspec.Raw] | None = None


class _Template(msgspec.Struct):
    spec: _TemplateSpec | None = None


_template = msgspec.json.Decoder(_Template)


def _read_template(raw: msgspec.Raw) -> Item[dict[str, Any]]:
    item, spec = brief_object(raw), {}
    with suppress(msgspec.ValidationError):
        found = _template.decode(raw).spec
        spec = {"template": {}} if found is not None and found.template is not None else {}
    return Item(item.key, item.resource_version, item.value | {"spec": spec})


TEMPLATE_DECODING: Decoding[dict[str, Any]] = Decoding("object", _read_template)
"""Of templates of others, that there are such: what is made of one is read when it is made."""


# Remediation objects, of any kind.


class _Remediation(msgspec.Struct, rename="camel"):
    metadata: WireMetadata
    api_version: str = ""
    kind: str = ""
    status: _Conditions | None = None


_remediation = msgspec.json.Decoder(_Remediation)


def remediation_decoding(
    api_version: str, kind: str, remediators: tuple[Remediator, ...] = REMEDIATORS
) -> Decoding[RemediationObject]:
    """How remediation objects of that kind are read; an unreadable one belongs to no check."""

    def read(raw: msgspec.Raw) -> Item[RemediationObject]:
        found = _remediation.decode(raw)
        metadata, says = found.metadata, remediator_of(api_version, kind, remediators)
        conditions = {each.type: each.status for each in (found.status.conditions if found.status else None) or ()}
        annotations = metadata.annotations or {}
        view = RemediationObject(
            ref=ObjectRef(
                api_version=api_version, kind=kind, name=metadata.name, namespace=metadata.namespace or DEFAULT_NAMESPACE
            ),
            target=annotations.get(NODE_NAME_ANNOTATION, "")[:LONGEST_NAME] or metadata.name,
            uid=metadata.uid,
            created=moment_of(metadata.creation_timestamp),
            template=annotations.get(TEMPLATE_NAME_ANNOTATION, ""),
            timed_out=moment_of(annotations.get(TIMED_OUT_ANNOTATION, "")),
            owners=tuple(
                Owner(kind=owner.kind, name=owner.name, uid=owner.uid)
                for owner in (metadata.owner_references or ())[:MOST_OWNERS]
            ),
            deleting=metadata.deletion_timestamp is not None,
            succeeded=says.has_succeeded(conditions),
            permanent_node_deletion_expected=conditions.get(says.node_goes, "")[:LONGEST_WORD],
            well_since=moment_of(annotations.get(HEALTHY_DELAY_ANNOTATION, "")),
        )
        return Item(f"{view.ref.namespace}/{view.ref.name}", metadata.resource_version, view)

    def stand_in(rest: Fragments, _problem: str) -> RemediationObject:
        ref = ObjectRef(api_version=api_version, kind=kind, name=rest.name, namespace=rest.namespace or DEFAULT_NAMESPACE)
        target = rest.text("metadata", "annotations", NODE_NAME_ANNOTATION)[:LONGEST_NAME]
        return RemediationObject(ref=ref, target=target or rest.name)

    return Decoding(kind, read, stand_in)
