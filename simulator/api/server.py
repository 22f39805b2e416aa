"""The simulated Kubernetes API server: real HTTP and TLS on the loopback, for clients, kubectl and tests.

This file puts the parts together and gives them a life: start, stop, restart on the same ports. One process, one event
loop. What it leaves out of a real API server is listed in simulator/README.md.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

import yaml
from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from simulator.api import moments
from simulator.api.access.authorization import ADMIN, Authorization
from simulator.api.access.certificates import issue
from simulator.api.access.policies import Admission
from simulator.api.control.faults import Accident, Fault, Faults
from simulator.api.control.pages import Control
from simulator.api.control.request_log import RequestLog
from simulator.api.storage.kinds import Catalogue
from simulator.api.storage.store import Store
from simulator.api.wire.discovery import Discovery
from simulator.api.wire.door import Door
from simulator.api.wire.reading import Reading
from simulator.api.wire.writing import Writing
from simulator.api.writes.definitions import Definitions
from simulator.api.writes.garbage import Garbage
from simulator.api.writes.registry import Registry

_LARGEST_BODY = 3 * 1024 * 1024
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_TOKENS = {"abc": ADMIN, "low": "lowuser"}


class ApiServer:
    """A Kubernetes API on 127.0.0.1; its state lives in this object and survives `stop` and `start`."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        secure_port: int = 0,
        tokens: Mapping[str, str] | None = None,
        version: str = "1.36",
        history: int = 10_000,
        bookmark_interval: timedelta = timedelta(seconds=60),
        patience: timedelta = timedelta(seconds=3),
        housekeeping_delay: timedelta = timedelta(milliseconds=200),
        clock_error: timedelta = timedelta(0),
        seed: int | None = None,
    ) -> None:
        """`tokens` names a user per token: `admin` may do everything, others what RBAC objects grant them.

        `history` bounds the changes per kind that a watch can resume from, `patience` the wait for a resourceVersion
        of the future, `housekeeping_delay` the time between a deletion and what follows from it. `clock_error` says how far
        its clock, by which it dates its answers and objects' creation and deletion, goes before the machine's.
        """
        self.host = host
        self.port = port
        self.secure_port = secure_port
        self.version = version
        self.store = Store(history=history)
        self.catalogue = Catalogue()
        self._clock_error = clock_error
        self.registry = Registry(self.store, self.catalogue, random.Random(seed), clock=self.now)
        self.faults = Faults()
        self.requests = RequestLog()
        self.authorization = Authorization(self.store, _TOKENS if tokens is None else tokens)
        self.admission = Admission(self.store, self.authorization)
        self.registry.admit = self.admission.admit
        self.reading = Reading(self.registry, patience=patience, bookmark_interval=bookmark_interval)
        self._definitions = Definitions(self.store, self.catalogue, self.registry)
        self._garbage = Garbage(self.registry, delay=housekeeping_delay)
        self._door = Door(
            catalogue=self.catalogue,
            reading=self.reading,
            writing=Writing(self.registry, self.reading, self.authorization),
            discovery=Discovery(self.catalogue, version),
            authorization=self.authorization,
            admission=self.admission,
            faults=self.faults,
            requests=self.requests,
            control=Control(self.faults, self.requests),
            clock=self.now,
        )
        self.faults.on_open_watches.append(self._door.strike_open_watches)
        self._certificates = issue(host)
        self._listeners: list[asyncio.Server] = []
        self._protocol: web.Server | None = None
        for name in _FIRST_NAMESPACES:
            self.registry.create(self.catalogue.named("namespaces"), "", {"metadata": {"name": name}})

    async def start(self) -> None:
        """Listen, with and without TLS; ports once given are used again after `stop`."""
        if self._protocol is not None:
            raise RuntimeError("the API server runs already")
        self._protocol = web.Server(self._door.handle, request_factory=_request, access_log=None, handler_cancellation=True)
        loop = asyncio.get_running_loop()
        plain = await loop.create_server(self._protocol, self.host, self.port, reuse_address=True)
        self._listeners.append(plain)
        context = self._certificates.context
        secure = await loop.create_server(self._protocol, self.host, self.secure_port, reuse_address=True, ssl=context)
        self._listeners.append(secure)
        self.port, self.secure_port = (each.sockets[0].getsockname()[1] for each in self._listeners)
        self._garbage.start()

    async def stop(self) -> None:
        """Drop every connection and stop listening, as a killed server does; the state is kept."""
        if self._protocol is None:
            return
        self._garbage.stop()
        for listener in self._listeners:
            listener.close()
        for connection in list(self._protocol.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._protocol.shutdown(timeout=1)
        self._listeners.clear()
        self._protocol = None

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def now(self) -> datetime:
        """What this server takes for the time."""
        return moments.now() + self._clock_error

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def secure_url(self) -> str:
        return f"https://{self.host}:{self.secure_port}"

    @property
    def certificate_authority(self) -> bytes:
        """What clients of `secure_url` must trust, as PEM."""
        return self._certificates.authority_pem

    def kubeconfig(self) -> str:
        """YAML for kubectl and clients: the TLS address (kubectl sends no token without TLS) and an admin's token."""
        token = next((token for token, user in self.authorization.tokens.items() if user == ADMIN), "")
        authority = base64.b64encode(self.certificate_authority).decode()
        name = "simulator"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.secure_url, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        return yaml.safe_dump(document, sort_keys=False)

    @property
    def open_watches(self) -> int:
        return len(self._door.open_watches)

    def cut_watches(self, path: str = "", user_agent: str = "") -> int:
        """Drop the connections of open watches that match; the answer is how many."""
        fault = Fault(accident=Accident.CUT_WATCHES, path=path, user_agent=user_agent)
        return self._door.strike_open_watches(fault)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: Any,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)
