"""A server that says whatever a test wants it to say, in the one loop in which the tests of a file ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.power.raw_server import hanging_up, raw_server, saying


class Server:
    """`runner` is where it runs."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner, self.url, self._answer = runner, "", hanging_up

    def say(self, status: int, body: bytes, *headers: str) -> None:
        """From now on."""
        self._answer = saying(f"{status} Said", body, *headers, "Connection: close")

    async def answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        await self._answer(request, writer)
        writer.close()


@contextmanager
def served() -> Iterator[Server]:
    with asyncio.Runner() as runner:
        server = Server(runner)
        running = raw_server(server.answer)
        server.url = runner.run(running.__aenter__()).url
        yield server
        runner.run(running.__aexit__(None, None, None))
