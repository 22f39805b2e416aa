"""What follows a deletion: dependents go with their last owner, and a terminating namespace is emptied.

In a real cluster the controller manager does this; it is here because clients see it as part of deleting. Only owners
that were deleted here count: an object that names an owner that never existed is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from simulator.api.errors import ApiError
from simulator.api.storage.kinds import Resource, StorageKey
from simulator.api.storage.store import DELETED, Change, Document, ObjectKey, Record
from simulator.api.writes.registry import FOREGROUND, ORPHAN, DeleteOptions, Registry

log = logging.getLogger(__name__)

Place = tuple[StorageKey, ObjectKey]

_NAMESPACES: StorageKey = ("", "namespaces")
_OPTIONS = DeleteOptions(propagation="Background")


class Garbage:
    """Collects what has lost its owner or its namespace, shortly after the write that caused it."""

    def __init__(self, registry: Registry, *, delay: timedelta) -> None:
        self._registry = registry
        self._store = registry.store
        self._delay = delay.total_seconds()
        self._lost_owners: set[str] = set()
        self._waiting: set[Place] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store.listeners.append(self._changed)
        self._store.restored.append(self._restored)
        registry.before_delete[_NAMESPACES] = _terminate

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop = None

    def _restored(self) -> None:
        self._lost_owners.clear()
        self._waiting.clear()

    def _changed(self, storage: StorageKey, change: Change) -> None:
        record = change.record
        metadata = record.document["metadata"]
        place = (storage, record.key)
        if change.type == DELETED:
            self._waiting.discard(place)
            self._lost_owners.add(record.uid)
            self._schedule()
        elif "deletionTimestamp" in metadata:
            finalizers = metadata.get("finalizers") or ()
            if storage == _NAMESPACES or FOREGROUND in finalizers or ORPHAN in finalizers:
                self._waiting.add(place)
                self._schedule()

    def _schedule(self) -> None:
        if self._loop is not None and self._timer is None and (self._lost_owners or self._waiting):
            self._timer = self._loop.call_later(self._delay, self._collect)

    def _collect(self) -> None:
        self._timer = None
        lost, self._lost_owners = self._lost_owners, set()
        for place in [place for uid in lost for place in self._store.dependents(uid)]:
            self._attempt(place, lambda resource, record: self._lose(resource, record, lost))
        for place in list(self._waiting):
            if self._store.get(place[0], *place[1]) is None:
                self._waiting.discard(place)
            elif place[0] == _NAMESPACES:
                self._attempt(place, lambda _resource, record: self._empty(record))
            else:
                self._attempt(place, self._release)

    def _attempt(self, place: Place, act: Callable[[Resource, Record], None]) -> None:
        """One object that cannot be collected (its schema may have changed) does not keep the others."""
        record, resource = self._store.get(place[0], *place[1]), self._registry.catalogue.stored(place[0])
        if record is None or resource is None:
            return
        try:
            act(resource, record)
        except ApiError as error:
            log.warning("garbage collection of %s %s/%s: %s", resource.plural, *record.key, error)

    def _lose(self, resource: Resource, record: Record, lost: set[str]) -> None:
        """Delete a dependent without owners; one that has others loses only the reference."""
        owners = record.document["metadata"].get("ownerReferences") or []
        if any(owner.get("uid") not in lost for owner in owners):
            self._free(resource, record, lost)
        elif "deletionTimestamp" not in record.document["metadata"]:
            self._registry.delete(resource, *record.key, _OPTIONS)

    def _free(self, resource: Resource, record: Record, owners: set[str]) -> None:
        def without(document: Document) -> Document:
            held = document["metadata"].get("ownerReferences") or []
            document["metadata"]["ownerReferences"] = [owner for owner in held if owner.get("uid") not in owners]
            return document

        self._registry.patch(resource, *record.key, without)

    def _release(self, resource: Resource, owner: Record) -> None:
        """Foreground: first the dependents, then the owner. Orphan: dependents are freed, then the owner goes."""
        finalizers = set(owner.document["metadata"].get("finalizers") or ())
        if not {FOREGROUND, ORPHAN} & finalizers:
            self._waiting.discard((resource.storage, owner.key))
            return
        leave = self._free if ORPHAN in finalizers else self._lose
        for place in self._store.dependents(owner.uid):
            self._attempt(place, lambda kind, dependent: leave(kind, dependent, {owner.uid}))
        if any(self._blocks(place, owner.uid) for place in self._store.dependents(owner.uid)):
            return

        def done(document: Document) -> Document:
            held = document["metadata"].get("finalizers") or ()
            document["metadata"]["finalizers"] = [each for each in held if each not in (FOREGROUND, ORPHAN)]
            return document

        self._registry.patch(resource, *owner.key, done)

    def _blocks(self, place: Place, uid: str) -> bool:
        dependent = self._store.get(place[0], *place[1])
        owners = dependent.document["metadata"].get("ownerReferences") if dependent else None
        return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners or ())

    def _empty(self, namespace: Record) -> None:
        """Delete what a terminating namespace holds; it goes itself when nothing is left and no finalizer holds it."""
        left = 0
        for storage, collection in list(self._store.collections.items()):
            resource = self._registry.catalogue.stored(storage)
            if resource is None or not resource.namespaced:
                continue
            for key in collection.keys(namespace.name):
                if "deletionTimestamp" not in collection.records[key].document["metadata"]:
                    self._attempt((storage, key), lambda kind, held: _delete(self._registry, kind, held))
            left += len(collection.keys(namespace.name))
        if not left and not namespace.document["metadata"].get("finalizers"):
            self._store.remove(_NAMESPACES, "", namespace.name)


def _delete(registry: Registry, resource: Resource, record: Record) -> None:
    registry.delete(resource, *record.key, _OPTIONS)


def _terminate(document: Document) -> None:
    document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
