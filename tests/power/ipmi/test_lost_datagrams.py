"""IPMI through a network that loses datagrams: one is lost at each place of the conversation in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.errors import ErrorType
from activities.power.driver import PowerError
from policy.fence.power import PowerState
from simulator.bmc import ipmi_sim
from tests.power.conftest import Stand, fails, ipmi_driver, within

KIND = "ipmi_sim" if ipmi_sim.installed() else "python"
"""One kind is enough: it is the client that must cope."""

CONVERSATION = 14
"""Datagrams of a login and a question, both ways: capabilities, two offers of a cipher, RAKP 1 to 4, privilege, status."""

RAKP_1 = (0x06, 0x12)
"""Authentication type and payload type in the session header of IPMI 2.0 (section 13.6): the message that names the user."""


class LossyRelay(asyncio.DatagramProtocol):
    """Stands before one BMC for one client, and loses the datagram with the given number, counted over both directions."""

    def __init__(self, lost: int, bmc_port: int) -> None:
        self._lost = lost
        self._count = 0
        self.logins: set[bytes] = set()
        """Distinct ones: a repeated datagram carries the same session id."""
        self._bmc_port = bmc_port
        self._client: tuple[str, int] | None = None
        self.inside: asyncio.DatagramTransport | None = None
        self.outside: asyncio.DatagramTransport | None = None

    def passes(self) -> bool:
        self._count += 1
        return self._count != self._lost

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        assert self.inside is not None
        assert self.outside is not None
        from_bmc = addr[1] == self._bmc_port
        if not from_bmc:
            self._client = (addr[0], addr[1])
            if len(data) > 6 and (data[4], data[5] & 0x3F) == RAKP_1:
                self.logins.add(data)
        if not self.passes():
            return
        if from_bmc:
            assert self._client is not None
            self.outside.sendto(data, self._client)
        else:
            self.inside.sendto(data, ("127.0.0.1", self._bmc_port))


@asynccontextmanager
async def relay_losing(lost: int, bmc_port: int) -> AsyncIterator[tuple[int, LossyRelay]]:
    """A relay that loses one datagram, and its port."""
    loop = asyncio.get_running_loop()
    relay = LossyRelay(lost, bmc_port)
    relay.outside, _ = await loop.create_datagram_endpoint(lambda: relay, local_addr=("127.0.0.1", 0))
    relay.inside, _ = await loop.create_datagram_endpoint(lambda: relay, local_addr=("127.0.0.1", 0))
    try:
        yield relay.outside.get_extra_info("sockname")[1], relay
    finally:
        relay.outside.close()
        relay.inside.close()


@pytest.mark.parametrize("kind", [KIND], indirect=True)
async def test_a_reading_survives_the_loss_of_any_one_datagram(stand: Stand) -> None:
    async def read(lost: int) -> PowerState:
        async with relay_losing(lost, stand.bmc.port) as (port, _):
            return (await ipmi_driver(port).read(within(20))).state

    assert await asyncio.gather(*(read(lost) for lost in range(1, CONVERSATION + 1))) == [PowerState.ON] * CONVERSATION


@pytest.mark.parametrize("kind", [KIND], indirect=True)
async def test_a_lost_datagram_never_makes_two_commands_of_one(stand: Stand) -> None:
    """S33: lost before the command, it is sent once; with the command or its answer lost, it is ambiguous and not repeated."""

    async def off(lost: int) -> ErrorType | None:
        async with relay_losing(lost, stand.bmc.port) as (port, _):
            try:
                await ipmi_driver(port).off(within(5))
            except PowerError as error:
                return error.type
            return None

    outcomes = await asyncio.gather(*(off(lost) for lost in range(1, CONVERSATION + 1)))
    assert set(outcomes) == {None, ErrorType.AMBIGUOUS}
    assert outcomes.count(None) <= len(stand.machine.commands("off")) <= CONVERSATION


@pytest.mark.parametrize("kind", [KIND], indirect=True)
async def test_a_password_that_is_refused_is_tried_once(stand: Stand) -> None:
    """A second login with it only locks the account."""
    async with relay_losing(0, stand.bmc.port) as (port, relay):
        await fails(ipmi_driver(port, password="not-the-one").off(within(10)), ErrorType.UNAUTHORIZED)
    assert len(relay.logins) == 1
