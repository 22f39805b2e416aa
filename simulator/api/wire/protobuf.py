"""Reading the few protobuf bodies that people send without knowing: kubectl's `create` of simple kinds and `auth can-i`, Helm's
deletions.

kubectl does not fall back to JSON for these. Answers are always JSON, which it accepts; anything that is not listed here
is refused as an unknown format.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


class UnreadableError(ValueError):
    """Not protobuf, or not of a kind that is read here."""


@dataclass(frozen=True, slots=True)
class _Field:
    """How one numbered field reads in JSON."""

    name: str
    type: str = "string"  # string, bytes, boolean, integer, or the name of a message below
    many: bool = False  # a list
    map: bool = False  # a map from string
    zero: bool = False  # 0 is said on purpose


_META = _Field("metadata", "ObjectMeta")
_MESSAGES: dict[str, dict[int, _Field]] = {
    "ObjectMeta": {
        1: _Field("name"),
        2: _Field("generateName"),
        3: _Field("namespace"),
        5: _Field("uid"),
        6: _Field("resourceVersion"),
        11: _Field("labels", map=True),
        12: _Field("annotations", map=True),
        14: _Field("finalizers", many=True),
    },
    "Namespace": {1: _META},
    "ServiceAccount": {1: _META},
    "ConfigMap": {
        1: _META,
        2: _Field("data", map=True),
        3: _Field("binaryData", "bytes", map=True),
        4: _Field("immutable", "boolean"),
    },
    "Secret": {
        1: _META,
        2: _Field("data", "bytes", map=True),
        3: _Field("type"),
        4: _Field("stringData", map=True),
        5: _Field("immutable", "boolean"),
    },
    "ClusterRoleBinding": {1: _META, 2: _Field("subjects", "Subject", many=True), 3: _Field("roleRef", "RoleRef")},
    "RoleBinding": {1: _META, 2: _Field("subjects", "Subject", many=True), 3: _Field("roleRef", "RoleRef")},
    "ClusterRole": {1: _META, 2: _Field("rules", "PolicyRule", many=True)},
    "Role": {1: _META, 2: _Field("rules", "PolicyRule", many=True)},
    "PolicyRule": {
        1: _Field("verbs", many=True),
        2: _Field("apiGroups", many=True),
        3: _Field("resources", many=True),
        4: _Field("resourceNames", many=True),
    },
    "Subject": {1: _Field("kind"), 2: _Field("apiGroup"), 3: _Field("name"), 4: _Field("namespace")},
    "RoleRef": {1: _Field("apiGroup"), 2: _Field("kind"), 3: _Field("name")},
    "TokenRequest": {1: _META, 2: _Field("spec", "TokenRequestSpec")},
    "TokenRequestSpec": {1: _Field("audiences", many=True), 4: _Field("expirationSeconds", "integer")},
    "SelfSubjectReview": {1: _META},
    "SelfSubjectAccessReview": {1: _META, 2: _Field("spec", "ReviewSpec")},
    "ReviewSpec": {
        1: _Field("resourceAttributes", "ResourceAttributes"),
        2: _Field("nonResourceAttributes", "PathAttributes"),
    },
    "ResourceAttributes": {
        1: _Field("namespace"),
        2: _Field("verb"),
        3: _Field("group"),
        4: _Field("version"),
        5: _Field("resource"),
        6: _Field("subresource"),
        7: _Field("name"),
    },
    "PathAttributes": {1: _Field("path"), 2: _Field("verb")},
    "DeleteOptions": {
        1: _Field("gracePeriodSeconds", "integer", zero=True),
        2: _Field("preconditions", "Preconditions"),
        3: _Field("orphanDependents", "boolean", zero=True),
        4: _Field("propagationPolicy"),
        5: _Field("dryRun", many=True),
    },
    "Preconditions": {1: _Field("uid"), 2: _Field("resourceVersion")},
}
_READABLE = frozenset(
    {"Namespace", "ServiceAccount", "ConfigMap", "Secret", "SelfSubjectAccessReview", "DeleteOptions"}
    | {"SelfSubjectReview", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "TokenRequest"}
)


def read(body: bytes) -> dict[str, Any]:
    """The object in a body, as JSON would have it."""
    if not body.startswith(_MAGIC):
        raise UnreadableError("the body does not begin as Kubernetes' protobuf does")
    api_version, kind, raw = "", "", b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            head = {inner: told for inner, told in _fields(value) if isinstance(told, bytes)}
            api_version, kind = head.get(1, b"").decode(), head.get(2, b"").decode()
        elif number == 2 and isinstance(value, bytes):
            raw = value
    if kind not in _READABLE:
        raise UnreadableError(f"protobuf of kind {kind!r} is not read here")
    return {"apiVersion": api_version, "kind": kind, **_message(raw, kind)}


def _message(raw: bytes, name: str) -> dict[str, Any]:
    known = _MESSAGES[name]
    document: dict[str, Any] = {}
    for number, value in _fields(raw):
        field = known.get(number)
        if field is None:
            continue
        if field.map and isinstance(value, bytes):
            entry = dict(_fields(value))
            key = entry.get(1, b"")
            if not isinstance(key, bytes):
                raise UnreadableError(f"a key of {field.name} is not a string")
            document.setdefault(field.name, {})[key.decode()] = _value(entry.get(2, b""), field.type)
        elif field.many:
            document.setdefault(field.name, []).append(_value(value, field.type))
        elif field.zero or value not in (b"", 0):
            document[field.name] = _value(value, field.type)
    return document


def _value(value: bytes | int, kind: str) -> Any:
    if isinstance(value, int):
        return bool(value) if kind == "boolean" else value
    if kind == "string":
        return value.decode()
    return base64.b64encode(value).decode() if kind == "bytes" else _message(value, kind)


def _fields(raw: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Numbers and values of one message, in order."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        match tag & 7:
            case 0:
                value, position = _varint(raw, position)
                yield tag >> 3, value
            case 2:
                length, position = _varint(raw, position)
                if position + length > len(raw):
                    raise UnreadableError("the body ends too early")
                yield tag >> 3, raw[position : position + length]
                position += length
            case wire:
                raise UnreadableError(f"wire type {wire} does not occur in these kinds")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(raw) and shift < 64:
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
    raise UnreadableError("a number does not end")
