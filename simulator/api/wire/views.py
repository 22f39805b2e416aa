"""The shapes a client can ask for in Accept: the object itself, its metadata alone, or a Table for people.

The plain shape is the fast one: it cuts and joins bytes that were encoded when the object was written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson

from simulator.api.storage.kinds import Resource
from simulator.api.storage.store import Change, Document, Record
from simulator.api.wire.tables import table
from simulator.api.writes.schema import as_read


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHead:
    """The metadata of a list."""

    revision: int
    token: str = ""
    remaining: int | None = None

    def document(self) -> dict[str, Any]:
        head: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.token:
            head["continue"] = self.token
        if self.remaining is not None:
            head["remainingItemCount"] = self.remaining
        return head


class View(Protocol):
    """One shape of objects, lists and watch events."""

    def one(self, record: Record) -> bytes: ...

    def listing(self, records: list[Record], head: ListHead) -> bytes: ...

    def event(self, kind: str, record: Record, change: Change | None = None, /) -> bytes: ...


def frame(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


class PlainView:
    """Objects as they are, in the asked version."""

    def __init__(self, resource: Resource, stored: Resource) -> None:
        self._resource = resource
        self._prefix = resource.prefix
        self._cut = len(stored.prefix)
        self._exchange = resource.prefix != stored.prefix
        # Items of built-in lists carry no kind and apiVersion of their own, custom ones do.
        self._bare = resource.custom is None
        self._list_prefix = f'{{"kind":"{resource.list_kind}","apiVersion":"{resource.api_version}","metadata":'.encode()

    def one(self, record: Record) -> bytes:
        body = as_read(record, self._resource).body
        return self._prefix + body[self._cut :] if self._exchange else body

    def listing(self, records: list[Record], head: ListHead) -> bytes:
        if self._bare:
            cut = self._cut
            items = b",".join([b"{" + record.body[cut:] for record in records])
        else:
            items = b",".join([self.one(record) for record in records])
        return self._list_prefix + orjson.dumps(head.document()) + b',"items":[' + items + b"]}"

    def event(self, kind: str, record: Record, change: Change | None = None, /) -> bytes:
        if change is None or change.record is not record:
            return frame(kind, self.one(record))
        made = change.frames.get((kind, self._prefix))
        if made is None:
            made = change.frames[kind, self._prefix] = frame(kind, self.one(record))
        return made


class MetadataView:
    """PartialObjectMetadata: what an informer of metadata reads."""

    def _partial(self, record: Record) -> Document:
        metadata = record.document["metadata"]
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}

    def one(self, record: Record) -> bytes:
        return orjson.dumps(self._partial(record))

    def listing(self, records: list[Record], head: ListHead) -> bytes:
        items = [self._partial(record) for record in records]
        shape = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return orjson.dumps({**shape, "metadata": head.document(), "items": items})

    def event(self, kind: str, record: Record, _change: Change | None = None, /) -> bytes:
        return frame(kind, self.one(record))


class TableView:
    """Tables, as `kubectl get` prints them; in a watch only the first event names the columns."""

    def __init__(self, resource: Resource, include: str) -> None:
        self._resource = resource
        self._include = include
        self._columns_told = False

    def one(self, record: Record) -> bytes:
        return self._encoded([record], {"resourceVersion": str(record.revision)})

    def listing(self, records: list[Record], head: ListHead) -> bytes:
        return self._encoded(records, head.document())

    def event(self, kind: str, record: Record, _change: Change | None = None, /) -> bytes:
        head = {"resourceVersion": str(record.revision)}
        told, self._columns_told = self._columns_told, True
        return frame(kind, self._encoded([record], head, columns=not told))

    def _encoded(self, records: list[Record], head: dict[str, Any], *, columns: bool = True) -> bytes:
        records = [as_read(each, self._resource) for each in records]
        return orjson.dumps(table(self._resource, records, head, include=self._include, columns=columns))


def view_for(accept: str, resource: Resource, stored: Resource, *, include: str = "Metadata") -> View:
    """The first shape in an Accept header that is served here; `include` is what the rows of a Table carry."""
    if "as=" in accept:
        for offer in accept.split(","):
            if "as=Table" in offer:
                return TableView(resource, include)
            if "as=PartialObjectMetadata" in offer:
                return MetadataView()
    return PlainView(resource, stored)


def with_revision(record: Record, revision: int) -> Record:
    """The same object under a newer resourceVersion, as a watch shows what has left its selection."""
    metadata = {**record.document["metadata"], "resourceVersion": str(revision)}
    document = {**record.document, "metadata": metadata}
    return replace(record, revision=revision, document=document, body=orjson.dumps(document))
