"""Instances, disks and operations of a simulated Compute Engine, and the machines that they power.

The state rules are those that Google documents, as far as we know them: no check against the real service stands behind them.
What is spoken over HTTP is in `gce.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from simulator.bmc.machine import HAND, Machine, PowerCommand, RefusedError
from simulator.tasks import Tasks

Thing = TypeVar("Thing")

DEVICE = "gce"
"""How the commands that came through the cloud stand in a machine's log."""

PREFIX = "https://www.googleapis.com/compute/v1"
CONSOLE_LIMIT = 1024 * 1024


class ApiError(Exception):
    """An answer with an error as Compute Engine gives it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFaults:
    """How the API misbehaves, for all instances alike.

    silence: answers nothing and does nothing until it is cleared. lose_answers: commands are carried out and never answered.
    fail_operations: the code with which accepted operations fail later. delay: seconds before anything is done. refuse: status
    and reason, which every request gets. A stop that is accepted and not carried out is a fault of the machine (`ignore_off`).
    """

    silence: bool = False
    lose_answers: bool = False
    fail_operations: str = ""
    delay: float = 0.0
    refuse: tuple[int, str] | None = None


@dataclass(slots=True, kw_only=True)
class Disk:
    """A persistent disk of a zone, or of a region if `region` is given."""

    project: str
    name: str
    zone: str = ""
    region: str = ""
    status: str = "READY"
    users: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Its path below the API's version."""
        return f"projects/{self.project}/{f'regions/{self.region}' if self.region else f'zones/{self.zone}'}/disks/{self.name}"


@dataclass(slots=True, kw_only=True)
class Attachment:
    """A disk as an instance sees it. disk None: a scratch disk (Local SSD)."""

    device_name: str
    disk: Disk | None = None
    boot: bool = False
    auto_delete: bool = False


@dataclass(slots=True, kw_only=True)
class Operation:
    """What an accepted command became. error: code and message."""

    name: str
    kind: str
    target: str
    zone_path: str
    status: str = "RUNNING"
    error: tuple[str, str] | None = None
    inserted: datetime = field(default_factory=lambda: datetime.now(UTC))

    def end(self, error: tuple[str, str] | None = None) -> None:
        """It is over, well or with an error."""
        self.status, self.error = "DONE", error


_ids = itertools.count(4_100_000_000_000_000_001)


@dataclass(slots=True, kw_only=True)
class Instance:
    """One instance. Its status is what the API says; the truth about the machine is `machine.power`."""

    project: str
    zone: str
    name: str
    machine: Machine
    status: str = "RUNNING"
    number: int = field(default_factory=lambda: next(_ids))
    attachments: list[Attachment] = field(default_factory=list)
    console: str = ""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    transition: asyncio.Task[Any] | None = field(default=None, repr=False)

    @property
    def path(self) -> str:
        """Its path below the API's version."""
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    @property
    def zone_path(self) -> str:
        """The path of its zone."""
        return f"projects/{self.project}/zones/{self.zone}"


class Compute:
    """All there is in the simulated cloud. seconds: how long whatever was accepted takes."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.disks: dict[str, Disk] = {}
        self.operations: dict[str, Operation] = {}
        self.faults = CloudFaults()
        self.seconds = 0.0
        self.tasks = Tasks()
        self._numbers = itertools.count(1)
        self._by_request: dict[str, Operation] = {}

    def set_faults(self, **faults: Any) -> None:
        """Put these faults in force and no others; with nothing, mend it all."""
        self.faults = dataclasses.replace(CloudFaults(), **faults)

    def add_instance(self, project: str, zone: str, name: str, machine: Machine | None = None) -> Instance:
        """An instance with a boot disk of its own name, before a machine: a given one, or one of its own."""
        machine = machine or Machine(name)
        status = "RUNNING" if machine.power == "on" else "TERMINATED"
        instance = Instance(project=project, zone=zone, name=name, machine=machine, status=status)
        self.instances[instance.path] = instance
        self.attach(instance, self.add_disk(project, name, zone=zone), boot=True, auto_delete=True)
        machine.on_change(lambda command: self._follow_hand(instance, command))
        return instance

    def remove_instance(self, instance: Instance) -> None:
        """It is gone, with the disks that go with it."""
        for attached in instance.attachments:
            self._release(instance, attached)
            if attached.disk is not None and attached.auto_delete:
                self.disks.pop(attached.disk.path, None)
        self.instances.pop(instance.path, None)

    def add_disk(self, project: str, name: str, *, zone: str = "", region: str = "") -> Disk:
        """A disk that is not in use."""
        disk = Disk(project=project, name=name, zone=zone, region=region)
        self.disks[disk.path] = disk
        return disk

    def attach(self, instance: Instance, disk: Disk, *, boot: bool = False, auto_delete: bool = False) -> None:
        """Attach a disk, under a device name that is not the disk's: they need not agree, so a client must not rely on it."""
        device = f"device-{len(instance.attachments)}"
        instance.attachments.append(Attachment(device_name=device, disk=disk, boot=boot, auto_delete=auto_delete))
        disk.users.append(f"{PREFIX}/{instance.path}")

    def add_local_ssd(self, instance: Instance) -> None:
        """Attach a scratch disk."""
        instance.attachments.append(Attachment(device_name=f"local-ssd-{len(instance.attachments)}"))

    def instance(self, path: str) -> Instance:
        """The instance under a path."""
        return _found(self.instances, path)

    def disk(self, path: str) -> Disk:
        """The disk under a path."""
        return _found(self.disks, path)

    def operation(self, path: str) -> Operation:
        """The operation under a path."""
        return _found(self.operations, path)

    def command(self, instance: Instance, kind: str, request_id: str, query: dict[str, str]) -> Operation:
        """Accept a command, or refuse it with an ApiError. One with a request id that came before is not carried out again."""
        if request_id and (known := self._by_request.get(request_id)) is not None:
            return known
        carry_out = self._checked(instance, kind, query)
        operation = Operation(
            name=f"operation-{next(self._numbers)}", kind=kind, target=instance.path, zone_path=instance.zone_path
        )
        self.operations[f"{operation.zone_path}/operations/{operation.name}"] = operation
        if request_id:
            self._by_request[request_id] = operation
        if carry_out is None:
            operation.end()
        elif self.faults.fail_operations:
            self.tasks.start(self._fail(operation, self.faults.fail_operations), name=f"failing {kind} of {instance.name}")
        else:
            carry_out(operation)
        return operation

    def _checked(self, instance: Instance, kind: str, query: dict[str, str]) -> Callable[[Operation], None] | None:
        """How a command is carried out; None where there is nothing to do. Raises for a state in which it is refused."""
        match kind, instance.status:
            case "start", "RUNNING" | "PROVISIONING" | "STAGING":
                return None
            case "start", "TERMINATED":
                return lambda operation: self._move(instance, self._start(instance, operation))
            case "stop", "TERMINATED" | "STOPPING":
                return None
            case "stop", "RUNNING" | "PROVISIONING" | "STAGING":
                if any(attached.disk is None for attached in instance.attachments) and "discardLocalSsd" not in query:
                    raise ApiError(
                        400, "badRequest", "VM has a Local SSD attached but an undefined value for `discard-local-ssd`."
                    )
                return lambda operation: self._move(instance, self._stop(instance, operation))
            case "reset", "RUNNING":
                return lambda operation: self._move(instance, self._reset(instance, operation))
            case "delete", status if status != "STOPPING":
                return lambda operation: self._move(instance, self._delete(instance, operation))
            case "detachDisk", _:
                return self._detaching(instance, query.get("deviceName", ""))
        raise ApiError(400, "resourceNotReady", f"The resource '{instance.path}' is not ready")

    def _detaching(self, instance: Instance, device: str) -> Callable[[Operation], None]:
        attached = next((item for item in instance.attachments if item.device_name == device), None)
        if attached is None or attached.disk is None:
            raise ApiError(400, "invalid", f"No attached disk found with device name '{device}'")
        if attached.boot and instance.status != "TERMINATED":
            raise ApiError(400, "invalidResourceUsage", "The boot disk cannot be detached from a running instance.")
        return lambda operation: self._move(instance, self._detach(instance, attached, operation))

    def _move(self, instance: Instance, work: Coroutine[Any, Any, None]) -> None:
        instance.transition = self.tasks.start(work, name=f"transition of {instance.name}")

    async def _fail(self, operation: Operation, code: str) -> None:
        await asyncio.sleep(self.seconds)
        operation.end((code, f"The operation on '{operation.target}' failed."))

    async def _stop(self, instance: Instance, operation: Operation) -> None:
        instance.status = "STOPPING"
        await asyncio.sleep(self.seconds)
        instance.status = "TERMINATED" if await self._switch(instance, "off") else "RUNNING"
        operation.end()

    async def _start(self, instance: Instance, operation: Operation) -> None:
        for status in ("PROVISIONING", "STAGING"):
            instance.status = status
            await asyncio.sleep(self.seconds / 2)
            if instance.status != status:
                operation.end(("RESOURCE_OPERATION_ABORTED", "a stop has overtaken it"))
                return
        instance.status = "RUNNING" if await self._switch(instance, "on") else "TERMINATED"
        operation.end()

    async def _reset(self, instance: Instance, operation: Operation) -> None:
        await instance.machine.reset(DEVICE)
        operation.end()

    async def _delete(self, instance: Instance, operation: Operation) -> None:
        instance.status = "STOPPING"
        await asyncio.sleep(self.seconds)
        await self._switch(instance, "off")
        self.remove_instance(instance)
        operation.end()

    async def _detach(self, instance: Instance, attached: Attachment, operation: Operation) -> None:
        await asyncio.sleep(self.seconds)
        if attached in instance.attachments:
            instance.attachments.remove(attached)
            self._release(instance, attached)
        operation.end()

    def _release(self, instance: Instance, attached: Attachment) -> None:
        user = f"{PREFIX}/{instance.path}"
        if attached.disk is not None and user in attached.disk.users:
            attached.disk.users.remove(user)

    async def _switch(self, instance: Instance, power: Any) -> bool:
        """Switch the machine and wait until it has followed, as a hypervisor does. False: it did not."""
        try:
            await instance.machine.set_power(power, DEVICE)
        except RefusedError:
            return False
        if instance.machine.log[-1].outcome == "ignored":
            return False
        await instance.machine.wait_for(power)
        return True

    def _follow_hand(self, instance: Instance, command: PowerCommand) -> None:
        """A machine that lost its power by itself is an instance that has failed; one that came back runs again."""
        if command.device == HAND:
            instance.status = "RUNNING" if command.to_power == "on" else "TERMINATED"


def _found(things: dict[str, Thing], path: str) -> Thing:
    if path not in things:
        raise ApiError(404, "notFound", f"The resource '{path}' was not found")
    return things[path]
