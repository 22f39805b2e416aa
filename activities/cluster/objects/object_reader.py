"""What reading needs of a cluster: one object, all of a kind, the server's version. Live it is a connection, offline it is files.

All that only reads asks for this, so that what is decided about a live cluster can be tried on manifests that were never applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
import orjson

from activities.cluster.api import paths
from activities.cluster.api.connection import ClusterConnection, JsonObject, Page, ServerVersion
from activities.cluster.api.paths import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, Resource, versions_of
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import Connections
from activities.cluster.objects.decoding import Decoding
from activities.errors import ErrorType, failure
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.objects.machines import counting_namespaces

T = TypeVar("T")


class ApiReader(Protocol):
    """Objects by their path in the API (`api/paths.py`)."""

    async def get(self, path: str) -> JsonObject:
        """One object. Errors: ObjectNotFound, and whatever kept us from reading."""

    async def get_bytes(self, path: str) -> bytes:
        """One object as it came, for the decoders of `decoding.py`. Errors: as `get`."""

    def list_pages(self, path: str) -> AsyncGenerator[Page, None]:
        """A collection page by page, for those decoders."""

    async def list_objects(self, path: str, *, label: tuple[str, str] | None = None) -> list[JsonObject]:
        """All objects of a collection, or those with that label. Errors: ObjectNotFound where the kind is not there."""

    async def server_version(self) -> ServerVersion:
        """Of the API server."""

    @property
    def lacks(self) -> Callable[[Resource], bool]:
        """Whether it is known not to define a kind at this moment, so that nothing of it need be asked for."""


Readers = Connections[ApiReader]
"""Which API server is read: the nodes', or where Cluster API's objects are."""


async def read_views(connection: ApiReader, resource: Resource, decoding: Decoding[T]) -> list[T]:
    try:
        pages = connection.list_pages(resource.path())
        return [item.value async for page in pages for item in decoding.items(page.body)]
    except msgspec.DecodeError as error:
        raise failure(
            ErrorType.NOT_SUPPORTED, f"{resource.plural}: expected a list of them, got something else: {error}"
        ) from error


async def list_counting(
    reader: ApiReader, resource: Resource, namespaces: Collection[str], *, label: tuple[str, str] | None = None
) -> list[JsonObject]:
    """All objects of a kind of Machines, their sets or their checks that count, where these namespaces are named; or those with
    that label."""
    paths = [resource.path(namespace=place) for place in counting_namespaces(resource.api_version, namespaces)]
    return [resource.whole(each) for path in paths for each in await reader.list_objects(path, label=label)]


# An API that is asked each thing once: for work that needs the same objects for many nodes, or for several questions, in one go.
#
# What it says is as old as itself, so it lives for one listing or for one last look, which reads all side by side (S20).


class ReadOnce(ApiReader):
    """Remembers objects, lists, and what is not there. Other failures are not remembered."""

    def __init__(self, reader: ApiReader) -> None:
        self._reader = reader
        self._found: dict[tuple[str, str], Any] = {}
        self._asking: dict[tuple[str, str], asyncio.Lock] = {}

    async def get(self, path: str) -> JsonObject:
        """As it was when first asked for."""
        return await self._once("get", path, self._reader.get)

    async def get_bytes(self, path: str) -> bytes:
        """As it was when first asked for."""
        return await self._once("bytes", path, self._reader.get_bytes)

    async def list_pages(self, path: str) -> AsyncGenerator[Page, None]:
        """As it was when first asked for."""

        async def pages(path: str) -> list[Page]:
            return [page async for page in self._reader.list_pages(path)]

        for page in await self._once("pages", path, pages):
            yield page

    async def list_objects(self, path: str, *, label: tuple[str, str] | None = None) -> list[JsonObject]:
        """As it was when first asked for."""

        async def listed(path: str) -> list[JsonObject]:
            return await self._reader.list_objects(path, label=label)

        return await self._once(f"list {label}", path, listed)

    async def server_version(self) -> ServerVersion:
        """Of the API server."""
        return await self._reader.server_version()

    @property
    def lacks(self) -> Callable[[Resource], bool]:
        """Of the API server."""
        return self._reader.lacks

    async def _once(self, how: str, path: str, ask: Callable[[str], Awaitable[T]]) -> T:
        key = (how, path)
        async with self._asking.setdefault(key, asyncio.Lock()):  # a second question waits for the answer to the first
            if key not in self._found:
                try:
                    self._found[key] = await ask(path)
                except ObjectNotFound as error:
                    self._found[key] = error
        found = self._found[key]
        if isinstance(found, ObjectNotFound):
            raise found
        answer: T = found
        return answer


def reading_once(connections: Connections[ClusterConnection]) -> Readers:
    """Both of them, or one for both where they are the same."""
    nodes = ReadOnce(connections.nodes)
    machines = nodes if connections.machines is connections.nodes else ReadOnce(connections.machines)
    return Connections(nodes=nodes, machines=machines, machine_namespaces=connections.machine_namespaces)


# Objects from files in the place of an API: the same paths and the same refusals, without any server.

NEWEST = ServerVersion(major=1, minor=99)
"""Files do not say which server they are for: one that acts on the out-of-service taint."""

_OF_MACHINE_APIS = (each for kind in (MACHINES, MACHINE_SETS, MACHINE_DEPLOYMENTS) for each in kind.values())
SERVED = {
    (version.api_version, version.kind): versions_of(resource)
    for resource in (*vars(paths).values(), *_OF_MACHINE_APIS)
    if isinstance(resource, Resource)
    for version in versions_of(resource)
}
"""Of each kind, by one of its versions, all."""


class FileObjects:
    """An `ApiReader`. `objects`: decoded documents, the last of a name holds, as for `kubectl apply`. As a server does, it has
    each in every version of its kind, and lists by namespace and name; an object goes on saying the version it was written in."""

    def __init__(self, objects: Iterable[JsonObject]) -> None:
        self._by_path = dict(sorted({path: obj for obj in objects for path in _paths(obj)}.items()))

    async def get(self, path: str) -> JsonObject:
        """The object at that path. Raises ObjectNotFound."""
        if path not in self._by_path:
            raise ObjectNotFound(f"{path} is not in the files")
        return self._by_path[path]

    async def get_bytes(self, path: str) -> bytes:
        return orjson.dumps(await self.get(path))

    async def list_pages(self, path: str) -> AsyncGenerator[Page, None]:
        body = orjson.dumps({"metadata": {}, "items": await self.list_objects(path)})
        yield Page(body=body, resource_version="", last=True)

    async def list_objects(self, path: str, *, label: tuple[str, str] | None = None) -> list[JsonObject]:
        """All objects of that collection, in all namespaces where the path names none."""
        listed = (obj for each, obj in self._by_path.items() if _collections(each, obj) & {path})
        return [obj for obj in listed if label is None or label in (obj["metadata"].get("labels") or {}).items()]

    async def server_version(self) -> ServerVersion:
        """None was asked."""
        return NEWEST

    @property
    def lacks(self) -> Callable[[Resource], bool]:
        """Nothing is asked."""
        return lambda _: False


def _paths(obj: JsonObject) -> list[str]:
    """In every version of its kind, none for a kind that we do not know, or an object without a name."""
    metadata = obj.get("metadata")
    versions = SERVED.get((str(obj.get("apiVersion")), str(obj.get("kind"))), ())
    if not isinstance(metadata, Mapping):
        return []
    name, namespace = metadata.get("name"), metadata.get("namespace") or DEFAULT_NAMESPACE
    if not isinstance(name, str) or not name or not isinstance(namespace, str):
        return []
    return [each.path(name, namespace=namespace if each.namespaced else "") for each in versions]


def _collections(path: str, obj: JsonObject) -> set[str]:
    own = path.rpartition("/")[0]
    namespace = obj["metadata"].get("namespace") or DEFAULT_NAMESPACE
    return {own, own.replace(f"/namespaces/{namespace}/", "/")}
