"""The common contract, by IPMI over real UDP."""

from __future__ import annotations

import pytest

from activities.power.driver import PowerDriver
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import PASSWORD, Stand
from tests.power.ipmi.test_driver import KIND

pytestmark = pytest.mark.parametrize("kind", [KIND], indirect=True)


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


class TestIpmi(DriverConformance):
    unknown_target = None
