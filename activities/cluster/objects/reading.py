"""What reading needs of a cluster: one object, all of a kind, the server's version. Live it is a connection, offline it is files.

Whoever only reads asks for this, so that what is decided about a live cluster can be tried on manifests that were never applied.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

import msgspec

from activities.cluster.api.connection import JsonObject, Page, ServerVersion
from activities.cluster.api.machine_paths import Connections
from activities.cluster.api.paths import Resource
from activities.cluster.objects.decoding import Decoding
from activities.errors import ErrorType, failure

T = TypeVar("T")


class ApiReader(Protocol):
    """Objects by their path in the API (`paths.py`)."""

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


Readers = Connections[ApiReader]
"""Which API server is read: the nodes', or where Cluster API's objects are."""


async def read_views(connection: ApiReader, resource: Resource, decoding: Decoding[T]) -> list[T]:
    """All objects of one kind, as a watch decodes them."""
    try:
        pages = connection.list_pages(resource.path())
        return [item.value async for page in pages for item in decoding.items(page.body)]
    except msgspec.DecodeError as error:
        raise failure(
            ErrorType.NOT_SUPPORTED, f"{resource.plural}: expected a list of them, got something else: {error}"
        ) from error
