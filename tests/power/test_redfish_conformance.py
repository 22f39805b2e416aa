"""The common contract, by Redfish over HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from activities.power.driver import PowerDriver
from simulator.bmc.machine import Machine
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import PASSWORD
from tests.power.redfish_stand import RedfishStand, redfish_running


class RedfishBench(Bench):
    """The emulator before a machine of the chassis."""

    secrets = (PASSWORD,)
    stalls_within = 1.0

    def __init__(self, stand: RedfishStand) -> None:
        self._stand = stand
        self._machine = stand.machine()

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        return self._stand.driver(target or self._machine.name, password=password or PASSWORD)

    async def is_on(self) -> bool:
        return self._machine.power == "on"

    async def commands(self) -> list[str]:
        return [entry.command for entry in self._machine.log]

    async def ignore_off(self) -> None:
        self._machine.set_faults(ignore_off=True)

    async def be_silent(self) -> None:
        self._stand.service.freeze()

    async def lose_answers(self) -> None:
        async def never(machine: Machine, command: str) -> None:
            await asyncio.Event().wait()

        self._machine.after_set = never

    async def take_time(self, seconds: float) -> None:
        self._machine.set_faults(settle=seconds)


@pytest.fixture(scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedfishStand]:
    async with redfish_running(tmp_path_factory.mktemp("redfish")) as running:
        yield running


@pytest.fixture
def bench(stand: RedfishStand) -> RedfishBench:
    stand.service.thaw()
    return RedfishBench(stand)


class TestRedfish(DriverConformance):
    pass
