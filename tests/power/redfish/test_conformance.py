"""The common contract, by Redfish over HTTPS."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.power.driver import PowerDriver
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import PASSWORD
from tests.power.redfish.stand import RedfishStand, redfish_running


class RedfishBench(Bench):
    """The emulator before a machine of the chassis."""

    secrets = (PASSWORD,)
    stalls_within = 1.0

    def __init__(self, stand: RedfishStand) -> None:
        super().__init__(stand.machine())
        self._stand = stand

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        return self._stand.driver(target or self.machine.name, password=password or PASSWORD)

    async def be_silent(self) -> None:
        self._stand.service.freeze()


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
