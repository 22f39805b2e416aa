"""A Temporal dev server that a test may kill and start again on the same port and the same database.

The flags are those of our own embedded mode. Not `workers.embedded.server`, which restarts its server by itself: here the test
says when. One server carries several namespaces, so that systems that run side by side share nothing but its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from temporalio.client import Client
from temporalio.service import RPCError

from tests.system import mortal
from workers.embedded.server import find_binary, free_ports, server_arguments
from workers.runtime import runtime
from workers.temporal_namespace import required_search_attributes

HOST = "127.0.0.1"
READY_WITHIN = 40.0
NO_WORKERS = "worker.perNamespaceWorkerCount=0"
"""The server's own in each namespace, for schedules, batches and versions of workers: sixty that wait take a twentieth of a
processor for as long as the tests last, in each of their processes."""
STOP_WITHIN = 10.0


class TemporalServer:
    """`async with TemporalServer(folder) as temporal:`; its data stay in `folder` until that is removed."""

    def __init__(self, folder: Path, *, namespaces: Sequence[str] = ("default",), versions: bool = False) -> None:
        """versions: whether one of a worker deployment can be made current, which is a workflow of the server's own."""
        self.namespaces = tuple(namespaces)
        self._own_workers = [] if versions else ["--dynamic-config-value", NO_WORKERS]
        self.port, self._ui_port = free_ports(HOST, 2)
        self.log = folder / "temporal.log"
        self.database = folder / "temporal.db"
        self._process: asyncio.subprocess.Process | None = None
        self._refusal = ""

    @property
    def address(self) -> str:
        """The same for its whole life, however often it is killed."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of the server that runs now."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until each namespace answers."""
        attributes = dict.fromkeys(required_search_attributes(), "Keyword")
        arguments = server_arguments(
            host=HOST, port=self.port, ui_host=HOST, ui_port=self._ui_port, database=self.database, search_attributes=attributes
        )
        for namespace in self.namespaces:
            arguments += ["--namespace", namespace]
        arguments += self._own_workers
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *mortal.command(str(find_binary()), *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(READY_WITHIN):
                await asyncio.gather(*(self._answers(namespace) for namespace in self.namespaces))
        except TimeoutError:
            await self.kill()
            raise TimeoutError(
                f"no Temporal server at {self.address} within {READY_WITHIN:.0f} s; {self._refusal}; {self._tail()}"
            ) from None

    async def kill(self) -> None:
        """SIGKILL, as the out-of-memory killer would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, then whatever it takes."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_WITHIN)
        except TimeoutError:
            await self.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def _answers(self, namespace: str) -> None:
        """Until workflows can be listed by our attributes there: then everything is in place."""
        query = " AND ".join(f"`{name}` = 'none'" for name in required_search_attributes())
        while True:
            if self._process is not None and self._process.returncode is not None:
                raise RuntimeError(f"the Temporal server ended with {self._process.returncode}; {self._tail()}")
            try:
                client = await Client.connect(self.address, namespace=namespace, runtime=runtime())
                await client.count_workflows(query, rpc_timeout=timedelta(seconds=2))
            except (RPCError, RuntimeError) as error:
                self._refusal = str(error)[:300]
                await asyncio.sleep(0.1)
            else:
                return

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return f"its log ends: {lines[-1] if lines else 'it said nothing'}"
