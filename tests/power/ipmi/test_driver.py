"""IPMI over real UDP: what only IPMI has, and the contract that every driver keeps (`TestIpmi`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.errors import ErrorType
from activities.power.driver import PowerDriver, PowerError
from policy.fence.drivers.bmc import ipmi_address
from policy.fence.drivers.contract import ParameterError
from policy.fence.power import PowerState, system_of
from simulator.bmc import ipmi_sim
from simulator.bmc.bmc import start_bmc
from simulator.bmc.chassis import Chassis
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import PASSWORD, USERNAME, Stand, fails, ipmi_driver, within


async def test_a_bmc_that_hangs_while_read_is_unreachable(python_stand: Stand) -> None:
    python_stand.machine.set_faults(hang=True)
    await fails(python_stand.driver().read(within(1.5)), ErrorType.UNREACHABLE, "login succeeded but 'read' was not answered")


async def test_a_slow_bmc_gets_a_command_once(stand: Stand) -> None:
    """S33: a question is asked again when the answer is long in coming, a command never."""
    stand.machine.set_faults(delay=1.1)
    await stand.driver().off(within(10))
    stand.machine.set_faults()
    await stand.driver().read(within(10))  # a BMC takes one after the other, so a copy of the off would be done by now
    assert len(stand.machine.commands("off")) == 1


async def test_a_refusal_is_never_taken_for_success(stand: Stand) -> None:
    """A BMC that says why it refuses has done nothing; one with a mere 'unspecified error' leaves it open."""
    stand.machine.set_faults(refuse=True)
    await fails(stand.driver().off(within(10)), ErrorType.AMBIGUOUS if stand.bmc.kind == "ipmi_sim" else ErrorType.TRANSIENT)
    assert stand.machine.power == "on"


async def test_a_refusal_because_the_machine_is_so_already_is_success(python_stand: Stand) -> None:
    """Some BMCs refuse on for a machine that is on (completion code D5h)."""
    python_stand.machine.set_faults(refuse=True)
    await python_stand.driver().on(within(10))
    assert python_stand.machine.power == "on"


async def test_a_reading_says_its_machine_also_once_the_login_alone_tells(stand: Stand) -> None:
    """S39."""
    driver, own = stand.driver(), (system_of(str(stand.bmc.system_uuid)),)
    assert (await driver.read(within(10))).serves == own
    assert (await driver.read(within(10))).serves == own
    assert (await stand.driver(**{"check-system": "false"}).read(within(10))).serves == ()


async def test_a_bmc_with_the_address_of_another_machine_says_so_at_once(chassis: Chassis, tmp_path: Path) -> None:
    """S39: whatever is remembered of the one that was there before."""
    there: list[tuple[str, ...]] = []
    port = 0
    for name in ("node-1", "node-2"):
        chassis.machine(name)
        bmc = await start_bmc(chassis.url, name, USERNAME, PASSWORD, kind="python", state_dir=tmp_path, port=port)
        try:
            port = bmc.port
            there.append((await ipmi_driver(port).read(within(10))).serves)
            assert there[-1] == (system_of(str(bmc.system_uuid)),)
        finally:
            await bmc.stop()
    assert len(set(there)) == 2


@pytest.mark.parametrize("parameters", [{"cipher": "3"}, {"privilege": "operator"}, {"privilege": "administrator"}])
async def test_the_login_can_be_told_cipher_and_privilege(stand: Stand, parameters: dict[str, str]) -> None:
    assert (await stand.driver(**parameters).read(within(10))).state is PowerState.ON


async def test_a_cipher_that_was_asked_for_is_not_replaced_by_a_weaker_one(stand: Stand) -> None:
    await fails(stand.driver(cipher="17").read(within(5)), ErrorType.NOT_SUPPORTED, "cipher suites")


# IPMI through a network that loses datagrams: one is lost at each place of the conversation in turn.

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


# IPMI as it is not spoken: a BMC, or whoever answers in its place, that offers less than IPMI 2.0 hears of no user.

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


# The common contract, by IPMI over real UDP.


class IpmiBench(Bench):
    """A BMC before a machine of the chassis."""

    secrets = (PASSWORD,)

    def __init__(self, stand: Stand) -> None:
        super().__init__(stand.machine)
        self._stand = stand

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        assert target is None
        return self._stand.driver(password=password or PASSWORD)

    async def be_silent(self) -> None:
        self._stand.bmc.freeze()


@pytest.fixture
def bench(stand: Stand) -> IpmiBench:
    return IpmiBench(stand)


@pytest.mark.parametrize("kind", [KIND], indirect=True)
class TestIpmi(DriverConformance):
    unknown_target = None
