"""What a machine's device has seen of it: a cloud's copy of the console, a BMC's event log. Read once and kept, nothing more.

The worker that read it writes it (see `activities/evidence_directory.py`). What the device was told as a credential is cut out
of its words, and so are private keys (S12); what else a machine prints on its console is evidence, and whoever may read the
directory reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from temporalio import activity

from activities.contracts.evidence import DeviceEvidenceActivities, DeviceEvidenceRequest, EvidenceFile
from activities.errors import ErrorType, failure
from activities.evidence_directory import EvidenceDirectory, newest
from activities.licences import Licences
from activities.power.driver import CloudDriver, Deadline, DeviceCredentials, EventLogDriver, PowerDriver, PowerError
from activities.power.registry import driver_for
from activities.power.service import CredentialSource
from policy.episode.evidence import without_private_keys
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerCapability

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
        """Reading harms nobody, so our own node's device may be read too."""
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
