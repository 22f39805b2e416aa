"""Real BMCs on UDP, of both kinds, before a chassis that knows the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from activities.power.driver import Deadline, DeviceCredentials, PowerDriver, PowerError
from activities.power.registry import driver_for
from policy.fence.plan import PowerDevice
from simulator.bmc import ipmi_sim
from simulator.bmc.bmc import Bmc, Kind, start_bmc
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine
from tests.power.targets import endpoint_of

USERNAME, PASSWORD = "fencer", "k3p-my-s3cret"

IPMI_SIM = pytest.param("ipmi_sim", marks=pytest.mark.skipif(not ipmi_sim.installed(), reason="ipmi_sim is not installed"))


def within(seconds: float) -> Deadline:
    return Deadline.within(timedelta(seconds=seconds))


async def fails(act: Awaitable[object], expected: str, says: str = "") -> PowerError:
    """What an act of a driver raises: an ErrorType, and a pattern that its text has."""
    with pytest.raises(PowerError, match=says or None) as caught:
        await act
    assert caught.value.type == expected, str(caught.value)
    return caught.value


def ipmi_driver(port: int, *, username: str = USERNAME, password: str = PASSWORD, **parameters: str) -> PowerDriver:
    chosen = {"ip": "127.0.0.1", "ipport": str(port)} | parameters
    device = PowerDevice(driver="ipmi", endpoint=endpoint_of("ipmi", chosen), parameters=chosen)
    return driver_for(device, DeviceCredentials(values={"username": username, "password": password}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A machine and its BMC."""

    machine: Machine
    bmc: Bmc

    def driver(self, *, username: str = USERNAME, password: str = PASSWORD, **parameters: str) -> PowerDriver:
        return ipmi_driver(self.bmc.port, username=username, password=password, **parameters)


@pytest.fixture
async def chassis() -> AsyncIterator[Chassis]:
    async with Chassis() as running:
        yield running


@pytest.fixture(params=[IPMI_SIM, "python"])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
async def stand(chassis: Chassis, kind: Kind, tmp_path: Path) -> AsyncIterator[Stand]:
    machine = chassis.machine("node-1")
    bmc = await start_bmc(chassis.url, machine.name, USERNAME, PASSWORD, kind=kind, state_dir=tmp_path)
    try:
        yield Stand(machine=machine, bmc=bmc)
    finally:
        await bmc.stop()


@pytest.fixture
async def python_stand(chassis: Chassis, tmp_path: Path) -> AsyncIterator[Stand]:
    machine = chassis.machine("node-1")
    bmc = await start_bmc(chassis.url, machine.name, USERNAME, PASSWORD, kind="python", state_dir=tmp_path)
    try:
        yield Stand(machine=machine, bmc=bmc)
    finally:
        await bmc.stop()
