"""What is checked of a request before a device is spoken to, whatever its driver (S9, S16, S20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.contracts.power import CommandResult, PowerRequest
from activities.errors import ErrorType, error_type
from activities.power.driver import Credentials, Deadline, PowerDriver
from activities.power.service import PowerService
from policy.episode.messages import Reading
from policy.fence.plan import CredentialRef, PowerDevice
from policy.fence.power import PowerCapability, PowerState
from tests.power.targets import target_with

DEVICE = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
TARGET = target_with(DEVICE)


class Plug:
    """A device that does as it is told, and keeps what that was."""

    endpoint = DEVICE.endpoint
    capabilities = frozenset({PowerCapability.READ, PowerCapability.OFF, PowerCapability.ON})

    def __init__(self) -> None:
        self.state = PowerState.ON
        self.told: list[str] = []

    async def read(self, deadline: Deadline) -> Reading:
        self.told.append("read")
        return Reading(endpoint=self.endpoint, state=self.state, at=datetime.now(UTC))

    async def off(self, deadline: Deadline) -> None:
        self.told.append("off")
        self.state = PowerState.OFF

    async def on(self, deadline: Deadline) -> None:
        self.told.append("on")
        self.state = PowerState.ON


class NoCredentials:
    """A device that wants none."""

    async def read(self, cluster: str, references: Sequence[CredentialRef]) -> Credentials:
        return Credentials(values={})


@pytest.fixture
def plug() -> Plug:
    return Plug()


@pytest.fixture
def service(plug: Plug) -> PowerService:
    return PowerService(NoCredentials(), drivers=lambda _device, _credentials: cast("PowerDriver", plug))


def request(endpoint: str = DEVICE.endpoint, **fields: object) -> PowerRequest:
    whole = PowerRequest(target=TARGET, device=replace(DEVICE, endpoint=endpoint), deadline=timedelta(seconds=5))
    return replace(whole, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("act", ["read_power", "power_off", "power_on", "cut_path", "restore_path"])
@pytest.mark.parametrize(
    "endpoint",
    ["ipmi://10.0.0.8:623", "ipmi://10.0.0.7:624", "redfish://10.0.0.7:623", "ipmi://10.0.0.70:623", "ipmi://10.0.0.7:623/1", ""],
)
async def test_a_device_that_was_not_pinned_is_not_spoken_to(service: PowerService, plug: Plug, act: str, endpoint: str) -> None:
    """S9: the whole endpoint is compared, not only how it is spoken to."""
    with pytest.raises(ApplicationError) as refused:
        await ActivityEnvironment().run(getattr(service, act), request(endpoint))
    assert error_type(refused.value) is ErrorType.TARGET_CHANGED
    assert plug.told == []


async def test_the_pinned_one_is(service: PowerService, plug: Plug) -> None:
    result: CommandResult = await ActivityEnvironment().run(service.power_off, request())
    assert (result.sent, result.before, plug.told) == (True, PowerState.ON, ["read", "off"])


@pytest.mark.parametrize("act", ["power_off", "power_on"])
async def test_a_worker_whose_clock_is_behind_sends_nothing_late(service: PowerService, plug: Plug, act: str) -> None:
    """S20, S45: Temporal has given the act out two minutes after its window, by the one clock that made it."""
    plug.state = PowerState.OFF if act == "power_on" else PowerState.ON
    environment, now = ActivityEnvironment(), datetime.now(UTC)
    environment.info = replace(environment.info, started_time=now + timedelta(minutes=2))
    with pytest.raises(ApplicationError) as refused:
        await environment.run(getattr(service, act), request(not_after=now + timedelta(seconds=15)))
    assert error_type(refused.value) is ErrorType.EXPIRED
    assert plug.told in ([], ["read"])
