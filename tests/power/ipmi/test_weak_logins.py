"""IPMI as it is not spoken: a BMC, or whoever answers in its place, that offers less than IPMI 2.0 hears of no user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.errors import ErrorType
from policy.fence.drivers.bmc import ipmi_address
from policy.fence.drivers.contract import ParameterError
from tests.power.conftest import PASSWORD, USERNAME, fails, ipmi_driver, within

CAPABILITIES = 0x38
RESERVED_FIELD = 0xCC
NONE, MD5 = 0x01, 0x04
COMMAND, SEQUENCE = 19, 18
"""Places in a datagram of IPMI 1.5 without a session (section 13.6)."""


class OldBmc(asyncio.DatagramProtocol):
    """Answers the one question before a login with what IPMI 1.5 offers, and keeps whatever it is told."""

    def __init__(self, logins: int, *, strict: bool) -> None:
        self.heard: list[bytes] = []
        self.transport: asyncio.DatagramTransport | None = None
        self._logins = logins
        self._strict = strict

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        assert self.transport is not None
        self.heard.append(data)
        if data[COMMAND] != CAPABILITIES:
            return
        refused = self._strict and data[COMMAND + 1] & 0x80
        said = [RESERVED_FIELD] if refused else [0, 1, self._logins, 0, 0, 0, 0, 0, 0]
        payload = bytes([0x81, 0x1C, 0x63, 0x20, data[SEQUENCE], CAPABILITIES, *said, 0])
        self.transport.sendto(data[:13] + bytes([len(payload)]) + payload, addr)


@asynccontextmanager
async def old_bmc(logins: int, *, strict: bool) -> AsyncIterator[tuple[int, OldBmc]]:
    loop = asyncio.get_running_loop()
    bmc = OldBmc(logins, strict=strict)
    bmc.transport, _ = await loop.create_datagram_endpoint(lambda: bmc, local_addr=("127.0.0.1", 0))
    try:
        yield bmc.transport.get_extra_info("sockname")[1], bmc
    finally:
        bmc.transport.close()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("logins", [NONE, MD5, NONE | MD5])
async def test_a_bmc_of_ipmi_1_5_is_refused_before_a_login(logins: int, strict: bool) -> None:
    """S12. strict: it refuses the question that names IPMI 2.0."""
    async with old_bmc(logins, strict=strict) as (port, bmc):
        for act in ("read", "off"):
            await fails(getattr(ipmi_driver(port), act)(within(5)), ErrorType.NOT_SUPPORTED, "only IPMI 1.5.*no login was sent")
    assert {datagram[COMMAND] for datagram in bmc.heard} == {CAPABILITIES}
    assert not any(word.encode() in datagram for word in (USERNAME, PASSWORD) for datagram in bmc.heard)


@pytest.mark.parametrize("suite", ["0", "1", "2", "6", "8", "12", "15", "16", "", "-1"])
def test_cipher_suites_that_do_not_encrypt_are_refused(suite: str) -> None:
    """S12: whatever `worker.insecure_devices` says."""
    with pytest.raises(ParameterError, match="cipher: expected 3 or 17"):
        ipmi_address({"ip": "10.0.0.7", "cipher": suite})
