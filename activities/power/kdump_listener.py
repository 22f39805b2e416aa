"""Receives the fence_kdump messages that a node sends while its crashed kernel writes a dump, and says when the last one came.

A message is eight bytes over UDP: a magic number and a version, both in the sender's byte order. Only the address that it came
from says who sent it, so what is received is kept by address, for some minutes, and for so many addresses at most. What that is
worth is `policy/fence/kdump.py`.

Memory is this process's own. Of several workers of one site each receives what is sent to it: name all of them in the nodes'
`fence_kdump_nodes`, which sends to each, or let one worker serve the site. Between node and worker the source address must stay
what it is (host network, or `externalTrafficPolicy: Local`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.contracts.evidence import EvidenceActivities, KdumpRequest
from activities.errors import ErrorType, failure
from activities.licences import Licences
from policy.fence.kdump import KdumpReading, normal_address

log = logging.getLogger(__name__)

PORT = 7410
MAGIC = 0x1B302A40
VERSION = 1
_MESSAGES = frozenset(struct.pack(order + "II", MAGIC, VERSION) for order in "<>")

MAXIMUM_SOURCES = 4096
KEPT_SECONDS = 15 * 60.0
"""Longer than any wait for a first message."""

ANOTHER_DUMP_SECONDS = 120.0
"""A silence after which the next message is of another dump."""


@dataclass(frozen=True, slots=True)
class _Received:
    first: float
    last: float
    messages: int


class KdumpListener(asyncio.DatagramProtocol):
    """One socket's memory. `clock` counts seconds and never jumps."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, sources: int = MAXIMUM_SOURCES) -> None:
        self._clock = clock
        self._sources = sources
        self._since = clock()
        self._received: OrderedDict[str, _Received] = OrderedDict()
        self.address: tuple[Any, ...] | None = None
        """Where it listens, once it does."""

    def __len__(self) -> int:
        return len(self._received)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.address = transport.get_extra_info("sockname")
        log.info("kdump: listening on %s", self.address)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Keep a message by where it came from; whatever else arrives is none."""
        source = normal_address(str(addr[0]))
        if data not in _MESSAGES or not source:
            return
        now = self._clock()
        known = self._received.get(source)
        if known is None or now - known.last > ANOTHER_DUMP_SECONDS:
            log.info("kdump: %s writes a dump", source)
            known = _Received(now, now, 0)
        self._received[source] = _Received(known.first, now, known.messages + 1)
        self._received.move_to_end(source)
        self._forget(now)

    def error_received(self, exc: Exception) -> None:
        """Of a socket that only listens: nothing is lost by it."""
        log.debug("kdump: %s", exc)

    def read(self, addresses: Iterable[str]) -> KdumpReading:
        """The newest that was received from any of these addresses."""
        now, at = self._clock(), datetime.now(UTC)
        self._forget(now)
        found = [
            (received, source)
            for each in addresses
            if (received := self._received.get(source := normal_address(each))) is not None
        ]
        listening = at - timedelta(seconds=now - self._since)
        if not found:
            return KdumpReading(at=at, listening=listening)
        received, source = max(found, key=lambda each: each[0].last)
        return KdumpReading(
            at=at,
            listening=listening,
            address=source,
            first=at - timedelta(seconds=now - received.first),
            last=at - timedelta(seconds=now - received.last),
            messages=received.messages,
        )

    def _forget(self, now: float) -> None:
        """The oldest come first. A flood from made-up addresses may drive out true ones, which speak again within seconds."""
        while self._received:
            oldest = next(iter(self._received.values()))
            if len(self._received) <= self._sources and now - oldest.last <= KEPT_SECONDS:
                return
            self._received.popitem(last=False)


@asynccontextmanager
async def listening(host: str, port: int = PORT) -> AsyncIterator[KdumpListener]:
    """Listen on one address for as long as the context lives. Raises OSError where that can't be had."""
    transport, listener = await asyncio.get_running_loop().create_datagram_endpoint(KdumpListener, local_addr=(host, port))
    try:
        yield listener
    finally:
        transport.close()


class EvidenceService(EvidenceActivities):
    """Served by the power workers of a site. `listener` None: this one does not listen."""

    def __init__(self, listener: KdumpListener | None, licences: Licences) -> None:
        self._listener = listener
        self._licences = licences

    async def read_kdump(self, request: KdumpRequest) -> KdumpReading:
        """From memory; nothing is asked."""
        if self._listener is None:
            raise failure(ErrorType.NOT_SUPPORTED, "this worker does not listen for kdump messages: set kdump.listen")
        return self._licences.sealed_dump(self._listener.read(request.addresses))
