"""What etcd and the watch cache do for a real API server, in memory and in one process.

Records are immutable and carry their encoded bytes, made once per write: lists are joins of these bytes, and every
watcher shares them. One counter gives every write of the whole cluster its resourceVersion. Each collection keeps a
log of changes with a floor; a request for something below the floor is answered as expired.

The store knows nothing of what a write means: that is `writes/registry.py`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from simulator.api.storage.kinds import StorageKey

ObjectKey = tuple[str, str]  # namespace ("" for the cluster's own), name
Document = dict[str, Any]

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

# Field selectors that are asked so often, over so many objects, that a scan would hurt.
_INDEXED: dict[StorageKey, tuple[str, ...]] = {
    ("", "pods"): ("spec.nodeName",),
    ("", "events"): ("involvedObject.name",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One version of one object. `document` is shared: never change it in place, take `copy()`."""

    namespace: str
    name: str
    revision: int
    document: Document
    body: bytes

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.document["metadata"].get("labels") or {}
        return labels

    @property
    def uid(self) -> str:
        uid: str = self.document["metadata"]["uid"]
        return uid

    def copy(self) -> Document:
        copied: Document = orjson.loads(self.body)
        return copied


@dataclass(slots=True, kw_only=True)
class Change:
    """One entry of a collection's log; its frames on the wire are made on first use and shared by all watchers."""

    revision: int
    type: str
    record: Record
    previous: Record | None
    frames: dict[tuple[str, bytes], bytes] = field(default_factory=dict)


class Watcher(Protocol):
    """Who is told of every change of a collection, in order, in the same step as the write."""

    def offer(self, change: Change) -> None: ...

    def cut(self) -> None: ...


def value_at(document: Document, path: str) -> Any:
    """The value at a dotted path, or None."""
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


class Collection:
    """All objects of one kind, in key order, with their log."""

    def __init__(self, storage: StorageKey, *, floor: int, history: int) -> None:
        self.storage = storage
        self.records: dict[ObjectKey, Record] = {}
        self.watchers: set[Watcher] = set()
        self.floor = floor
        self.history = history
        self._order: list[ObjectKey] = []
        self._log: deque[Change] = deque()
        self._indexes: dict[str, dict[str, set[ObjectKey]]] = {path: {} for path in _INDEXED.get(storage, ())}

    def __len__(self) -> int:
        return len(self.records)

    def keys(self, namespace: str = "", after: ObjectKey | None = None) -> list[ObjectKey]:
        """Keys in order: of one namespace or of all, from the first after a given key on."""
        if namespace:
            start, end = bisect_left(self._order, (namespace, "")), bisect_left(self._order, (namespace + "\0", ""))
        else:
            start, end = 0, len(self._order)
        if after is not None:
            start = max(start, bisect_left(self._order, (after[0], after[1] + "\0")))
        return self._order[start:end]

    def indexed(self, path: str, value: str) -> list[ObjectKey] | None:
        """Keys of the objects with this value at this path, or None when there is no such index."""
        index = self._indexes.get(path)
        return None if index is None else sorted(index.get(value, ()))

    def since(self, revision: int) -> Iterator[Change]:
        """Changes newer than a revision, oldest first."""
        newer: list[Change] = []
        for change in reversed(self._log):
            if change.revision <= revision:
                break
            newer.append(change)
        return reversed(newer)

    def at(self, revision: int) -> dict[ObjectKey, Record]:
        """The collection as it was: today's state with every newer change undone."""
        state = dict(self.records)
        for change in reversed(self._log):
            if change.revision <= revision:
                break
            if change.previous is None:
                state.pop(change.record.key, None)
            else:
                state[change.record.key] = change.previous
        return state

    def commit(self, change: Change) -> None:
        key = change.record.key
        if change.previous is not None:
            self._unindex(change.previous)
        if change.type == DELETED:
            del self.records[key]
            del self._order[bisect_left(self._order, key)]
        else:
            if change.previous is None:
                insort(self._order, key)
            self.records[key] = change.record
            self._index(change.record)
        self._log.append(change)
        if len(self._log) > self.history:
            self.floor = self._log.popleft().revision
        for watcher in tuple(self.watchers):
            watcher.offer(change)

    def reset(self, records: dict[ObjectKey, Record], floor: int) -> None:
        self.records = dict(records)
        self._order = sorted(records)
        self._log.clear()
        self.floor = floor
        for index in self._indexes.values():
            index.clear()
        for record in records.values():
            self._index(record)

    def forget(self, floor: int) -> None:
        """Drop the log up to a revision, as a compaction of etcd does."""
        while self._log and self._log[0].revision <= floor:
            self._log.popleft()
        self.floor = max(self.floor, floor)

    def _index(self, record: Record) -> None:
        for path, index in self._indexes.items():
            index.setdefault(str(value_at(record.document, path) or ""), set()).add(record.key)

    def _unindex(self, record: Record) -> None:
        for path, index in self._indexes.items():
            value = str(value_at(record.document, path) or "")
            keys = index[value]
            keys.discard(record.key)
            if not keys:
                del index[value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A backup of the store, as `etcdctl snapshot save` makes one."""

    revision: int
    collections: dict[StorageKey, dict[ObjectKey, Record]]


class Store:
    """Every collection of the cluster under one resourceVersion counter."""

    def __init__(self, *, history: int = 10_000, first_revision: int = 1_000) -> None:
        self.revision = first_revision
        self.history = history
        self.collections: dict[StorageKey, Collection] = {}
        # Told of every change after the watchers, in the same step: definitions and the small controllers.
        self.listeners: list[Callable[[StorageKey, Change], None]] = []
        # Told after a restore, when everything derived from the store must be built anew.
        self.restored: list[Callable[[], None]] = []
        self._dependents: dict[str, set[tuple[StorageKey, ObjectKey]]] = {}
        self._compacted = first_revision

    def collection(self, storage: StorageKey) -> Collection:
        found = self.collections.get(storage)
        if found is None:
            found = self.collections[storage] = Collection(storage, floor=self._compacted, history=self.history)
        return found

    def get(self, storage: StorageKey, namespace: str, name: str) -> Record | None:
        collection = self.collections.get(storage)
        return None if collection is None else collection.records.get((namespace, name))

    def documents(self, plural: str, group: str = "", namespace: str = "") -> list[Document]:
        """Objects of one kind for callers in the same process; shared, so only to be read."""
        collection = self.collection((group, plural))
        return [collection.records[key].document for key in collection.keys(namespace)]

    def put(self, storage: StorageKey, document: Document) -> Record:
        """Write a new version of an object; `document` belongs to the store from here on."""
        metadata = document["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        collection = self.collection(storage)
        previous = collection.records.get(key)
        record = self._record(key, document)
        self._commit(collection, MODIFIED if previous else ADDED, record, previous)
        return record

    def remove(self, storage: StorageKey, namespace: str, name: str) -> Record:
        """Delete an object; its last version carries the resourceVersion of the deletion."""
        collection = self.collection(storage)
        previous = collection.records[(namespace, name)]
        document = {**previous.document, "metadata": dict(previous.document["metadata"])}
        last = self._record(previous.key, document)
        self._commit(collection, DELETED, last, previous)
        return last

    def dependents(self, uid: str) -> list[tuple[StorageKey, ObjectKey]]:
        """Objects that name this uid among their owners."""
        return sorted(self._dependents.get(uid, ()))

    def compact(self) -> None:
        """Forget all history: every older resourceVersion has expired."""
        self._compacted = self.revision
        for collection in self.collections.values():
            collection.forget(self.revision)

    def cut_watches(self) -> None:
        for collection in self.collections.values():
            for watcher in tuple(collection.watchers):
                watcher.cut()

    def snapshot(self) -> Snapshot:
        saved = {storage: dict(collection.records) for storage, collection in self.collections.items()}
        return Snapshot(revision=self.revision, collections=saved)

    def restore(self, snapshot: Snapshot) -> None:
        """Become what the backup was, resourceVersion included: numbers given out since will be given out again."""
        self.cut_watches()
        self.revision = self._compacted = snapshot.revision
        self._dependents.clear()
        for storage in {*self.collections, *snapshot.collections}:
            records = snapshot.collections.get(storage, {})
            self.collection(storage).reset(records, snapshot.revision)
            for record in records.values():
                self._own(storage, record)
        for rebuilt in self.restored:
            rebuilt()

    def _record(self, key: ObjectKey, document: Document) -> Record:
        self.revision += 1
        document["metadata"]["resourceVersion"] = str(self.revision)
        return Record(namespace=key[0], name=key[1], revision=self.revision, document=document, body=orjson.dumps(document))

    def _commit(self, collection: Collection, change_type: str, record: Record, previous: Record | None) -> None:
        if previous is not None:
            self._disown(collection.storage, previous)
        if change_type != DELETED:
            self._own(collection.storage, record)
        change = Change(revision=record.revision, type=change_type, record=record, previous=previous)
        collection.commit(change)
        for listener in self.listeners:
            listener(collection.storage, change)

    def _own(self, storage: StorageKey, record: Record) -> None:
        for uid in _owners(record):
            self._dependents.setdefault(uid, set()).add((storage, record.key))

    def _disown(self, storage: StorageKey, record: Record) -> None:
        for uid in _owners(record):
            held = self._dependents.get(uid)
            if held is not None:
                held.discard((storage, record.key))
                if not held:
                    del self._dependents[uid]


def _owners(record: Record) -> Iterable[str]:
    return [owner["uid"] for owner in record.document["metadata"].get("ownerReferences") or () if owner.get("uid")]
