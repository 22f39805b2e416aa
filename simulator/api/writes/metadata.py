"""The part that every object shares: names, labels, finalizers, and what of it a client may change."""

from __future__ import annotations

import random
import re
import uuid
from datetime import datetime
from typing import Any

from simulator.api import errors, moments
from simulator.api.errors import Cause
from simulator.api.storage.kinds import Resource
from simulator.api.storage.selectors import is_label_key, is_label_value
from simulator.api.storage.store import Document

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PATH_SEGMENT_KINDS = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_LABEL_NAMED_KINDS = frozenset({"Namespace", "Service"})
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

# The server's own; whatever a client sends for them is ignored on updates.
_SERVER_OWNED = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)


def begin(resource: Resource, namespace: str, sent: dict[str, Any], chance: random.Random, created: datetime) -> dict[str, Any]:
    """The metadata of a new object."""
    if sent.get("resourceVersion"):
        raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
    metadata: dict[str, Any] = {}
    name = sent.get("name") or ""
    if not name and sent.get("generateName"):
        metadata["generateName"] = sent["generateName"]
        name = sent["generateName"] + "".join(chance.choices(_SUFFIX_LETTERS, k=5))
    metadata["name"] = name
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = str(uuid.uuid4())
    metadata["resourceVersion"] = ""
    if resource.generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = moments.stamp(created)
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        if sent.get(field):
            metadata[field] = sent[field]
    return metadata


def carry_over(sent: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The metadata of an update: what the server owns stays, the rest is the client's, who owns which field among it: nothing
    else is entered there."""
    metadata = {field: old[field] for field in _SERVER_OWNED if field in old}
    metadata["resourceVersion"] = old["resourceVersion"]
    for field in ("labels", "annotations", "ownerReferences", "finalizers", "managedFields"):
        if sent.get(field):
            metadata[field] = sent[field]
    return metadata


def check_name(resource: Resource, name: str) -> list[Cause]:
    if not name:
        return [
            Cause(field="metadata.name", message="Required value: name or generateName is required", reason="FieldValueRequired")
        ]
    if resource.kind in _PATH_SEGMENT_KINDS:
        fine, rule = "/" not in name and "%" not in name and name not in (".", ".."), "may not contain '/' or '%'"
    elif resource.kind in _LABEL_NAMED_KINDS:
        fine, rule = bool(_LABEL.match(name)) and len(name) <= 63, "a lowercase RFC 1123 label must consist of"
    else:
        fine, rule = bool(_SUBDOMAIN.match(name)) and len(name) <= 253, "a lowercase RFC 1123 subdomain must consist of"
    if fine:
        return []
    if "must consist" in rule:
        rule += " lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
    return [Cause(field="metadata.name", message=f'Invalid value: "{name}": {rule}')]


def check(metadata: dict[str, Any]) -> list[Cause]:
    """Labels, annotations, owners and finalizers."""
    causes = []
    for key, value in (metadata.get("labels") or {}).items():
        if not is_label_key(key):
            causes.append(
                Cause(
                    field="metadata.labels",
                    message=f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'",
                )
            )
        if not is_label_value(value):
            causes.append(
                Cause(
                    field="metadata.labels",
                    message=f'Invalid value: "{value}": a valid label must be an '
                    "empty string or consist of alphanumeric characters, '-', '_' or '.'",
                )
            )
    annotations = metadata.get("annotations") or {}
    letters = "name part must consist of alphanumeric characters, '-', '_' or '.'"
    causes.extend(
        Cause(field="metadata.annotations", message=f'Invalid value: "{key}": {letters}')
        for key in annotations
        if not is_label_key(key)
    )
    if sum(len(key) + len(str(value)) for key, value in annotations.items()) > 256 * 1024:
        message = "Too long: may not be more than 262144 bytes"
        causes.append(Cause(field="metadata.annotations", message=message, reason="FieldValueTooLong"))
    for position, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                where = f"metadata.ownerReferences[{position}].{field}"
                causes.append(Cause(field=where, message="Invalid value: must not be empty"))
    for finalizer in metadata.get("finalizers") or ():
        if not is_label_key(finalizer):
            message = f'Invalid value: "{finalizer}": name part must consist of alphanumeric characters'
            causes.append(Cause(field="metadata.finalizers", message=message))
    return causes


def check_transition(metadata: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A terminating object gains no finalizer."""
    if "deletionTimestamp" not in old:
        return []
    added = [each for each in metadata.get("finalizers") or () if each not in (old.get("finalizers") or ())]
    if not added:
        return []
    listed = ", ".join(f'"{each}"' for each in added)
    message = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
    return [Cause(field="metadata.finalizers", message=f"{message}[]string{{{listed}}}", reason="FieldValueForbidden")]


def in_order(resource: Resource, metadata: dict[str, Any], document: Document) -> Document:
    """kind and apiVersion first: handlers cut this head off, or exchange it, without decoding."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return {**head, **{key: value for key, value in document.items() if key not in head}}
