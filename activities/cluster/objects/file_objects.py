"""Objects from files in the place of an API: the same paths and the same refusals, without any server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping

import orjson

from activities.cluster.api import paths
from activities.cluster.api.connection import JsonObject, Page, ServerVersion
from activities.cluster.api.paths import Resource
from activities.cluster.api.refusals import ObjectNotFound
from policy.dialects.head import DEFAULT_NAMESPACE

NEWEST = ServerVersion(major=1, minor=99)
"""Files do not say which server they are for: one that acts on the out-of-service taint."""

RESOURCES = tuple(each for each in vars(paths).values() if isinstance(each, Resource))


class FileObjects:
    """An `ApiReader`. `objects`: decoded documents, the last of a name holds, as for `kubectl apply`."""

    def __init__(self, objects: Iterable[JsonObject]) -> None:
        self._by_path: dict[str, JsonObject] = {}
        for obj in objects:
            for resource in RESOURCES:
                if (path := _path(resource, obj)) is not None:
                    self._by_path[path] = obj

    async def get(self, path: str) -> JsonObject:
        """The object at that path. Raises ObjectNotFound."""
        if path not in self._by_path:
            raise ObjectNotFound(f"{path} is not in the files")
        return self._by_path[path]

    async def get_bytes(self, path: str) -> bytes:
        """The same as JSON."""
        return orjson.dumps(await self.get(path))

    async def list_pages(self, path: str) -> AsyncGenerator[Page, None]:
        """Everything on one page."""
        body = orjson.dumps({"metadata": {}, "items": await self.list_objects(path)})
        yield Page(body=body, resource_version="", last=True)

    async def list_objects(self, path: str, *, label: tuple[str, str] | None = None) -> list[JsonObject]:
        """All objects of that collection, in all namespaces where the path names none."""
        listed = (obj for each, obj in self._by_path.items() if _collections(each, obj) & {path})
        return [obj for obj in listed if label is None or label in (obj["metadata"].get("labels") or {}).items()]

    async def server_version(self) -> ServerVersion:
        """None was asked."""
        return NEWEST


def _path(resource: Resource, obj: JsonObject) -> str | None:
    metadata = obj.get("metadata")
    if (obj.get("apiVersion"), obj.get("kind")) != (resource.api_version, resource.kind) or not isinstance(metadata, Mapping):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace") or DEFAULT_NAMESPACE
    if not isinstance(name, str) or not name or not isinstance(namespace, str):
        return None
    return resource.path(name, namespace=namespace if resource.namespaced else "")


def _collections(path: str, obj: JsonObject) -> set[str]:
    """The collection of the object's namespace, and that of all."""
    own = path.rpartition("/")[0]
    namespace = obj["metadata"].get("namespace") or DEFAULT_NAMESPACE
    return {own, own.replace(f"/namespaces/{namespace}/", "/")}
