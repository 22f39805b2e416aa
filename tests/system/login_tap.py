"""A wire with an eye on it, laid between a worker and a BMC: it forwards every datagram and counts the logins that were begun."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
RMCP_PLUS, OPEN_SESSION_REQUEST = 0x06, 0x10
"""Authentication type and payload type in the session header of IPMI 2.0 (section 13.6); a login begins with this request."""


class LoginTap:
    """`async with LoginTap(port) as tap:` listens on `tap.port` and forwards to that port. `logins` are distinct attempts."""

    def __init__(self, bmc_port: int) -> None:
        self.datagrams = 0
        self._bmc_port = bmc_port
        self._seen: set[bytes] = set()
        self._inward: asyncio.DatagramTransport | None = None
        self._outward: dict[Any, asyncio.DatagramTransport] = {}

    @property
    def port(self) -> int:
        assert self._inward is not None, "enter first"
        return int(self._inward.get_extra_info("sockname")[1])

    @property
    def logins(self) -> int:
        """A repeated datagram is no second attempt: it carries the same session id."""
        return len(self._seen)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._inward, _ = await loop.create_datagram_endpoint(lambda: _Ear(self._from_worker), local_addr=(HOST, 0))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for transport in (self._inward, *self._outward.values()):
            if transport is not None:
                transport.close()

    async def _from_worker(self, data: bytes, address: Any) -> None:
        self.datagrams += 1
        if len(data) > 6 and data[4] == RMCP_PLUS and data[5] & 0x3F == OPEN_SESSION_REQUEST:
            self._seen.add(repr(address).encode() + data)
        if address not in self._outward:
            loop = asyncio.get_running_loop()

            async def back(answer: bytes, _bmc: Any) -> None:
                assert self._inward is not None
                self._inward.sendto(answer, address)

            self._outward[address], _ = await loop.create_datagram_endpoint(
                lambda: _Ear(back), remote_addr=(HOST, self._bmc_port)
            )
        self._outward[address].sendto(data)


class _Ear(asyncio.DatagramProtocol):
    """Hands each datagram on, in the order in which they come."""

    def __init__(self, hear: Any) -> None:
        self._hear = hear
        self._last: asyncio.Task[None] | None = None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._last = asyncio.ensure_future(self._after(self._last, data, addr))

    async def _after(self, before: asyncio.Task[None] | None, data: bytes, address: Any) -> None:
        if before is not None:
            await before
        await self._hear(data, address)
