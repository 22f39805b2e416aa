"""The common contract, by Google's own client against a simulated Compute Engine, with tokens of a service account."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from activities.power.driver import PowerDriver
from tests.power.conformance import Bench, DriverConformance
from tests.power.gce.stand import GceStand, gce_stand


class GceBench(Bench):
    """One instance."""

    stalls_within = 0.5

    def __init__(self, stand: GceStand) -> None:
        super().__init__(stand.instance.machine)
        self._stand = stand
        # What a log could show of the key: each line of the private key, and its id.
        content = json.loads(stand.key)
        type(self).secrets = (content["private_key_id"], *content["private_key"].splitlines()[1:-1])

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        key = None if password is None else self._stand.cloud.service_account(signed_by=password)
        return self._stand.driver(key=key, instance=target or self._stand.instance.name)

    async def be_silent(self) -> None:
        self._stand.cloud.set_faults(silence=True)

    async def lose_answers(self) -> None:
        self._stand.cloud.set_faults(lose_answers=True)

    async def take_time(self, seconds: float) -> None:
        self._stand.cloud.compute.seconds = seconds


@pytest.fixture
async def bench() -> AsyncIterator[GceBench]:
    async with gce_stand() as stand:
        yield GceBench(stand)


class TestGce(DriverConformance):
    pass
