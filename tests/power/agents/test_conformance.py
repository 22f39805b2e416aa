"""The common contract, by `fence_apc_snmp` and SNMP 3 on a power strip."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.errors import ErrorType
from activities.power.driver import PowerDriver
from policy.fence.power import PowerState
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine
from simulator.snmp.pdu import Access, Pdu, start_pdu
from tests.power.agents.scripted import agent_driver, needs
from tests.power.conformance import PATIENCE, Bench, DriverConformance
from tests.power.conftest import fails, within

pytestmark = needs("fence_apc_snmp", "snmpget")

ACCESS = Access(community="c0mmunity-s3cret", username="fencer", password="k3p-my-s3cret", privacy_password="pr1vacy-s3cret")
SNMP3 = {"snmp_version": "3", "snmp_auth_prot": "SHA", "snmp_priv_prot": "AES"}


class PduBench(Bench):
    """Outlet 3 of a strip feeds the machine; there is no outlet 9."""

    secrets = (ACCESS.password, ACCESS.privacy_password, ACCESS.username)
    stalls_within = 2.0

    def __init__(self, pdu: Pdu, machine: Machine) -> None:
        super().__init__(machine)
        self._pdu = pdu

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        parameters = {"ip": "127.0.0.1", "ipport": str(self._pdu.port), "plug": "9" if target else "3"} | SNMP3
        return agent_driver(
            "fence_apc_snmp",
            parameters,
            username=ACCESS.username,
            password=password or ACCESS.password,
            snmp_priv_passwd=ACCESS.privacy_password,
        )

    async def commands(self) -> list[str]:
        return [power for _, power in self._pdu.sets]

    async def be_silent(self) -> None:
        self._pdu.silent = True


@pytest.fixture
async def bench() -> AsyncIterator[PduBench]:
    chassis = Chassis()
    async with await start_pdu(chassis, {3: "node-1", 4: "node-2"}, ACCESS) as pdu:
        yield PduBench(pdu, chassis.machine("node-1"))
        assert chassis.machine("node-2").log == []


class TestFenceAgent(DriverConformance):
    async def test_off_that_is_accepted_and_not_carried_out_reads_on(self, bench: Bench) -> None:
        """S2: the agent waits for off by itself, and when it gives up that may have been too early. So it is never a failure."""
        bench.machine.set_faults(ignore_off=True)
        driver = bench.driver()
        await fails(driver.off(within(PATIENCE / 2)), ErrorType.AMBIGUOUS, "may have been carried out")
        assert await bench.commands() == ["off"]
        assert (await driver.read(within(PATIENCE))).state is PowerState.ON
