"""An API that is asked each thing once: for work that needs the same objects for many nodes, or for several questions, in one go.

What it says is as old as itself, so it lives for one listing or for one last look, whose reads are all made side by side (S20).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from activities.cluster.api.connection import ClusterConnection, JsonObject, Page, ServerVersion
from activities.cluster.api.machine_paths import Connections
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.objects.reading import ApiReader, Readers

T = TypeVar("T")


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

    async def _once(self, how: str, path: str, ask: Callable[[str], Awaitable[T]]) -> T:
        key = (how, path)
        async with self._asking.setdefault(key, asyncio.Lock()):  # whoever asks meanwhile waits for that answer
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
    return Connections(
        nodes=nodes, machines=nodes if connections.machines is connections.nodes else ReadOnce(connections.machines)
    )
