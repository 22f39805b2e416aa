"""What an attacker has answer at an address of his own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Listener:
    """Keeps what it is told: whatever speaks Redfish to it has shown its password with the first request."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.read(4096))
        writer.close()


@asynccontextmanager
async def listening(host: str) -> AsyncIterator[Listener]:
    """One at a free port of that host."""
    listener = Listener()
    server = await asyncio.start_server(listener.serve, host, 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener
