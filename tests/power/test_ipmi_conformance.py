"""The common contract, by IPMI over real UDP."""

from __future__ import annotations

import asyncio

import pytest

from activities.power.driver import PowerDriver
from simulator.bmc.machine import Machine
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import PASSWORD, Stand


class IpmiBench(Bench):
    """A BMC before a machine of the chassis."""

    secrets = (PASSWORD,)

    def __init__(self, stand: Stand) -> None:
        self._stand = stand

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        assert target is None
        return self._stand.driver(password=password or PASSWORD)

    async def is_on(self) -> bool:
        return self._stand.machine.power == "on"

    async def commands(self) -> list[str]:
        return [entry.command for entry in self._stand.machine.log]

    async def ignore_off(self) -> None:
        self._stand.machine.set_faults(ignore_off=True)

    async def be_silent(self) -> None:
        self._stand.bmc.freeze()

    async def lose_answers(self) -> None:
        async def never(machine: Machine, command: str) -> None:
            await asyncio.Event().wait()

        self._stand.machine.after_set = never

    async def take_time(self, seconds: float) -> None:
        self._stand.machine.set_faults(settle=seconds)


@pytest.fixture
def bench(stand: Stand) -> IpmiBench:
    return IpmiBench(stand)


class TestIpmi(DriverConformance):
    unknown_target = None
