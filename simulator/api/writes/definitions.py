"""CustomResourceDefinitions: checked when written, and turned into served resources in the same step.

A real server needs a moment (seconds, when it is fresh) before it serves a new definition; here it is served at once,
so a client that forgets to wait is not caught. Conversion webhooks are not called: objects keep their fields and only
their apiVersion changes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from simulator.api import errors, moments
from simulator.api.errors import Cause
from simulator.api.storage.kinds import Catalogue, CustomVersion, PrinterColumn, Resource, ScalePaths, StorageKey
from simulator.api.storage.store import DELETED, Change, Document, Store, value_at
from simulator.api.writes.registry import DeleteOptions, Registry
from simulator.api.writes.validation import unchangeable

DEFINITIONS: StorageKey = ("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL = "api-approved.kubernetes.io"


class Definitions:
    """Keeps the catalogue in step with the definitions in the store."""

    def __init__(self, store: Store, catalogue: Catalogue, registry: Registry) -> None:
        self._store = store
        self._catalogue = catalogue
        self._registry = registry
        self._serving: set[StorageKey] = set()
        self._schemas: dict[tuple[StorageKey, str], tuple[dict[str, Any], int]] = {}
        """Of each version its schema, and the revision by which it was served."""
        registry.before_write[DEFINITIONS] = self._before_write
        registry.before_delete[DEFINITIONS] = _before_delete
        store.listeners.append(self._changed)
        store.restored.append(self._rebuild)

    def _before_write(self, document: Document, old: Document | None) -> list[Cause]:
        causes = _check(document)
        if causes:
            return causes
        if old is not None:
            causes += [
                unchangeable(f"spec.{field}")
                for field in ("group", "scope", "names.plural", "names.kind")
                if value_at(old, f"spec.{field}") != value_at(document, f"spec.{field}")
            ]
        _complete(document, old)
        return causes

    def _changed(self, storage: StorageKey, change: Change) -> None:
        if storage != DEFINITIONS:
            if change.type == DELETED and storage in self._serving:
                self._finish_if_empty(storage)
            return
        spec = change.record.document["spec"]
        kept = (spec["group"], spec["names"]["plural"])
        if change.type == DELETED:
            self._catalogue.remove(*kept)
            self._serving.discard(kept)
            for watcher in tuple(self._store.collection(kept).watchers):
                watcher.cut()
            return
        self._serve(change.record.document)
        if "deletionTimestamp" in change.record.document["metadata"]:
            self._empty(kept)

    def _serve(self, definition: Document) -> None:
        spec = definition["spec"]
        kept = (spec["group"], spec["names"]["plural"])
        self._catalogue.remove(*kept)
        for version in spec["versions"]:
            if version.get("served"):
                shape, key = version["schema"]["openAPIV3Schema"], (kept, version["name"])
                if key not in self._schemas or self._schemas[key][0] != shape:
                    self._schemas[key] = shape, self._store.revision
                since = self._schemas[key][1]
                self._catalogue.add(read(definition, version, since), storage_version=version.get("storage", False))
        self._serving.add(kept)

    def _rebuild(self) -> None:
        for kept in self._serving:
            self._catalogue.remove(*kept)
        self._serving.clear()
        self._schemas.clear()
        for record in self._store.collection(DEFINITIONS).records.values():
            self._serve(record.document)

    def _empty(self, kept: StorageKey) -> None:
        resource = self._catalogue.stored(kept)
        if resource is not None:
            for record in list(self._store.collection(kept).records.values()):
                if "deletionTimestamp" not in record.document["metadata"]:
                    self._registry.delete(resource, record.namespace, record.name, DeleteOptions())
        self._finish_if_empty(kept)

    def _finish_if_empty(self, kept: StorageKey) -> None:
        name = errors.qualified(*kept)
        record = self._store.get(DEFINITIONS, "", name)
        if record is None or len(self._store.collection(kept)) > 0:
            return
        meta = record.document["metadata"]
        if "deletionTimestamp" in meta and CLEANUP in (meta.get("finalizers") or ()):

            def without_cleanup(document: Document) -> Document:
                left = [each for each in document["metadata"]["finalizers"] if each != CLEANUP]
                document["metadata"]["finalizers"] = left
                return document

            self._registry.patch(self._catalogue.named(DEFINITIONS[1], DEFINITIONS[0]), "", name, without_cleanup)


def read(definition: Document, version: dict[str, Any], since: int) -> Resource:
    """One version of a definition as a served resource. since: as of a CustomVersion."""
    spec = definition["spec"]
    names = spec["names"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    columns = tuple(
        PrinterColumn(
            name=column["name"],
            type=column["type"],
            json_path=column["jsonPath"],
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )
    paths = scale and ScalePaths(
        spec_replicas=scale["specReplicasPath"].lstrip("."),
        status_replicas=scale["statusReplicasPath"].lstrip("."),
        label_selector=(scale.get("labelSelectorPath") or "").lstrip(".") or None,
    )
    selectable = tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ())
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        selectable=selectable,
        status="status" in subresources,
        scale=scale is not None,
        generation=True,
        unconditional_update=False,
        custom=CustomVersion(
            schema=version["schema"]["openAPIV3Schema"],
            since=since,
            columns=columns,
            scale=paths or None,
            definition=definition["metadata"]["name"],
        ),
    )


def _check(document: Document) -> list[Cause]:
    spec = document.get("spec") or {}
    causes = [
        Cause(field=f"spec.{path}", message="Required value", reason="FieldValueRequired")
        for path in ("group", "scope", "names.plural", "names.kind", "versions")
        if not value_at(spec, path)
    ]
    if causes:
        return causes
    expected = f"{spec['names']['plural']}.{spec['group']}"
    if document["metadata"]["name"] != expected:
        message = f'Invalid value: "{document["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        causes.append(Cause(field="metadata.name", message=message))
    if spec["scope"] not in ("Namespaced", "Cluster"):
        message = f'Unsupported value: "{spec["scope"]}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause(field="spec.scope", message=message, reason="FieldValueNotSupported"))
    causes += _check_approval(document)
    if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        causes.append(Cause(field="spec.versions", message=message))
    for position, version in enumerate(spec["versions"]):
        where = f"spec.versions[{position}]"
        schema = value_at(version, "schema.openAPIV3Schema")
        if not isinstance(schema, dict):
            message = "Required value: schemas are required"
            causes.append(Cause(field=f"{where}.schema.openAPIV3Schema", message=message, reason="FieldValueRequired"))
        elif schema.get("type") != "object":
            message = f'Invalid value: "{schema.get("type", "")}": must be object at the root'
            causes.append(Cause(field=f"{where}.schema.openAPIV3Schema.type", message=message))
        else:
            causes += _check_schema(schema, f"{where}.schema.openAPIV3Schema", root=True)
    return causes


def _check_approval(document: Document) -> list[Cause]:
    """The community's own groups take a kind only with the address of its review, or with the word that there was none."""
    if not f".{document['spec']['group']}".endswith((".k8s.io", ".kubernetes.io")):
        return []
    field = f"metadata.annotations[{APPROVAL}]"
    approval = (document["metadata"].get("annotations") or {}).get(APPROVAL, "")
    if not approval:
        message = f'Required value: protected groups must have approval annotation "{APPROVAL}"'
        return [Cause(field=field, message=message, reason="FieldValueRequired")]
    url = urlsplit(approval)
    if approval.startswith("unapproved") or (url.scheme and url.netloc):
        return []
    message = f'Invalid value: "{approval}": must be a URL, or a reason that starts with "unapproved"'
    return [Cause(field=field, message=message)]


def _check_schema(schema: dict[str, Any], where: str, *, root: bool = False) -> list[Cause]:
    """The parts of "structural" that people get wrong: every level has a type, and defaults are not for the root."""
    causes = []
    untyped = "type" not in schema and not (
        schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    )
    if untyped and not root:
        message = "Required value: must not be empty for specified object fields"
        causes.append(Cause(field=f"{where}.type", message=message, reason="FieldValueRequired"))
    if schema.get("properties") and schema.get("additionalProperties"):
        message = "Forbidden: additionalProperties and properties are mutual exclusive"
        causes.append(Cause(field=f"{where}.additionalProperties", message=message, reason="FieldValueForbidden"))
    for name, below in (schema.get("properties") or {}).items():
        causes += _check_schema(below, f"{where}.properties[{name}]")
    for field in ("items", "additionalProperties"):
        below = schema.get(field)
        if isinstance(below, dict):
            causes += _check_schema(below, f"{where}.{field}")
    return causes


def _complete(document: Document, old: Document | None) -> None:
    spec, meta = document["spec"], document["metadata"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    if "deletionTimestamp" not in meta and CLEANUP not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP]
    status = document.setdefault("status", {})
    status["acceptedNames"] = names
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    known = (old or {}).get("status", {}).get("storedVersions") or []
    status["storedVersions"] = [*known, *(name for name in stored if name not in known)]
    if not status.get("conditions"):
        moment = moments.stamp(moments.now())
        status["conditions"] = [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", moment),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", moment),
        ]


def _condition(kind: str, reason: str, message: str, moment: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": moment, "reason": reason, "message": message}


def _before_delete(document: Document) -> None:
    moment = moments.stamp(moments.now())
    told = _condition("Terminating", "InstanceDeletionInProgress", "CustomResource deletion is in progress", moment)
    document["status"]["conditions"] = [*document["status"].get("conditions", ()), told]
