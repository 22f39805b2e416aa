"""The common contract, by boto3's requests to moto with EC2's rules before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.errors import ErrorType
from activities.power.driver import PowerDriver
from simulator.cloud.ec2 import Ec2Cloud, MotoServer
from tests.power.conformance import Bench, DriverConformance
from tests.power.ec2.stand import Ec2Stand, stand_in

COMMANDS = {"StopInstances": "off", "StartInstances": "on"}


class Ec2Bench(Bench):
    """An instance of a cloud. The password is the secret key."""

    stalls_within = 0.4

    def __init__(self, stand: Ec2Stand) -> None:
        super().__init__(stand.machine)
        self._stand = stand
        self.secrets = stand.keys  # type: ignore[misc]

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        instance = "i-0badc0ffee0ddf00d" if target is not None else self._stand.instance
        return self._stand.driver(secret=password, instance=instance)

    async def commands(self) -> list[str]:
        done = [request for request in self._stand.ec2.log if request.outcome in {"accepted", "ignored"}]
        return [COMMANDS[request.action] for request in done if request.action in COMMANDS]

    async def be_silent(self) -> None:
        self._stand.ec2.set_faults(silent=True)

    async def lose_answers(self) -> None:
        self._stand.ec2.set_faults(lose_answers=True)

    async def take_time(self, seconds: float) -> None:
        self._stand.ec2.set_faults(settle=seconds)


@pytest.fixture(scope="module")
async def ec2() -> AsyncIterator[Ec2Cloud]:
    async with MotoServer() as moto, Ec2Cloud(moto.url) as cloud:
        yield cloud


@pytest.fixture
async def bench(ec2: Ec2Cloud) -> AsyncIterator[Ec2Bench]:
    async with stand_in(ec2) as stand:
        yield Ec2Bench(stand)


class TestEc2(DriverConformance):
    silence = ErrorType.AMBIGUOUS
