"""Google Compute Engine: an instance is its own power device, its API the switch.

Here: what each act asks, and what its answer means. How one request is put within its deadline is
`activities/power/cloud_call.py` and, in its thread, `client.py`.

A stop is asked for without the cloud's graceful shutdown, but the guest still gets its ACPI power button first: one that hangs is
cut off only after some 90 s. The off time-out of a plan has to allow for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import uuid4

from activities.errors import ErrorType
from activities.power.cloud_call import CallStage, CloudCall, NotThereError
from activities.power.driver import (
    Deadline,
    DeviceCredentials,
    PowerError,
    invalid,
    parameters_of,
    require_own_cloud,
)
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
from policy.fence.drivers.gce import SERVICE_ACCOUNT, GceInstance, is_token_uri
from policy.fence.power import PowerCapability, PowerState, VolumeState, instance_of

if TYPE_CHECKING:
    from google.cloud import compute_v1

CONSOLE_BYTES = 64 * 1024
"""Of the megabyte that Compute Engine keeps: a kernel's last words, and no more than a record should carry."""

# Only two states say that the machine has stopped and its resources are given back. All others are not off:
# - STOPPING, PENDING_STOP, DEPROVISIONING: under way; the guest may still run, and its last writes may not have arrived.
# - SUSPENDING, SUSPENDED: memory is kept. A resumed guest goes on in the middle of a write, when others have long had its disks.
#   Google documents resume and delete as the ways out. A stop is asked for all the same; where it is refused a person decides,
#   and nothing of ours ever resumes.
# - REPAIRING: the host is lost sight of or being mended, and with it whether the guest runs.
# - one that is new to us.
OFF = frozenset({"TERMINATED", "STOPPED"})
# A start that is under way counts as on: nothing more is to be commanded.
ON = frozenset({"RUNNING", "STAGING", "PROVISIONING", "PENDING"})

UNSPECIFIED = "UNSPECIFIED"
"""How the CSI driver's handles of volumes that were made before it leave out project and place."""

_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_DISK = re.compile(
    r"(?:https?://[^/]+/compute/[a-z0-9]+/)?"
    rf"projects/(?P<project>[a-z0-9][-a-z0-9.:]*|{UNSPECIFIED})/"
    rf"(?P<scope>zones|regions)/(?P<place>[a-z0-9][-a-z0-9]*|{UNSPECIFIED})/"
    rf"disks/(?P<disk>{_NAME.pattern})"
)

KEY_FIELDS = ("client_email", "private_key", "token_uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A persistent disk by name, in a zone or (regional) in a region."""

    project: str
    place: str
    disk: str
    regional: bool

    @property
    def handle(self) -> str:
        """As the CSI driver spells it in a PersistentVolume."""
        return f"projects/{self.project}/{'regions' if self.regional else 'zones'}/{self.place}/disks/{self.disk}"

    @classmethod
    def parse(cls, volume: str, near: GceInstance) -> Disk:
        """From a CSI volume handle, a URL of the API, or the bare name of a disk in the instance's zone."""
        if _NAME.fullmatch(volume):
            return cls(project=near.project, place=near.zone, disk=volume, regional=False)
        found = _DISK.fullmatch(volume)
        if found is None:
            expected = "projects/…/zones/…/disks/…, projects/…/regions/…/disks/… or a disk's name"
            raise invalid(f"{near.endpoint}: volume {volume!r} is none of Compute Engine: expected {expected}")
        regional = found["scope"] == "regions"
        place = found["place"]
        if place == UNSPECIFIED:
            place = near.zone.rpartition("-")[0] if regional else near.zone
        project = near.project if found["project"] == UNSPECIFIED else found["project"]
        return cls(project=project, place=place, disk=found["disk"], regional=regional)


@dataclass(frozen=True, slots=True, kw_only=True)
class GceFactory:
    """Compute Engine as the registry knows it. trusted: further APIs that are given the worker's own identity."""

    trusted: frozenset[str] = frozenset()

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        return _parsed(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> GceDriver:
        instance, key = _parsed(parameters), credentials.values.get(SERVICE_ACCOUNT, "")
        if key:
            _check_key(key)
        elif not instance.api_is_plain:  # where no token of ours goes at all
            require_own_cloud(instance.endpoint, instance.api, SERVICE_ACCOUNT, own=instance.api_is_googles, trusted=self.trusted)
        return GceDriver(instance=instance, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class GceDriver:
    """One instance. key: the service account's, "" for the identity of the worker itself."""

    instance: GceInstance
    key: str = field(default="", repr=False)

    @property
    def endpoint(self) -> str:
        """Project, zone and name."""
        return self.instance.endpoint

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """All but quarantine and a BMC's log. No reset: a node is fenced by its off half (S5)."""
        return frozenset(PowerCapability) - {PowerCapability.QUARANTINE, PowerCapability.EVENT_LOG}

    def session(self) -> AbstractAsyncContextManager[GceDriver]:
        """Each call is a request of its own."""
        return nullcontext(self)

    async def read(self, deadline: Deadline) -> Reading:
        asked_at = datetime.now(UTC)
        found = await self._instance("read", deadline)
        status = found.status
        state = PowerState.OFF if status in OFF else PowerState.ON if status in ON else PowerState.UNKNOWN
        detail = ": ".join(part for part in (status or "no status", found.status_message) if part)
        serves = (instance_of(str(found.id)),) if found.id else ()
        return Reading(endpoint=self.endpoint, state=state, at=asked_at, detail=detail, serves=serves)

    async def off(self, deadline: Deadline) -> None:
        """Stop. Scratch disks are discarded unless configured otherwise: without a word about them a stop is refused."""
        discard = "true" if self.instance.discard_local_ssd else "false"
        stop = self._command("off", deadline, "stop", discardLocalSsd=discard, noGracefulShutdown="true")
        await self._unless_suspended("off", stop, deadline)

    async def on(self, deadline: Deadline) -> None:
        """Start. Refused as Transient while the instance is still stopping."""
        await self._unless_suspended("on", self._command("on", deadline, "start"), deadline)

    async def terminate(self, deadline: Deadline) -> None:
        """Delete the instance, and the disks that are marked to go with it."""
        await self._command("terminate", deadline, noGracefulShutdown="true")

    async def given_up(self, machine: str, deadline: Deadline) -> GivenUpReading:
        """An instance that is given up is gone; a managed group may have made another of its name by then, of another number."""
        asked_at = datetime.now(UTC)
        try:
            found = await self._instance("given-up", deadline)
        except NotThereError as error:
            if f"instances/{self.instance.instance}'" not in str(error):
                raise  # the answer may be about the project, or not of Compute Engine at all
            return GivenUpReading(endpoint=self.endpoint, given_up=True, at=asked_at, detail="there is no such instance any more")
        replaced = bool(machine) and str(found.id) != machine
        detail = f"another instance has its name, number {found.id}" if replaced else found.status or "no status"
        return GivenUpReading(endpoint=self.endpoint, given_up=replaced, at=asked_at, detail=detail)

    async def console(self, deadline: Deadline) -> str:
        """The newest output of serial port 1."""
        output: compute_v1.SerialPortOutput = await self._ask(
            "console", deadline, f"{self._path}/serialPort", "SerialPortOutput", port=1, start=-CONSOLE_BYTES
        )
        return output.contents.encode()[-CONSOLE_BYTES:].decode(errors="replace")

    async def volumes(self, deadline: Deadline) -> tuple[VolumeReading, ...]:
        """The persistent disks attached now, as CSI handles. Scratch disks go with the machine and are none. What is deleted with
        the instance is its own, as what it boots from: no driver of Kubernetes attaches disks so."""
        asked_at = datetime.now(UTC)
        found = await self._instance("volumes", deadline)
        return tuple(
            VolumeReading(
                volume=Disk.parse(attached.source, self.instance).handle,
                state=VolumeState.ATTACHED,
                at=asked_at,
                root=attached.boot or attached.auto_delete,
                detail=attached.device_name,
            )
            for attached in found.disks
            if attached.source
        )

    async def read_volume(self, volume: str, deadline: Deadline) -> VolumeReading:
        """Ask the disk who uses it. `volume` in the answer is as it was asked for."""
        disk, asked_at = Disk.parse(volume, self.instance), datetime.now(UTC)
        try:
            found: compute_v1.Disk = await self._ask("read volume", deadline, disk.handle, "Disk")
        except NotThereError:
            return VolumeReading(volume=volume, state=VolumeState.UNKNOWN, at=asked_at, detail="there is no such disk")
        self._require_name("read volume", found.name, disk.disk)
        users = [user.rpartition("/")[2] for user in found.users]
        # Without users, but RESTORING, UNAVAILABLE or such: nothing is known of who may yet come to write (S3).
        free = VolumeState.AVAILABLE if found.status == "READY" else VolumeState.UNKNOWN
        state = VolumeState.ATTACHED if users else free
        detail = f"{found.status}, used by {', '.join(users) or 'none'}"
        return VolumeReading(volume=volume, state=state, at=asked_at, detail=detail)

    async def detach(self, volume: str, deadline: Deadline) -> None:
        """Ask under which device name the disk is attached here, and command its detachment. One that isn't needs no command."""
        disk = Disk.parse(volume, self.instance)
        found = await self._instance("detach", deadline)
        for attached in found.disks:
            if attached.source and Disk.parse(attached.source, self.instance) == disk:
                await self._command("detach", deadline, "detachDisk", deviceName=attached.device_name)

    async def _unless_suspended(self, operation: str, command: Awaitable[None], deadline: Deadline) -> None:
        """A refusal that more tries can't mend is an error of its own: one more question shows whether the instance is
        suspended."""
        try:
            await command
        except PowerError as refused:
            if refused.type not in {ErrorType.TRANSIENT, ErrorType.NOT_SUPPORTED}:
                raise
            try:
                found = await self._instance("read", deadline)
            except PowerError:
                raise refused from None
            if found.status != "SUSPENDED":
                raise
            problem = "the instance is SUSPENDED with its memory kept: expected a person to resume or delete it"
            raise PowerError(ErrorType.NOT_SUPPORTED, f"{self.endpoint}: {operation!r}: {problem}") from refused

    @property
    def _path(self) -> str:
        return f"projects/{self.instance.project}/zones/{self.instance.zone}/instances/{self.instance.instance}"

    async def _instance(self, operation: str, deadline: Deadline) -> compute_v1.Instance:
        found: compute_v1.Instance = await self._ask(operation, deadline, self._path, "Instance")
        here = found.zone.rpartition("/")[2] in {"", self.instance.zone}
        self._require_name(operation, found.name if here else "", self.instance.instance)
        return found

    def _require_name(self, operation: str, named: str, asked: str) -> None:
        """A proxy in between may give the answer to another question; the API's names what was asked for (S3, S39)."""
        if named != asked:
            raise PowerError(ErrorType.TRANSIENT, f"{self.endpoint}: {operation!r}: the answer does not name {asked}")

    async def _ask(self, operation: str, deadline: Deadline, path: str, answer: str, **query: int) -> Any:
        """answer: the name of Google's message that comes back."""
        return await self._perform(CloudCall(self.endpoint, operation, deadline, command=False), "GET", path, query, answer)

    async def _command(self, operation: str, deadline: Deadline, act: str = "", **how: str) -> None:
        """act: what is done to the instance, "" to delete it."""
        call = CloudCall(self.endpoint, operation, deadline, command=True)
        path, method = (f"{self._path}/{act}", "POST") if act else (self._path, "DELETE")
        query = how | {"requestId": str(uuid4())}
        accepted = await self._perform(call, method, path, query, "Operation")
        # Mostly an operation that only begins: how it ends is read from the instance. One that failed already is a refusal.
        if accepted.error:
            said = "; ".join(f"{error.code}: {error.message}" for error in accepted.error.errors)
            raise call.failure(ErrorType.TRANSIENT, f"the operation failed ({call.excerpt(said)})")

    async def _perform(self, call: CloudCall, method: str, path: str, query: Mapping[str, str | int], answer: str) -> Any:
        # The worker's own token never goes out in clear, not even to a test endpoint.
        key = None if self.instance.api_is_plain and not self.key else self.key
        url = f"{self.instance.api}/compute/v1/{path}" + (f"?{urlencode(query)}" if query else "")

        def work() -> Any:
            call.stage = CallStage.LOADING
            from activities.power.gce import client

            return client.perform(call, method, url, key, answer)

        return await call.run(work)


def _parsed(parameters: Mapping[str, str]) -> GceInstance:
    with parameters_of("gce"):
        return GceInstance.parse(parameters)


def _check_key(key: str) -> None:
    """Say what is wrong with a key without showing any of it (S12)."""
    try:
        content = json.loads(key)
    except ValueError:
        raise invalid("gce: service-account-json is not JSON: expected the key file of a service account") from None
    if not isinstance(content, dict) or content.get("type") != "service_account":
        # Other kinds of key files name programs and addresses that would be called on the worker.
        raise invalid("gce: service-account-json is not the key of a service account: expected type service_account")
    for name in KEY_FIELDS:
        if not isinstance(content.get(name), str) or not content[name]:
            raise invalid(f"gce: service-account-json has no {name}: expected the key file as it was downloaded")
    if not is_token_uri(content["token_uri"]):
        raise invalid("gce: service-account-json: token_uri: expected https:// and a host, or http:// on the loopback")
