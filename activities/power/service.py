"""Power activities: one short act on one device each, with everything checked that must be checked before it is sent.

Refused before anything is sent: our own node (S16), an act after its moment (S20), what no worker of ours has signed (S42).
Credentials are read at the moment of use and live only in this process and the child's pipe (S12). What a driver's failure means
to a workflow is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.contracts.device_check import READ_AT_ONCE, DeviceReadingActivities, DevicesRead, ReadDevicesRequest
from activities.contracts.evidence import DeviceEvidenceActivities, DeviceEvidenceRequest, EvidenceFile
from activities.contracts.power import (
    CommandResult,
    GivenUpRequest,
    LiftRequest,
    PowerActivities,
    PowerRequest,
    QuarantineLifted,
    VolumeRequest,
    VolumesResult,
)
from activities.errors import ErrorType, error_message, error_type, failure
from activities.evidence_directory import EvidenceDirectory, newest
from activities.licences import DeviceCommand, Licences
from activities.power.driver import CloudDriver, Deadline, DeviceCredentials, EventLogDriver, PowerDriver, PowerError
from activities.power.registry import driver_for
from activities.worker_clock import utc_now
from policy.episode.evidence import without_private_keys
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
from policy.fence.device_check import DeviceAnswer, DeviceToCheck, Reachability
from policy.fence.plan import PowerDevice
from policy.fence.power import (
    RESTORING,
    InsecureDevices,
    PowerAct,
    PowerCapability,
    PowerState,
    Quarantine,
    another_machine,
    insecurity_of,
    instance_in,
)

log = logging.getLogger(__name__)

Bounded = TypeVar("Bounded", PowerRequest, VolumeRequest, LiftRequest)
DeviceRequest = DeviceCommand | GivenUpRequest

READ_SHARE = 0.4
"""Of a command's deadline, what its preceding reading may use."""

READ_BACK_PAUSE = timedelta(milliseconds=200)
"""Before a command's effect is read back a second time; twice as long before each further one."""


class CredentialSource(Protocol):
    """Where references to credentials are resolved: the cluster's API, or a source mounted on a site's worker."""

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        """Its credentials now. Raises an ApplicationError of `activities.errors` that names the object, never its content."""


@dataclass(frozen=True)
class DeviceService:
    """Served by the workers of a site. guard: what is asked before a request is believed. drivers: finds a device's driver."""

    credentials: CredentialSource
    guard: Licences
    _: KW_ONLY
    drivers: Callable[[PowerDevice, DeviceCredentials], PowerDriver] = driver_for


@dataclass(frozen=True)
class PowerService(DeviceService, PowerActivities):
    """own_node: the node this worker runs on (downward API), "" outside a cluster."""

    own_node: str = ""

    async def read_power(self, request: PowerRequest) -> Reading:
        """Read the state, also our own node's: reading changes nothing."""
        deadline = Deadline.within(request.deadline)
        driver = await self._driver(request)
        with _as_failures():
            reading = await driver.read(deadline)
        _refuse_another_machine(request, reading)
        return self.guard.sealed_reading(request.target, reading, utc_now(), request.device.levels)

    async def power_off(self, request: PowerRequest) -> CommandResult:
        """Command off, whatever the device said before: only an off that has ended makes a later reading a proof (S2)."""
        return await self._switch(request, PowerAct.OFF)

    async def power_on(self, request: PowerRequest) -> CommandResult:
        """Command on, unless the device says on already."""
        return await self._switch(request, PowerAct.ON)

    async def terminate(self, request: PowerRequest) -> CommandResult:
        """Only a machine that says off: one that was started meanwhile is wanted."""
        with self._licensed(request, PowerAct.TERMINATE) as (licensed, deadline):
            driver = _cloud(await self._driver(licensed), PowerCapability.TERMINATE)
            before = await self._read_before(driver, licensed)
            if before.state is not PowerState.OFF:
                raise failure(ErrorType.NOT_PROVEN, f"{driver.endpoint} says {before.state.value}, it is not given up")
            _refuse_late(licensed)
            await driver.terminate(deadline)
            detail, machine = "was off, giving it up was accepted", instance_in(before.serves)
            return CommandResult(sent=True, before=before.state, detail=detail, machine=machine)

    async def read_given_up(self, request: GivenUpRequest) -> GivenUpReading:
        """Our own node's, too: reading changes nothing."""
        driver = _cloud(await self._driver(request), PowerCapability.TERMINATE)
        with _as_failures():
            return await driver.given_up(request.machine, Deadline.within(request.deadline))

    async def read_path(self, request: PowerRequest) -> Reading:
        return await self.read_power(request)

    async def cut_path(self, request: PowerRequest) -> CommandResult:
        """A path is cut like power is switched off, and never our own node's (S16)."""
        return await self._switch(request, PowerAct.CUT_PATH)

    async def restore_path(self, request: PowerRequest) -> CommandResult:
        """A path is given back like power is switched on."""
        return await self._switch(request, PowerAct.RESTORE_PATH)

    async def quarantine(self, request: PowerRequest) -> Quarantine:
        """A change of the network of a machine that runs: as destructive as a cut path (S16, S20)."""
        with self._licensed(request, PowerAct.QUARANTINE) as (licensed, deadline):
            driver = _cloud(await self._driver(licensed), PowerCapability.QUARANTINE)
            await self._read_before(driver, licensed)
            _refuse_late(licensed)
            found = await driver.quarantine(deadline)
            return self.guard.sealed_quarantine(licensed.target, licensed.device.endpoint, found)

    async def lift_quarantine(self, request: LiftRequest) -> QuarantineLifted:
        """Restoring: no circuit breaker stops it."""
        with self._licensed(request, PowerAct.LIFT_QUARANTINE) as (licensed, deadline):
            if licensed.quarantine is not None:
                self.guard.require_quarantine(licensed.target, licensed.device.endpoint, licensed.quarantine)
            driver = _cloud(await self._driver(licensed), PowerCapability.QUARANTINE)
            await self._read_before(driver, licensed)
            _refuse_late(licensed)
            return QuarantineLifted(groups=await driver.lift_quarantine(licensed.quarantine, deadline))

    async def list_volumes(self, request: PowerRequest) -> VolumesResult:
        """Asked anew in each episode: what is attached changes with every pod."""
        driver = _cloud(await self._driver(request), PowerCapability.VOLUMES)
        with _as_failures():
            return VolumesResult(volumes=await driver.volumes(Deadline.within(request.deadline)))

    async def detach_volume(self, request: VolumeRequest) -> CommandResult:
        """One command, whatever was read before: only a detachment that has ended makes a later reading a proof (S2)."""
        with self._licensed(request, PowerAct.DETACH_VOLUME) as (licensed, deadline):
            driver = _cloud(await self._driver(licensed), PowerCapability.VOLUMES)
            await self._read_before(driver, licensed)
            _refuse_late(licensed)
            await driver.detach(licensed.volume, deadline)
            return CommandResult(
                sent=True,
                before=PowerState.UNKNOWN,
                detail=f"detaches {licensed.volume}",
            )

    async def read_volume(self, request: VolumeRequest) -> VolumeReading:
        """Wherever it is by now."""
        driver = _cloud(await self._driver(request), PowerCapability.VOLUMES)
        with _as_failures():
            reading = await driver.read_volume(request.volume, Deadline.within(request.deadline))
        return self.guard.sealed_reading(request.target, reading, utc_now())

    async def _switch(self, request: PowerRequest, act: PowerAct) -> CommandResult:
        """One act on one device, in one session of it: read, compare which machine it is (S39), command, read back.

        Off is commanded whatever was read before: only an off that has ended makes a later reading a proof (S2). On is not where
        the device says on.
        """
        wanted = PowerState.ON if act in RESTORING else PowerState.OFF
        with self._licensed(request, act) as (licensed, deadline):
            driver = await self._driver(licensed)
            async with driver.session() as device:
                before = (await self._read_before(device, licensed)).state
                if before is wanted is PowerState.ON:
                    return CommandResult(sent=False, before=before, detail="was on already")
                _refuse_late(licensed)
                await (device.on(deadline) if wanted is PowerState.ON else device.off(deadline))
                after = await self._read_back(device, licensed, wanted)
            detail = f"was {before.value}, {wanted.value} accepted"
            return CommandResult(sent=True, before=before, detail=detail, after=after)

    @contextlib.contextmanager
    def _licensed(self, request: Bounded, act: PowerAct) -> Iterator[tuple[Bounded, Deadline]]:
        """The request, with the end of its window by our clock. Refused: our own node's (S16), one without a licence (S42). What
        was done for which workflow is on record here, too, where no client of Temporal can change it."""
        target, what = request.target, f"{act.value} of {request.device.endpoint}"
        if act not in RESTORING and self.own_node and _node(request) == self.own_node:
            raise failure(ErrorType.OWN_NODE, f"this worker runs on {self.own_node} and never switches it off itself")
        self.guard.require_licence(request, act)
        about = f"Node/{target.pinned.node} of {target.cluster}, incident {target.incident}"
        asked = f"{what} for {about}, asked for by workflow {activity.info().workflow_id}"
        try:
            licensed = _by_our_clock(request)
            with _as_failures():
                yield licensed, Deadline.within(licensed.deadline, not_after=licensed.not_after)
        except BaseException as error:
            log.warning("%s: %s", asked, error_message(error) or "cancelled")
            raise
        log.info("%s: done", asked)

    async def _driver(self, request: DeviceRequest) -> PowerDriver:
        device = request.device
        if device.endpoint not in request.target.pinned.endpoints:
            pinned = ", ".join(request.target.pinned.endpoints) or "none"
            raise failure(ErrorType.TARGET_CHANGED, f"{device.endpoint} is not a pinned device of {_node(request)}: {pinned}")
        self.guard.require_seal(request.target.cluster, request.target.pinned.node, device)
        credentials = await self.credentials.read(request.target.cluster, device)
        with _as_failures():
            return self.drivers(device, credentials)

    async def _read_before(self, driver: PowerDriver, request: DeviceCommand) -> Reading:
        """A device that can't be read isn't commanded: a lost answer there would look like a lost command. Nor is one that
        says it is another machine's by now (S39)."""
        reading = await driver.read(Deadline.within(request.deadline * READ_SHARE))
        _refuse_another_machine(request, reading)
        return reading

    async def _read_back(self, driver: PowerDriver, request: PowerRequest, wanted: PowerState) -> Reading | None:
        """What the device says of itself, each time asked for after its command's end (S1, S2), until it says what was commanded
        or the time for that is over. One that can't be read takes nothing back: the command has ended all the same."""
        over = Deadline.within(request.read_back)
        reading: Reading | None = None
        pause = READ_BACK_PAUSE
        while over.remaining() > timedelta(0):
            try:
                said = await driver.read(over)
            except PowerError:
                return reading
            if another_machine(said.serves, request.target.pinned):
                return reading
            reading = self.guard.sealed_reading(request.target, said, utc_now(), request.device.levels)
            if reading.state is wanted or over.remaining() <= pause:
                return reading
            await asyncio.sleep(pause.total_seconds())
            pause *= 2
        return reading


def _cloud(driver: PowerDriver, capability: PowerCapability) -> CloudDriver:
    if capability not in driver.capabilities:
        raise failure(ErrorType.NOT_SUPPORTED, f"{driver.endpoint}: this driver has no {capability.value}")
    return cast("CloudDriver", driver)


def _refuse_another_machine(request: DeviceRequest, reading: Reading) -> None:
    """The address of a BMC may have been given to another machine's, or a name in a cloud: its off would be the wrong one's, and
    what it says proves nothing of ours (S39)."""
    if difference := another_machine(reading.serves, request.target.pinned):
        message = f"{request.device.endpoint} is not the device of {_node(request)}: {difference}"
        raise failure(ErrorType.TARGET_CHANGED, f"{message}; nothing was sent")


def _node(request: DeviceRequest) -> str:
    return request.target.pinned.node


def _by_our_clock(request: Bounded) -> Bounded:
    """The request with the end of its window by this worker's clock, where that is behind the one which set it: Temporal says
    when it gave the act out."""
    behind = activity.info().started_time - datetime.now(UTC)
    if request.not_after is None or behind <= timedelta(0):
        return request
    return replace(request, not_after=request.not_after - behind)


def _refuse_late(request: DeviceCommand) -> None:
    if request.not_after is not None and datetime.now(UTC) > request.not_after:
        late = datetime.now(UTC) - request.not_after
        raise failure(
            ErrorType.EXPIRED,
            f"{request.device.endpoint}: {late / timedelta(seconds=1):.1f} s too late after its last look; nothing was sent",
        )


@contextlib.contextmanager
def _as_failures() -> Iterator[None]:
    """The one boundary where a driver's failure becomes what workflows switch on; its text carries no secret."""
    try:
        yield
    except PowerError as error:
        raise failure(error.type, str(error)) from None


# Reading many devices for a check: each once, a few at a time, and never more than reading.
#
# A driver here is only ever asked for its state. What is known of a device that gives none is said in one line, without anything
# secret (S12). Commands, and readings that prove something, are above.

PASSING = frozenset({ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED})
"""Failures to get at a credential that say nothing of the device."""


@dataclass(frozen=True)
class DeviceReadings(DeviceService, DeviceReadingActivities):
    """insecure: what this worker thinks of devices where others could listen; it is the source of credentials that refuses
    them."""

    insecure: InsecureDevices = InsecureDevices.WARN

    async def read_devices(self, request: ReadDevicesRequest) -> DevicesRead:
        """Never fails for what one device does."""
        gate = asyncio.Semaphore(READ_AT_ONCE)

        async def one(checked: DeviceToCheck) -> DeviceAnswer:
            async with gate:
                answer = await self._read(request.cluster, checked)
                warns = self.insecure is InsecureDevices.WARN
                return replace(answer, insecurity=insecurity_of(checked.device)) if warns else answer

        return DevicesRead(answers=tuple(await asyncio.gather(*(one(each) for each in request.devices))))

    async def _read(self, cluster: str, checked: DeviceToCheck) -> DeviceAnswer:
        device, clock = checked.device, asyncio.get_running_loop().time
        try:
            self.guard.require_seal(cluster, checked.node, device)
            credentials = await self.credentials.read(cluster, device)
        except ApplicationError as error:
            return _unanswered(device, error.message, silent=error_type(error) not in PASSING)
        asked = clock()
        try:
            reading = await self.drivers(device, credentials).read(Deadline.within(checked.deadline))
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


@dataclass(frozen=True)
class DeviceEvidence(DeviceService, DeviceEvidenceActivities):
    """directory None: this worker keeps nothing."""

    directory: EvidenceDirectory | None = None

    async def read_device(self, request: DeviceEvidenceRequest) -> EvidenceFile:
        """Our own node's device, too: reading changes nothing."""
        if (directory := self.directory) is None:
            raise failure(ErrorType.NOT_SUPPORTED, f"the workers of power.{request.device.site} have no evidence.directory")
        async with directory.patiently():
            return await self._keep(request, directory)

    async def _keep(self, request: DeviceEvidenceRequest, directory: EvidenceDirectory) -> EvidenceFile:
        device, deadline = request.device, Deadline.within(directory.limits.patience * READING_SHARE)
        self.guard.require_seal(request.bundle.cluster, request.bundle.node, device)
        credentials = await self.credentials.read(request.bundle.cluster, device)
        try:
            kind, text = await _read(self.drivers(device, credentials), deadline)
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
