"""A server that is no cloud and no BMC: it reads one request on each connection and answers what a test makes it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class RawServer:
    """requests: what arrived. gone: set when the other side has closed a connection that was not answered."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def raw_server(answer: Answer) -> AsyncIterator[RawServer]:
    running = RawServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", request, re.IGNORECASE)
            request += await reader.readexactly(int(length[1])) if length else b""
            running.requests.append(request)
            answering = asyncio.ensure_future(answer(request, writer))
            try:
                await reader.read()
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # it is gone, which is all that is of interest
        finally:
            running.gone.set()
            writer.close()

    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        connections.add(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def saying(status: str, body: str | bytes, *headers: str) -> Answer:
    """One answer for everything."""
    content = body.encode() if isinstance(body, str) else body
    head = "\r\n".join((f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(content)}", "", ""))

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + content)
        await writer.drain()

    return answer


async def hanging_up(request: bytes, writer: asyncio.StreamWriter) -> None:
    """The connection ends where an answer was due."""
    writer.close()


async def dripping(request: bytes, writer: asyncio.StreamWriter) -> None:
    """An answer that never ends and never pauses: no time-out of a single wait would notice."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


# What an attacker has answer at an address of his own.


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
