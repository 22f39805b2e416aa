"""Reading a path: which resource, object and subresource a request is about."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.api import errors
from simulator.api.storage.kinds import Catalogue, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path under /api or /apis points at."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(catalogue: Catalogue, parts: list[str]) -> Target | None:
    """The target of a split path, or None where the path is one of discovery."""
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    else:
        group, version, rest = (parts[1] if len(parts) > 1 else ""), (parts[2] if len(parts) > 2 else ""), parts[3:]
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] == "status"):
        namespace, rest = rest[1], rest[2:]
    resource = catalogue.find(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise errors.no_such_page()
    name = rest[1] if len(rest) > 1 else ""
    if resource.namespaced and name and not namespace:
        raise errors.no_such_page()
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and not _serves(resource, subresource):
        raise errors.no_such_page()
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource)


def _serves(resource: Resource, subresource: str) -> bool:
    if subresource == "status":
        return resource.status
    return resource.scale if subresource == "scale" else subresource in resource.subresources


_ON_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_SUBRESOURCE = {"GET": "get", "PUT": "update", "PATCH": "patch"}


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """The verb that rights, faults and counters speak of; refuses what the target does not take."""
    if not target.name:
        verb = _ON_COLLECTION.get(method)
        # Objects of all namespaces can be listed, not created or deleted.
        if verb != "list" and target.resource.namespaced and not target.namespace:
            verb = None
    elif target.subresource in ("eviction", "binding", "token"):
        verb = "create" if method == "POST" else None
    else:
        verb = (_ON_SUBRESOURCE if target.subresource else _ON_OBJECT).get(method)
    if verb is None:
        raise errors.method_not_allowed()
    return "watch" if watch and verb in ("list", "get") and not target.subresource else verb
