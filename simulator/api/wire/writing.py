"""Creates, updates, patches, deletes and the small subresources: from the bytes of a request to a registry call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
import yaml

from simulator.api import errors, moments
from simulator.api.access.authorization import Access, Authorization
from simulator.api.errors import Cause
from simulator.api.storage.store import Document, Record, value_at
from simulator.api.wire import protobuf
from simulator.api.wire.reading import Query, Reading, truth
from simulator.api.wire.routes import Target
from simulator.api.wire.views import ListHead, PlainView, view_for
from simulator.api.writes.apply import Applied
from simulator.api.writes.eviction import bind, evict, read_delete_options
from simulator.api.writes.patch import json_patch, merge_patch, strategic_merge_patch
from simulator.api.writes.registry import DeleteOptions, Registry, WriteOptions

TOKEN_SECONDS, LEAST_TOKEN_SECONDS = 3600, 600
_JSON = "application/json"
_YAML = "application/yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_PATCHES = (_JSON_PATCH, _MERGE, _STRATEGIC, _APPLY)


class _JsonLikeLoader(yaml.CSafeLoader):
    """YAML with the scalars of JSON: no dates."""


_JsonLikeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The answer to a write."""

    status: int
    body: bytes


def decode(body: bytes, content_type: str) -> Any:
    """The document in a request's body."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind in (_JSON, ""):
            return orjson.loads(body)
        if kind in (_YAML, "application/x-yaml"):
            return yaml.load(body, Loader=_JsonLikeLoader)  # noqa: S506 -- a SafeLoader without dates
        if kind == protobuf.MEDIA_TYPE:
            return protobuf.read(body)
    except protobuf.UnreadableError as error:
        raise errors.unsupported_media_type([_JSON, _YAML]) from error
    except (orjson.JSONDecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from error
    raise errors.unsupported_media_type([_JSON, _YAML])


class Writing:
    """Answers every request that changes something."""

    def __init__(self, registry: Registry, reading: Reading, authorization: Authorization) -> None:
        self._registry = registry
        self._reading = reading
        self._authorization = authorization
        self._applied = Applied()

    def create(self, target: Target, query: Query, document: Any, accept: str) -> Written:
        if not isinstance(document, dict):
            raise errors.bad_request("the body of the request is not an object")
        options = _write_options(query)
        if target.subresource == "token":
            return self._token(target, document)
        if target.subresource in ("eviction", "binding"):
            act = evict if target.subresource == "eviction" else bind
            answer = act(self._registry, target.namespace, target.name, document, dry_run=options.dry_run)
            return Written(status=201, body=orjson.dumps(answer))
        record = self._registry.create(target.resource, target.namespace, document, options)
        return Written(status=201, body=self._shown(target, record, accept))

    def update(self, target: Target, query: Query, document: Any, accept: str) -> Written:
        options = _write_options(query)
        if target.subresource == "scale":
            return self._scale(target, options, lambda _current: document)
        record, created = self._registry.update(
            target.resource,
            target.namespace,
            target.name,
            document,
            status=target.subresource == "status",
            options=options,
        )
        return Written(status=201 if created else 200, body=self._shown(target, record, accept))

    def patch(self, target: Target, query: Query, body: bytes, content_type: str, accept: str) -> Written:
        kind = content_type.partition(";")[0].strip().lower()
        custom = target.resource.custom is not None
        accepted = [each for each in _PATCHES if not (custom and each == _STRATEGIC)]
        if kind not in accepted:
            raise errors.unsupported_media_type(accepted)
        if kind == _APPLY:
            return self._apply(target, query, decode(body, _YAML), accept)
        sent = decode(body, _JSON)
        change = _change(kind, target.resource.kind, sent)
        options = _write_options(query)
        if target.subresource == "scale":
            return self._scale(target, options, change)
        record = self._registry.patch(
            target.resource,
            target.namespace,
            target.name,
            change,
            status=target.subresource == "status",
            options=options,
        )
        return Written(status=200, body=self._shown(target, record, accept))

    def _apply(self, target: Target, query: Query, sent: Any, accept: str) -> Written:
        """Server-side apply: creates what is missing."""
        manager, options = query.get("fieldManager", ""), _write_options(query)
        if not manager:
            raise errors.bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        if not isinstance(sent, dict):
            raise errors.bad_request("error decoding patch: the configuration is not an object")
        resource, where = target.resource, (target.namespace, target.name)
        there = self._registry.store.get(resource.storage, *where)
        if there is None:
            record = self._registry.create(resource, target.namespace, sent, options)
        else:
            uid = there.uid
            record = self._registry.patch(
                resource,
                *where,
                lambda current: self._applied.merged(uid, manager, resource.kind, current, sent),
                status=target.subresource == "status",
                options=options,
            )
        if not options.dry_run:
            self._applied.remember(record.uid, manager, sent)
        return Written(status=201 if there is None else 200, body=self._shown(target, record, accept))

    def delete(self, target: Target, query: Query, sent: Any) -> Written:
        resource = target.resource
        options = _delete_options(query, sent)
        deletion = self._registry.delete(resource, target.namespace, target.name, options)
        if resource.deletion_answers_object or not deletion.gone:
            return Written(status=200, body=self._shown(target, deletion.record, _JSON))
        details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": deletion.record.uid}
        if not resource.group:
            del details["group"]
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Written(status=200, body=orjson.dumps(status))

    def delete_collection(self, target: Target, query: Query, sent: Any) -> Written:
        resource = target.resource
        options = _delete_options(query, sent)
        selection = self._reading.selection(target, query)
        records = self._reading.records(resource, target.namespace, selection)
        deleted = [self._registry.delete(resource, record.namespace, record.name, options).record for record in records]
        stored = self._registry.catalogue.stored(resource.storage) or resource
        head = ListHead(revision=self._registry.store.revision)
        return Written(status=200, body=PlainView(resource, stored).listing(deleted, head))

    def scale(self, target: Target) -> bytes:
        record = self._registry.get(target.resource, target.namespace, target.name)
        return orjson.dumps(_scale_of(target, record))

    def review(self, plural: str, user: str, document: Any) -> Written:
        """A question about rights, or about an identity: answered, not stored."""
        spec = (document or {}).get("spec") or {}
        if plural == "selfsubjectreviews":
            return Written(status=201, body=orjson.dumps({**document, "status": {"userInfo": {"username": user}}}))
        if plural == "tokenreviews":
            known = self._authorization.user(f"Bearer {spec.get('token', '')}")
            status = {"authenticated": True, "user": {"username": known}} if known else {"authenticated": False}
            return Written(status=201, body=orjson.dumps({**document, "status": status}))
        asked = spec.get("resourceAttributes")
        allowed = False
        if asked is not None:
            access = Access(
                verb=asked.get("verb", ""),
                group=asked.get("group", ""),
                resource=asked.get("resource", ""),
                subresource=asked.get("subresource", ""),
                namespace=asked.get("namespace", ""),
                name=asked.get("name", ""),
            )
            allowed = self._authorization.allows(spec.get("user", user), access)
        elif (path := spec.get("nonResourceAttributes")) is not None:
            access = Access(verb=path.get("verb", ""), group="", resource="", path=path.get("path", ""))
            allowed = self._authorization.allows(spec.get("user", user), access)
        return Written(status=201, body=orjson.dumps({**document, "status": {"allowed": allowed}}))

    def _token(self, target: Target, document: Document) -> Written:
        """A token of a ServiceAccount, for as long as was asked."""
        self._registry.get(target.resource, target.namespace, target.name)
        spec = document.get("spec") or {}
        seconds = spec.get("expirationSeconds") or TOKEN_SECONDS
        if not isinstance(seconds, int) or seconds < LEAST_TOKEN_SECONDS:
            message = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            raise errors.invalid(
                "authentication.k8s.io", "TokenRequest", "", [Cause(field="spec.expirationSeconds", message=message)]
            )
        user = f"system:serviceaccount:{target.namespace}:{target.name}"
        token, ends = self._authorization.issue(user, timedelta(seconds=seconds))
        status = {"token": token, "expirationTimestamp": moments.stamp(ends)}
        answered = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", **document, "status": status}
        return Written(status=201, body=orjson.dumps(answered | {"spec": spec | {"expirationSeconds": seconds}}))

    def _scale(self, target: Target, options: WriteOptions, change: Callable[[Document], Any]) -> Written:
        paths = target.resource.custom.scale if target.resource.custom else None
        where = paths.spec_replicas if paths else "spec.replicas"

        def resize(document: Document) -> Document:
            current = self._registry.get(target.resource, target.namespace, target.name)
            scaled = change(_scale_of(target, current))
            given = value_at(scaled, "metadata.resourceVersion")
            if given and given != document["metadata"]["resourceVersion"]:
                raise errors.conflict(target.resource.group, target.resource.plural, target.name)
            replicas = value_at(scaled, "spec.replicas") or 0
            if not isinstance(replicas, int) or replicas < 0:
                message = f"Invalid value: {replicas}: must be greater than or equal to 0"
                cause = Cause(field="spec.replicas", message=message)
                raise errors.invalid("autoscaling", "Scale", target.name, [cause])
            *above, last = where.split(".")
            holder = document
            for part in above:
                holder = holder.setdefault(part, {})
            holder[last] = replicas
            return document

        record = self._registry.patch(target.resource, target.namespace, target.name, resize, options=options)
        return Written(status=200, body=orjson.dumps(_scale_of(target, record)))

    def _shown(self, target: Target, record: Record, accept: str) -> bytes:
        stored = self._registry.catalogue.stored(target.resource.storage) or target.resource
        return view_for(accept, target.resource, stored).one(record)


def _change(kind: str, resource_kind: str, sent: Any) -> Callable[[Document], Any]:
    if kind == _JSON_PATCH:
        return lambda current: json_patch(current, sent)
    if not isinstance(sent, dict):
        raise errors.bad_request("error decoding patch: the patch is not an object")
    if kind == _MERGE:
        return lambda current: merge_patch(current, sent)
    return lambda current: strategic_merge_patch(resource_kind, current, sent)


def _write_options(query: Query) -> WriteOptions:
    return WriteOptions(dry_run=_dry_run(query), strict=query.get("fieldValidation") == "Strict")


def _dry_run(query: Query) -> bool:
    asked = query.get("dryRun", "")
    if asked not in ("", "All"):
        raise errors.bad_request(f'Invalid value: "{asked}": dryRun supports only "All"')
    return asked == "All"


def _delete_options(query: Query, sent: Any) -> DeleteOptions:
    merged = dict(sent) if isinstance(sent, dict) else {}
    if "gracePeriodSeconds" in query:
        if not query["gracePeriodSeconds"].lstrip("-").isdigit():
            raise errors.bad_request("gracePeriodSeconds is not a number")
        merged["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
    if "propagationPolicy" in query:
        merged["propagationPolicy"] = query["propagationPolicy"]
    if truth(query, "orphanDependents"):
        merged["orphanDependents"] = True
    return read_delete_options(merged, dry_run=_dry_run(query))


def _scale_of(target: Target, record: Record) -> Document:
    document = record.document
    paths = target.resource.custom.scale if target.resource.custom else None
    wanted = paths.spec_replicas if paths else "spec.replicas"
    actual = paths.status_replicas if paths else "status.replicas"
    metadata: Mapping[str, Any] = document["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Document = {"replicas": value_at(document, actual) or 0}
    labels = value_at(document, "spec.selector.matchLabels") if not paths else None
    if labels:
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    elif paths and paths.label_selector:
        status["selector"] = value_at(document, paths.label_selector) or ""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": value_at(document, wanted) or 0},
        "status": status,
    }
