"""Gets, lists with their pages and snapshots, and the beginning of watches."""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
from collections.abc import Mapping
from datetime import timedelta

import orjson

from simulator.api import errors
from simulator.api.errors import Cause
from simulator.api.storage.kinds import Resource
from simulator.api.storage.selectors import FieldTerm, Selection, select
from simulator.api.storage.store import ObjectKey, Record
from simulator.api.wire.routes import Target
from simulator.api.wire.views import ListHead, View, view_for
from simulator.api.wire.watch import Watch, WatchRequest
from simulator.api.writes.registry import Registry

Query = Mapping[str, str]

_POLL_SECONDS = 0.02


def truth(query: Query, name: str) -> bool:
    """A boolean parameter as Go reads one."""
    return query.get(name, "").lower() in ("1", "t", "true")


class Reading:
    """Answers every read from the registry's store."""

    def __init__(self, registry: Registry, *, patience: timedelta, bookmark_interval: timedelta) -> None:
        self._registry = registry
        self._store = registry.store
        # How long a read that asks for a resourceVersion of the future waits for it to come.
        self.patience = patience
        self.bookmark_interval = bookmark_interval

    async def get(self, target: Target, query: Query, accept: str) -> bytes:
        await self._reach(_revision(query))
        resource = target.resource
        record = self._registry.get(resource, target.namespace, target.name)
        return self._view(resource, query, accept).one(record)

    async def listing(self, target: Target, query: Query, accept: str) -> bytes:
        resource = target.resource
        selection = self.selection(target, query)
        limit = _number(query, "limit")
        after, revision = None, None
        if query.get("continue"):
            revision, after = _read_token(query["continue"])
        else:
            revision = self._snapshot_revision(query, limit)
        await self._reach(_revision(query))
        view = self._view(resource, query, accept)
        floor = self._store.collection(resource.storage).floor
        if revision is not None and revision < floor:
            told = (
                "The provided continue parameter is too old to display a consistent list result."
                if after
                else (f"The resourceVersion for the provided list is too old: {revision} ({floor})")
            )
            raise errors.expired(told)
        revision = None if revision == self._store.revision else revision
        records = self.records(resource, target.namespace, selection, revision=revision, after=after)
        shown = self._store.revision if revision is None else revision
        if not limit or len(records) <= limit:
            return view.listing(records, ListHead(revision=shown))
        page = records[:limit]
        token = _token(shown, page[-1].key)
        remaining = len(records) - limit if selection.everything else None
        return view.listing(page, ListHead(revision=shown, token=token, remaining=remaining))

    def records(
        self,
        resource: Resource,
        namespace: str,
        selection: Selection,
        *,
        revision: int | None = None,
        after: ObjectKey | None = None,
    ) -> list[Record]:
        """What a selection finds, in key order: now, or as it was at a revision that is still known."""
        collection = self._store.collection(resource.storage)
        if revision is not None:
            state = collection.at(revision)
            keys = sorted(key for key in state if (not namespace or key[0] == namespace) and (after is None or key > after))
        else:
            state = collection.records
            keys = collection.keys(namespace, after)
            for term in selection.fields:
                found = None if term.negated else collection.indexed(term.path, term.value)
                if found is not None:
                    keys = [key for key in found if (not namespace or key[0] == namespace)]
                    keys = [key for key in keys if after is None or key > after]
                    break
        if selection.everything:
            return [state[key] for key in keys]
        return [record for key in keys if selection.matches(record := state[key])]

    def selection(self, target: Target, query: Query) -> Selection:
        selection = select(target.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        if target.name:
            by_name = FieldTerm(path="metadata.name", value=target.name)
            return Selection(labels=selection.labels, fields=(*selection.fields, by_name))
        return selection

    async def watch(self, target: Target, query: Query, accept: str) -> Watch:
        """An open watch, its first events queued."""
        resource = target.resource
        selection = self.selection(target, query)
        asked = _revision(query)
        wants_initial = query.get("sendInitialEvents")
        match = query.get("resourceVersionMatch", "")
        if wants_initial is not None and match != "NotOlderThan":
            message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            cause = Cause(field="resourceVersionMatch", message=message, reason="FieldValueForbidden")
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
        if wants_initial is None and match:
            message = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            cause = Cause(field="resourceVersionMatch", message=message, reason="FieldValueForbidden")
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
        stream_list = truth(query, "sendInitialEvents")
        if stream_list:
            await self._reach(asked)
        fresh = asked in (None, 0)
        timeout = _number(query, "timeoutSeconds") or random.uniform(1800, 3600)
        bookmarks = truth(query, "allowWatchBookmarks")
        request = WatchRequest(
            resource=resource,
            namespace=target.namespace,
            selection=selection,
            revision=self._store.revision if fresh and wants_initial is not None else None if fresh else asked,
            initial_events=stream_list or (fresh and wants_initial is None),
            initial_events_end=stream_list and bookmarks,
            bookmarks=bookmarks,
            timeout_seconds=timeout,
        )
        watch = Watch(
            self._store,
            self._store.collection(resource.storage),
            request,
            self._view(resource, query, accept),
            bookmark_seconds=self.bookmark_interval.total_seconds(),
        )
        watch.begin(lambda: self.records(resource, target.namespace, selection))
        return watch

    def _view(self, resource: Resource, query: Query, accept: str) -> View:
        stored = self._registry.catalogue.stored(resource.storage) or resource
        return view_for(accept, resource, stored, include=query.get("includeObject") or "Metadata")

    def _snapshot_revision(self, query: Query, limit: int) -> int | None:
        """The exact revision that a list asks for, if it asks for one."""
        asked, match = _revision(query), query.get("resourceVersionMatch", "")
        if match == "Exact" and not asked:
            raise errors.bad_request("resourceVersionMatch Exact needs a resourceVersion that is not 0")
        if match and asked is None:
            raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match not in ("", "Exact", "NotOlderThan"):
            raise errors.bad_request(f"resourceVersionMatch {match!r} is neither Exact nor NotOlderThan")
        exact = match == "Exact" or (not match and limit and asked)
        return asked if exact else None

    async def _reach(self, revision: int | None) -> None:
        """Wait for a resourceVersion of the future; when it does not come, the client knows more than we do."""
        if not revision or revision <= self._store.revision:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience.total_seconds()
        while self._store.revision < revision:
            if loop.time() >= until:
                raise errors.too_large_resource_version(revision, self._store.revision)
            await asyncio.sleep(_POLL_SECONDS)


def _revision(query: Query) -> int | None:
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdigit():
        raise errors.bad_request(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text)


def _number(query: Query, name: str) -> int:
    text = query.get(name, "")
    if text and not text.isdigit():
        raise errors.bad_request(f"{name} {text!r} is not a number")
    return int(text or 0)


def _token(revision: int, key: ObjectKey) -> str:
    plain = orjson.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": list(key)})
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, ObjectKey]:
    try:
        plain = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = plain["start"]
        return int(plain["rv"]), (str(namespace), str(name))
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise errors.bad_request(f"continue key is not valid: {error}") from error
