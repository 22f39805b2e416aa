"""Reading devices for a check: against a real BMC, and what a driver's failure comes to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.contracts.device_check import READ_AT_ONCE, ReadDevicesRequest
from activities.errors import ErrorType, failure
from activities.power.driver import Deadline, DeviceCredentials, PowerDriver, PowerError
from activities.power.service import DeviceReadings
from policy.episode.messages import Reading
from policy.fence.device_check import DeviceAnswer, DeviceToCheck, Reachability
from policy.fence.plan import PowerDevice
from policy.fence.power import InsecureDevices, PowerState
from tests.licensing import BELIEVING
from tests.power.conftest import PASSWORD, USERNAME, Stand
from tests.power.targets import endpoint_of

CANARY = "k3p-my-canary"


@dataclass
class Known:
    """A source of credentials that knows one user, or fails."""

    password: str = PASSWORD
    error: Exception | None = None

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        if self.error is not None:
            raise self.error
        return DeviceCredentials(values={"username": USERNAME, "password": self.password})


@dataclass
class Scripted:
    """A driver that says what the test wants, and counts who reads at once."""

    does: Callable[[], PowerState]
    now: int = 0
    most: int = 0

    async def read(self, deadline: Deadline) -> Reading:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return Reading(endpoint="x", state=self.does(), at=datetime.now(UTC), detail="is being started")


def a_bmc(port: int, deadline: float = 5) -> DeviceToCheck:
    parameters = {"ip": "127.0.0.1", "ipport": str(port)}
    device = PowerDevice(driver="ipmi", endpoint=endpoint_of("ipmi", parameters), parameters=parameters)
    return DeviceToCheck(device=device, deadline=timedelta(seconds=deadline))


async def read(*devices: DeviceToCheck, known: Known | None = None, **options: Any) -> tuple[DeviceAnswer, ...]:
    readings = DeviceReadings(known or Known(), BELIEVING, **options)
    request = ReadDevicesRequest(cluster="prod", devices=devices)
    return (await ActivityEnvironment().run(readings.read_devices, request)).answers


async def scripted(does: Callable[[], PowerState], number: int = 1) -> tuple[Scripted, tuple[DeviceAnswer, ...]]:
    driver = Scripted(does)
    devices = [a_bmc(700 + each) for each in range(number)]
    return driver, await read(*devices, drivers=lambda _device, _credentials: cast("PowerDriver", driver))


def raising(error: Exception) -> Callable[[], PowerState]:
    def does() -> PowerState:
        raise error

    return does


async def test_a_bmc_answers_with_its_state_and_how_long_it_took_and_a_dead_one_hides_it_not(python_stand: Stand) -> None:
    """And nothing is commanded."""
    alive, dead = await read(a_bmc(python_stand.bmc.port), a_bmc(9, deadline=0.5))
    assert (alive.answer, alive.state, alive.problem) == (Reachability.ANSWERS, PowerState.ON, "")
    assert alive.latency is not None
    assert timedelta(0) < alive.latency < timedelta(seconds=5)
    assert (dead.answer, dead.state, dead.latency) == (Reachability.SILENT, PowerState.UNKNOWN, None)
    assert "ipmi://127.0.0.1:9: no answer from the BMC" in dead.problem
    assert python_stand.machine.log == []


async def test_a_password_that_is_refused_is_silence_with_its_reason_and_without_the_password(python_stand: Stand) -> None:
    """S12."""
    (answer,) = await read(a_bmc(python_stand.bmc.port), known=Known(password=CANARY))
    assert answer.answer is Reachability.SILENT
    assert "refuse" in answer.problem or "password" in answer.problem
    assert CANARY not in repr(answer)


async def test_a_few_are_read_side_by_side_and_no_more() -> None:
    driver, answers = await scripted(lambda: PowerState.ON, 3 * READ_AT_ONCE)
    assert driver.most == READ_AT_ONCE
    assert [each.endpoint for each in answers] == [f"ipmi://127.0.0.1:{700 + each}" for each in range(3 * READ_AT_ONCE)]


async def test_a_device_that_names_no_state_is_neither_silent_nor_well() -> None:
    """S3: unknown is never off, and a machine that is just being started is no failure of its device."""
    _, (answer,) = await scripted(lambda: PowerState.UNKNOWN)
    assert (answer.answer, answer.problem) == (Reachability.UNREAD, "answers, but says neither on nor off: is being started")


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (ErrorType.RATE_LIMITED, Reachability.UNREAD),
        (ErrorType.UNREACHABLE, Reachability.SILENT),
        (ErrorType.UNAUTHORIZED, Reachability.SILENT),
        (ErrorType.TRANSIENT, Reachability.SILENT),
        (ErrorType.INVALID_CONFIG, Reachability.SILENT),
    ],
)
async def test_only_being_asked_for_patience_is_no_silence(kind: ErrorType, answer: Reachability) -> None:
    _, (found,) = await scripted(raising(PowerError(kind, "the reason")))
    assert (found.answer, found.problem) == (answer, "the reason")


@pytest.mark.parametrize(
    ("kind", "answer"), [(ErrorType.UNREACHABLE, Reachability.UNREAD), (ErrorType.INVALID_CONFIG, Reachability.SILENT)]
)
async def test_an_api_that_is_away_says_nothing_of_the_device_and_a_missing_secret_does(
    kind: ErrorType, answer: Reachability
) -> None:
    (found,) = await read(a_bmc(9), known=Known(error=failure(kind, "Secret/default/bmc")))
    assert (found.answer, found.problem) == (answer, "Secret/default/bmc")


async def test_a_drivers_own_mistake_hides_no_other_device_and_tells_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """S12: the text of an error that nobody foresaw is nobody's to vouch for."""
    with caplog.at_level(logging.ERROR):
        _, (found,) = await scripted(raising(KeyError(CANARY)))
    assert (found.answer, CANARY in repr(found), CANARY in caplog.text) == (Reachability.SILENT, False, False)
    assert "unexpected KeyError" in found.problem
    assert "test_device_reading.py" in caplog.text


@pytest.mark.parametrize(("choice", "told"), [(InsecureDevices.WARN, True), (InsecureDevices.ALLOW, False)])
async def test_how_others_could_listen_is_told_unless_this_worker_does_not_mind(choice: InsecureDevices, told: bool) -> None:
    parameters = {"ip": "127.0.0.1", "ipport": "9", "scheme": "http"}
    device = PowerDevice(driver="redfish", endpoint=endpoint_of("redfish", parameters), parameters=parameters)
    (answer,) = await read(DeviceToCheck(device=device, deadline=timedelta(seconds=1)), insecure=choice)
    assert answer.insecurity == ("plain HTTP (scheme)" if told else "")


def test_a_batch_has_the_time_that_its_devices_may_take() -> None:
    request = ReadDevicesRequest(cluster="prod", devices=tuple(a_bmc(9, deadline=10) for _ in range(READ_AT_ONCE + 1)))
    assert timedelta(seconds=20) < request.longest < timedelta(seconds=30)
