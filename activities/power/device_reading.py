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
from typing import cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.contracts.device_check import READ_AT_ONCE, DeviceReadingActivities, DevicesRead, ReadDevicesRequest
from activities.contracts.evidence import DeviceEvidenceActivities, DeviceEvidenceRequest, EvidenceFile
from activities.errors import ErrorType, error_type, failure
from activities.evidence_directory import EvidenceDirectory, newest
from activities.licences import Licences
from activities.power.driver import CloudDriver, Deadline, DeviceCredentials, EventLogDriver, PowerDriver, PowerError
from activities.power.registry import driver_for
from activities.power.service import CredentialSource
from policy.episode.evidence import without_private_keys
from policy.fence.device_check import DeviceAnswer, DeviceToCheck, Reachability
from policy.fence.plan import PowerDevice
from policy.fence.power import InsecureDevices, PowerCapability, PowerState, insecurity_of

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

    @activity.defn(name="device-check.read-devices")
    async def read_devices(self, request: ReadDevicesRequest) -> DevicesRead:
        """Never fails for what one device does."""
        gate = asyncio.Semaphore(READ_AT_ONCE)

        async def one(checked: DeviceToCheck) -> DeviceAnswer:
            async with gate:
                answer = await self._read(request.cluster, checked)
                warns = self._insecure is InsecureDevices.WARN
                return replace(answer, insecurity=insecurity_of(checked.device)) if warns else answer

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
            where = "".join(traceback.format_tb(error.__traceback__))  # without its text, which may hold a secret (S12)
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


# What a machine's device has seen of it: a cloud's copy of the console, a BMC's event log. Read once and kept, nothing more.
#
# The worker that read it writes it (see `activities/evidence_directory.py`). Credentials of the device are cut out of what it
# says, and so are private keys (S12); what else a machine prints on its console is evidence, for all who may read the directory.

READING_SHARE = 0.7
"""Of the patience with one bundle; the rest is for writing."""


class DeviceEvidence(DeviceEvidenceActivities):
    """Served by the workers of a site, beside `PowerService`. directory None: this worker keeps nothing."""

    def __init__(
        self,
        directory: EvidenceDirectory | None,
        credentials: CredentialSource,
        guard: Licences,
        *,
        drivers: Callable[[PowerDevice, DeviceCredentials], PowerDriver] = driver_for,
    ) -> None:
        self._directory = directory
        self._credentials = credentials
        self._guard = guard
        self._drivers = drivers

    @activity.defn(name="evidence.read-device")
    async def read_device(self, request: DeviceEvidenceRequest) -> EvidenceFile:
        """Our own node's device, too: reading changes nothing."""
        directory = self._directory
        if directory is None:
            raise failure(ErrorType.NOT_SUPPORTED, f"the workers of power.{request.device.site} have no evidence.directory")
        async with directory.patiently():
            return await self._keep(request, directory)

    async def _keep(self, request: DeviceEvidenceRequest, directory: EvidenceDirectory) -> EvidenceFile:
        device, deadline = request.device, Deadline.within(directory.limits.patience * READING_SHARE)
        self._guard.require_seal(request.bundle.cluster, request.bundle.node, device)
        credentials = await self._credentials.read(request.bundle.cluster, device)
        try:
            kind, text = await _read(self._drivers(device, credentials), deadline)
        except PowerError as error:
            raise failure(error.type, str(error)) from None
        content = without_private_keys(credentials.hidden_in(text)).encode(errors="replace")
        kept = newest(content, min(request.room, directory.limits.file_bytes))
        name = f"{device.endpoint}-{kind}.txt"
        return await directory.write(request.bundle, name, kept, of=f"{kind} of {device.endpoint}", whole=len(content))


async def _read(driver: PowerDriver, deadline: Deadline) -> tuple[str, str]:
    if PowerCapability.CONSOLE in driver.capabilities:
        return "console", await cast("CloudDriver", driver).console(deadline)
    if PowerCapability.EVENT_LOG in driver.capabilities:
        return "event-log", await cast("EventLogDriver", driver).event_log(deadline)
    raise failure(ErrorType.NOT_SUPPORTED, f"{driver.endpoint}: this driver reads neither a console nor an event log")
