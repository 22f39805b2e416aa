"""What a write means: creation, update, patch and deletion with their rules, over the records of `storage/store.py`.

Every method is one synchronous step, so a write is atomic and no lock is needed. The rules of single kinds are in
admission.py and validation.py, those of custom resources in schema.py; HTTP is `wire/`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from simulator.api import errors, moments
from simulator.api.errors import Cause
from simulator.api.storage.kinds import Catalogue, Resource, StorageKey
from simulator.api.storage.store import Document, Record, Store
from simulator.api.writes import admission, metadata, schema
from simulator.api.writes.validation import VALIDATORS

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What the query of a write asks for."""

    dry_run: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """A DeleteOptions object and the query parameters that mean the same."""

    dry_run: bool = False
    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What came of a delete: the object as it is now or as it went."""

    record: Record
    gone: bool


_PLAIN = WriteOptions()
Admit = Callable[[Resource, str, str, Document | None, Document | None], None]
"""Refuses a write by its resource, subresource, operation, new and old document."""


def _admit(_resource: Resource, _subresource: str, _operation: str, _new: Document | None, _old: Document | None) -> None:
    """All of them."""


class Registry:
    """All writes to the simulated cluster go through here, whether they came over HTTP or from this process."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        chance: random.Random | None = None,
        *,
        clock: Callable[[], datetime] = moments.now,
    ) -> None:
        self.store = store
        self.catalogue = catalogue
        self.chance = chance or random.Random()
        self.clock = clock
        self.admit: Admit = _admit
        # Extra steps for a kind, before a creation or update is validated and before a deletion begins.
        self.before_write: dict[StorageKey, Callable[[Document, Document | None], list[Cause]]] = {}
        self.before_delete: dict[StorageKey, Callable[[Document], None]] = {}

    # Reading ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        record = self.store.get(resource.storage, namespace, name)
        if record is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return record

    # Creation -----------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, sent: Document, options: WriteOptions = _PLAIN) -> Record:
        document = self._received(resource, namespace, sent, options)
        sent_metadata = document["metadata"]
        document["metadata"] = metadata.begin(resource, namespace, sent_metadata, self.chance, self.clock())
        name = document["metadata"]["name"]
        if resource.custom is None:
            admission_step = admission.ON_CREATE.get(resource.kind)
            if admission_step is not None:
                admission_step(document)
        elif resource.status:
            document.pop("status", None)
        self._complete(resource, document)
        causes = [*metadata.check_name(resource, name), *self._check(resource, document, None)]
        if causes:
            raise errors.invalid(resource.group, resource.kind, name, causes)
        self._namespace_accepts(resource, namespace, name)
        if self.store.get(resource.storage, namespace, name) is not None:
            raise errors.already_exists(resource.group, resource.plural, name)
        self.admit(resource, "", "CREATE", document, None)
        return self._commit(resource, document, options)

    def _namespace_accepts(self, resource: Resource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        holder = self.store.get(("", "namespaces"), "", namespace)
        if holder is None:
            raise errors.not_found("", "namespaces", namespace)
        if "deletionTimestamp" in holder.document["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            told = f"namespace {namespace} is being terminated"
            cause = Cause(field="metadata.namespace", message=told, reason="NamespaceTerminating")
            raise errors.forbidden(resource.group, resource.plural, name, why, [cause])

    # Update -------------------------------------------------------------------------------------------------------

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        sent: Document,
        *,
        status: bool = False,
        options: WriteOptions = _PLAIN,
    ) -> tuple[Record, bool]:
        """Replace an object or its status; the second value tells whether it was created."""
        document = self._received(resource, namespace, sent, options)
        given = document["metadata"].setdefault("name", name)
        if given != name:
            told = f"the name of the object ({given}) does not match the name on the URL ({name})"
            raise errors.bad_request(told)
        old = self.store.get(resource.storage, namespace, name)
        if old is None:
            if not resource.create_on_update:
                raise errors.not_found(resource.group, resource.plural, name)
            self._require_uid(resource, name, document["metadata"].get("uid"), "")
            document["metadata"].pop("resourceVersion", None)
            return self.create(resource, namespace, document, options), True
        if not document["metadata"].get("resourceVersion") and not resource.unconditional_update:
            cause = Cause(field="metadata.resourceVersion", message="Invalid value: 0: must be specified for an update")
            raise errors.invalid(resource.group, resource.kind, name, [cause])
        return self._replace(resource, old, document, status=status, options=options), False

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Document], Any],
        *,
        status: bool = False,
        options: WriteOptions = _PLAIN,
    ) -> Record:
        """Apply a function to the newest version; `change` gets a copy in the asked version and returns the new one."""
        old = self.get(resource, namespace, name)
        current = {**schema.as_read(old, resource).copy(), "apiVersion": resource.api_version}
        changed = change(current)
        if not isinstance(changed, dict):
            raise errors.bad_request("the patched document is not an object")
        document = self._received(resource, namespace, changed, options)
        if document["metadata"].get("name") != name:
            cause = Cause(field="metadata.name", message="Invalid value: field is immutable")
            raise errors.invalid(resource.group, resource.kind, name, [cause])
        return self._replace(resource, old, document, status=status, options=options)

    def _replace(self, resource: Resource, old: Record, document: Document, *, status: bool, options: WriteOptions) -> Record:
        before = schema.as_read(old, resource).document
        self._preconditions(resource, old, document["metadata"])
        if status and resource.custom is not None:
            document = {**old.copy(), "apiVersion": resource.api_version, "status": document.get("status")}
            if document["status"] is None:
                del document["status"]
        elif status:
            kept = {key: value for key, value in old.copy().items() if key not in ("metadata", "status")}
            document = {**kept, "metadata": document["metadata"], "status": document.get("status") or {}}
        elif resource.status:
            document.pop("status", None)
            if "status" in before:
                document["status"] = old.copy()["status"]
        document["metadata"] = metadata.carry_over(document["metadata"], before["metadata"])
        self._complete(resource, document)
        causes = metadata.check_transition(document["metadata"], before["metadata"])
        causes += self._check(resource, document, before)
        if causes:
            raise errors.invalid(resource.group, resource.kind, old.name, causes)
        self.admit(resource, "status" if status else "", "UPDATE", document, before)
        if _is_same(document, old.document):
            return old
        if resource.generation and _meaning(resource, document) != _meaning(resource, before):
            document["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        if _is_finished(document):
            return self._finish(resource, document, options)
        return self._commit(resource, document, options)

    def _require_uid(self, resource: Resource, name: str, sent: str | None, uid: str) -> None:
        """uid: of the object, "" where there is none: what names one creates no other."""
        if sent and sent != uid:
            why = f"Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}"
            raise errors.conflict(resource.group, resource.plural, name, why)

    def _preconditions(self, resource: Resource, old: Record, sent: dict[str, Any]) -> None:
        self._require_uid(resource, old.name, sent.get("uid"), old.uid)
        version = sent.get("resourceVersion")
        if version and version != str(old.revision):
            raise errors.conflict(resource.group, resource.plural, old.name)

    # Deletion -----------------------------------------------------------------------------------------------------

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions | None = None) -> Deletion:
        options = options or DeleteOptions()
        old = self.get(resource, namespace, name)
        wanted = {"uid": options.uid, "resourceVersion": options.resource_version}
        self._delete_preconditions(resource, old, wanted)
        self.admit(resource, "", "DELETE", None, old.document)
        document = old.copy()
        meta = document["metadata"]
        first = "deletionTimestamp" not in meta
        if first:
            self._mark_finalizers(meta, options)
            hook = self.before_delete.get(resource.storage)
            if hook is not None:
                hook(document)
        grace = self._grace(resource, document, options)
        changed = _begin_deletion(meta, grace, self.clock(), first=first)
        if not changed and not _is_finished(document):
            return Deletion(record=old, gone=False)
        write = WriteOptions(dry_run=options.dry_run)
        document = metadata.in_order(resource, meta, document)
        if _is_finished(document):
            return Deletion(record=self._finish(resource, document, write), gone=True)
        return Deletion(record=self._commit(resource, document, write), gone=False)

    def _delete_preconditions(self, resource: Resource, old: Record, wanted: dict[str, str | None]) -> None:
        have = {"uid": old.uid, "resourceVersion": str(old.revision)}
        words = {"uid": "UID", "resourceVersion": "ResourceVersion"}
        for field, value in wanted.items():
            if value and value != have[field]:
                told = f"{words[field]} in precondition: {value}, {words[field]} in object meta: {have[field]}"
                why = f"Precondition failed: {told}"
                raise errors.conflict(resource.group, resource.plural, old.name, why)

    @staticmethod
    def _mark_finalizers(meta: dict[str, Any], options: DeleteOptions) -> None:
        finalizers = [each for each in meta.get("finalizers") or () if each not in (FOREGROUND, ORPHAN)]
        if options.propagation == "Foreground":
            finalizers.append(FOREGROUND)
        elif options.propagation == "Orphan":
            finalizers.append(ORPHAN)
        elif options.propagation is None:
            finalizers = list(meta.get("finalizers") or ())
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)

    @staticmethod
    def _grace(resource: Resource, document: Document, options: DeleteOptions) -> int | None:
        """Seconds until a pod may be gone; None for kinds that know no grace."""
        if resource.storage != ("", "pods"):
            return None
        spec, phase = document.get("spec") or {}, (document.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        asked = options.grace_seconds
        return max(0, spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked)

    # Shared steps -------------------------------------------------------------------------------------------------

    def _received(self, resource: Resource, namespace: str, sent: Any, options: WriteOptions) -> Document:
        """A copy of what the client sent, of the right kind and namespace, without unknown fields."""
        if not isinstance(sent, dict):
            raise errors.bad_request("the body of the request is not an object")
        if resource.custom is not None:
            schema.require_head(sent, resource)
        kind, version = sent.get("kind") or resource.kind, sent.get("apiVersion") or resource.api_version
        if kind != resource.kind:
            raise errors.bad_request(f"the kind in the data ({kind}) does not match the expected {resource.kind}")
        if version != resource.api_version:
            told = f"the API version in the data ({version}) does not match the expected API version"
            raise errors.bad_request(f"{told} ({resource.api_version})")
        document = dict(sent)
        meta = document.get("metadata") or {}
        if not isinstance(meta, dict):
            raise errors.bad_request(f"{kind} cannot be handled: metadata is not an object")
        document["metadata"] = dict(meta)
        given = meta.get("namespace")
        if resource.namespaced and given and given != namespace:
            told = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(told)
        admission.check_types(resource.kind if resource.custom is None else "", document)
        if resource.custom is None:
            unknown = [key for key in document if key not in ("kind", "apiVersion", "metadata", *resource.body)]
            document = _tidied(resource, {key: value for key, value in document.items() if key not in unknown})
        else:
            document = orjson.loads(orjson.dumps(document))
            unknown = schema.prune(document, resource.custom.schema)
        if unknown and options.strict:
            listed = ", ".join(f'unknown field "{field}"' for field in sorted(unknown))
            raise errors.bad_request(f"{kind} in version {version!r} cannot be handled: strict decoding error: {listed}")
        return document

    def _complete(self, resource: Resource, document: Document) -> None:
        if resource.custom is not None:
            schema.apply_defaults(document, resource.custom.schema)
            return
        fill = admission.DEFAULTS.get(resource.kind)
        if fill is not None:
            fill(document)
        if resource.kind == "Lease":
            admission.check_lease_times(document)

    def _check(self, resource: Resource, document: Document, old: Document | None) -> list[Cause]:
        causes = metadata.check(document["metadata"])
        if resource.custom is not None:
            causes += schema.validate(document, resource.custom.schema)
        else:
            check = VALIDATORS.get(resource.kind)
            if check is not None:
                causes += check(document, old)
        hook = self.before_write.get(resource.storage)
        if hook is not None:
            causes += hook(document, old)
        return causes

    def _commit(self, resource: Resource, document: Document, options: WriteOptions) -> Record:
        stored = self.catalogue.stored(resource.storage) or resource
        ordered = metadata.in_order(stored, document["metadata"], document)
        if options.dry_run:
            return self._unwritten(ordered)
        return self.store.put(resource.storage, ordered)

    def _finish(self, resource: Resource, document: Document, options: WriteOptions) -> Record:
        meta = document["metadata"]
        if options.dry_run:
            return self._unwritten(document)
        removed = self.store.remove(resource.storage, meta.get("namespace", ""), meta["name"])
        shown = {**document, "metadata": {**meta, "resourceVersion": str(removed.revision)}}
        return replace(removed, document=shown, body=orjson.dumps(shown))

    @staticmethod
    def _unwritten(document: Document) -> Record:
        meta = document["metadata"]
        if not meta.get("resourceVersion"):
            meta.pop("resourceVersion", None)
        revision = int(meta.get("resourceVersion", "0"))
        body = orjson.dumps(document)
        namespace = meta.get("namespace", "")
        return Record(namespace=namespace, name=meta["name"], revision=revision, document=document, body=body)


def _tidied(resource: Resource, document: Document) -> Document:
    """A copy without what means nothing in a built-in kind; schemas inside a definition are left as they are."""
    kept = {}
    for key, value in document.items():
        whole = resource.kind == "CustomResourceDefinition" and key == "spec"
        tidied = value if whole else admission.tidy(value, key)
        if tidied is not None or key == "metadata":
            kept[key] = tidied if tidied is not None else {}
    return kept


def _begin_deletion(meta: dict[str, Any], grace: int | None, now: datetime, *, first: bool) -> bool:
    """Set or shorten the deletion's deadline; False when there is nothing to change."""
    if first:
        meta["deletionTimestamp"] = moments.stamp(now + timedelta(seconds=grace or 0))
        meta["deletionGracePeriodSeconds"] = grace or 0
        if "generation" in meta:
            meta["generation"] += 1
        return True
    held = meta.get("deletionGracePeriodSeconds", 0)
    if grace is None or grace >= held:
        return False
    begun = moments.parse(meta["deletionTimestamp"]) - timedelta(seconds=held)
    meta["deletionTimestamp"] = moments.stamp(begun + timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = grace
    return True


def _is_finished(document: Document) -> bool:
    meta = document["metadata"]
    if "deletionTimestamp" not in meta or meta.get("deletionGracePeriodSeconds") or meta.get("finalizers"):
        return False
    return document["kind"] != "Namespace" or not (document.get("spec") or {}).get("finalizers")


def _is_same(document: Document, before: Document) -> bool:
    ignored = ("kind", "apiVersion")
    return {k: v for k, v in document.items() if k not in ignored} == {k: v for k, v in before.items() if k not in ignored}


def _meaning(resource: Resource, document: Document) -> Any:
    """What a change of counts as a new generation."""
    ignored = {"kind", "apiVersion", "metadata"}
    if resource.custom is None or resource.status:
        ignored.add("status")
    return {key: value for key, value in document.items() if key not in ignored}
