"""Reading many devices for a check: each once, a few at a time, and never more than reading.

A driver here is only ever asked for its state. What is known of a device that gives none is said in one line, without anything
secret (S12). Commands, and readings that prove something, are `service.py`.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.contracts.device_check import READ_AT_ONCE, DeviceReadingActivities, DevicesRead, ReadDevicesRequest
from activities.errors import ErrorType, error_type
from activities.licences import Licences
from activities.power.driver import Deadline, DeviceCredentials, PowerDriver, PowerError
from activities.power.registry import driver_for
from activities.power.service import CredentialSource
from policy.fence.device_check import DeviceAnswer, DeviceToCheck, Reachability
from policy.fence.plan import PowerDevice
from policy.fence.power import InsecureDevices, PowerState, insecurity_of

log = logging.getLogger(__name__)

PASSING = frozenset({ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED})
"""Failures to get at a credential that say nothing of the device."""


class DeviceReadings(DeviceReadingActivities):
    """Served by the workers of a site, beside `PowerService`. insecure: what this worker thinks of devices where others
    could listen; it is the source of credentials that refuses them."""

    def __init__(
        self,
        credentials: CredentialSource,
        guard: Licences,
        *,
        drivers: Callable[[PowerDevice, DeviceCredentials], PowerDriver] = driver_for,
        insecure: InsecureDevices = InsecureDevices.WARN,
    ) -> None:
        self._insecure = insecure
        self._credentials = credentials
        self._guard = guard
        self._drivers = drivers

    @activity.defn(name="fence-check.read-devices")
    async def read_devices(self, request: ReadDevicesRequest) -> DevicesRead:
        """Never fails for what one device does."""
        gate = asyncio.Semaphore(READ_AT_ONCE)

        async def one(checked: DeviceToCheck) -> DeviceAnswer:
            async with gate:
                answer = await self._read(request.cluster, checked)
                told = self._insecure is InsecureDevices.WARN
                return replace(answer, insecurity=insecurity_of(checked.device)) if told else answer

        return DevicesRead(answers=tuple(await asyncio.gather(*(one(each) for each in request.devices))))

    async def _read(self, cluster: str, checked: DeviceToCheck) -> DeviceAnswer:
        device, clock = checked.device, asyncio.get_running_loop().time
        try:
            self._guard.require_seal(cluster, checked.node, device)
            credentials = await self._credentials.read(cluster, device)
        except ApplicationError as error:
            return _unanswered(device, error.message, silent=error_type(error) not in PASSING)
        asked = clock()
        try:
            reading = await self._drivers(device, credentials).read(Deadline.within(checked.deadline))
        except PowerError as error:
            return _unanswered(device, str(error), silent=error.type is not ErrorType.RATE_LIMITED)
        except Exception as error:  # noqa: BLE001 - one driver's mistake must not hide what all the other devices say
            where = "".join(traceback.format_tb(error.__traceback__))  # without its text, which nobody vouches for (S12)
            log.error("reading %s: unexpected %s\n%s", device.endpoint, type(error).__name__, where)
            return _unanswered(device, f"{device.endpoint}: unexpected {type(error).__name__}, see the log of its worker")
        answers = reading.state is not PowerState.UNKNOWN
        return DeviceAnswer(
            endpoint=device.endpoint,
            answer=Reachability.ANSWERS if answers else Reachability.UNREAD,
            at=reading.at,
            state=reading.state,
            latency=timedelta(seconds=clock() - asked),
            serves=reading.serves,
            problem="" if answers else f"answers, but says neither on nor off{f': {reading.detail}' if reading.detail else ''}",
        )


def _unanswered(device: PowerDevice, problem: str, *, silent: bool = True) -> DeviceAnswer:
    answer = Reachability.SILENT if silent else Reachability.UNREAD
    return DeviceAnswer(endpoint=device.endpoint, answer=answer, at=datetime.now(UTC), problem=problem)
