"""Amazon EC2 to try nodewarden against: moto keeps instances, volumes and groups; what stands before it is as strict as EC2.

moto alone changes states at once, starts instances that are terminated and attaches volumes twice. Here what takes time does so,
what a state does not allow is refused with EC2's own words, requests must be signed, and the cloud can misbehave on demand. The
states and refusals are from EC2's documentation, not from EC2: a pass here is no test on AWS.

An instance may have a machine (`simulator/bmc/machine.py`), which then follows its power; of the machine's faults `ignore_off`
and `lose_answers` are its instance's. moto keeps one cloud per process,
so that two of these in one process see each other's instances. How it looks on the wire is in `ec2_wire.py`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import functools
import http.client
import importlib
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import boto3
from aiohttp import web
from botocore.config import Config

from simulator.bmc.machine import Machine, NotKnownError, Power
from simulator.bmc.machine import RefusedError as MachineRefusedError
from simulator.cloud import ec2_wire as wire
from simulator.cloud.ec2_wire import RefusedError
from simulator.tasks import Tasks

DEVICE = "ec2"
"""The device through which a machine is switched, in its log."""

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
"""EC2's numbers of an instance's states."""

ALLOWED: Mapping[str, tuple[str, frozenset[str]]] = {
    "StartInstances": ("started", frozenset({"stopped", "pending", "running"})),
    "StopInstances": ("stopped", frozenset({"running", "stopping", "stopped"})),
    "RebootInstances": ("rebooted", frozenset({"running"})),
    "SendDiagnosticInterrupt": ("interrupted", frozenset({"running"})),
}
"""In which states an instance takes a command; the rest is IncorrectInstanceState."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Where an instance is at once, and where after a while."""

    via: str
    to: str
    power: Power


TRANSITIONS = {
    "StartInstances": Transition(via="pending", to="running", power="on"),
    "StopInstances": Transition(via="stopping", to="stopped", power="off"),
    "TerminateInstances": Transition(via="shutting-down", to="terminated", power="off"),
}

QUESTIONS = ("Describe", "Get")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Faults:
    """How the cloud misbehaves.

    silent: does and answers nothing until it is mended. lose_answers: carries commands out and answers none of them.
    drop_answers: carries them out and closes the connection. ignore_off: accepts a stop and lets the instance run. delay: seconds
    before anything is done. settle: seconds that starts, stops, terminations and detachments take. throttle, denied: refuses
    everything so. no_capacity: refuses starts. fails_after: carries commands out and answers with an internal error. old_console:
    has no newest console output.
    """

    silent: bool = False
    lose_answers: bool = False
    drop_answers: bool = False
    ignore_off: bool = False
    delay: float = 0.0
    settle: float = 0.05
    throttle: bool = False
    denied: bool = False
    no_capacity: bool = False
    fails_after: bool = False
    old_console: bool = False


@dataclass(slots=True, kw_only=True)
class Ec2Request:
    """One request that reached the cloud. outcome: `accepted`, `ignored`, EC2's word of refusal, or "" for not carried out."""

    action: str
    form: Mapping[str, str]
    at: float
    outcome: str = ""

    @property
    def is_command(self) -> bool:
        """Whether it asked for a change."""
        return not self.action.startswith(QUESTIONS)


class MotoServer:
    """moto's own server on the loopback, in threads of this process. Slow to start (a second), so one may serve many tests."""

    def __init__(self) -> None:
        self._server: Any = None
        self.url = ""

    async def __aenter__(self) -> Self:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        # moto takes a second or two to load, in which other tasks want to run; a cluster without a cloud does without it.
        for name in ("moto.ec2.models", "moto.server"):
            moto = await asyncio.to_thread(importlib.import_module, name)
        self._server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        await asyncio.to_thread(self._server.start)
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self._server.stop)


class Ec2Cloud:
    """One account in one region. `async with Ec2Cloud(moto.url) as ec2`; clients talk to `ec2.url` with its keys."""

    def __init__(self, moto_url: str, *, region: str = "us-east-1", tls: ssl.SSLContext | None = None) -> None:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.ec2.models import ec2_backends

        self.region = region
        self.url = ""
        self.log: list[Ec2Request] = []
        self.access_key_id = f"AKIA{secrets.token_hex(8).upper()}"
        self.secret_access_key = secrets.token_urlsafe(30)
        self.session_token: str | None = None
        """What must come with the keys; None: they are those of a user, who needs none."""
        self._moto_url = moto_url
        self._tls = tls
        self._backend = ec2_backends[DEFAULT_ACCOUNT_ID][region]
        self._faults = Ec2Faults()
        self._machines: dict[str, Machine] = {}
        self._consoles: dict[str, str] = {}
        self._detached: list[Callable[[str, str], None]] = []
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._hibernated: dict[str, str] = {}
        self._tasks = Tasks()
        self._lock = asyncio.Lock()
        self._hand_lock = asyncio.Lock()
        self._mended = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._hand: Any = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.set_faults()
        await self._tasks.cancel_all()
        if self._runner is not None:
            await self._runner.cleanup()
        self._tasks.raise_failures()

    # What one has in the account -------------------------------------------------------------------------------------

    async def launch(
        self, name: str, *, machine: Machine | None = None, zone: str = "a", interfaces: Iterable[Iterable[str]] = ((),)
    ) -> str:
        """A running instance with a root volume; its id. interfaces: the security groups of each."""
        launched = await self._setup("run_instances", ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="m5.large",
            Placement={"AvailabilityZone": f"{self.region}{zone}"},
            NetworkInterfaces=[
                {"DeviceIndex": index, "SubnetId": self._subnet(zone), "Groups": list(groups), "DeleteOnTermination": True}
                for index, groups in enumerate(interfaces)
            ],
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": name}]}],
        )  # fmt: skip
        instance: str = launched["Instances"][0]["InstanceId"]
        if machine is not None:
            self._machines[instance] = machine
        return instance

    def provider_id(self, instance: str) -> str:
        """What the cloud's controller would write into the Node of this instance."""
        return f"aws:///{self._backend.get_instance(instance).placement.zone}/{instance}"

    def state(self, instance: str) -> str:
        """The truth."""
        return str(self._backend.get_instance(instance).state)

    def groups(self, instance: str) -> dict[str, set[str]]:
        """The security groups of each interface: the truth."""
        nics = self._backend.get_instance(instance).nics.values()
        return {nic.id: {group.id for group in nic.group_set} for nic in nics}

    def tags(self, resource: str) -> dict[str, str]:
        """What it is labelled with."""
        return {str(tag["key"]): str(tag["value"]) for tag in self._backend.describe_tags({"resource-id": [resource]})}

    async def security_group(self, name: str) -> str:
        """A new security group; its id."""
        made = await self._setup("create_security_group", GroupName=f"{name}-{secrets.token_hex(4)}", Description=name)
        return str(made["GroupId"])

    async def set_groups(self, interface: str, groups: Iterable[str]) -> None:
        """A foreign change of an interface's groups."""
        await self._setup("modify_network_interface_attribute", NetworkInterfaceId=interface, Groups=list(groups))

    async def volume(self, instance: str, *, device: str = "/dev/sdf") -> str:
        """A new volume, attached; its id."""
        made = await self.make_volume(instance)
        await self._setup("attach_volume", VolumeId=made, InstanceId=instance, Device=device)
        return made

    def goes_with(self, volume: str, instance: str) -> None:
        """It is deleted with that instance, as a disk is that it was launched with."""
        for mapped in self._backend.get_instance(instance).block_device_mapping.values():
            if mapped.volume_id == volume:
                mapped.delete_on_termination = True

    async def make_volume(self, instance: str) -> str:
        """A new volume in the zone of that instance, not attached; its id."""
        zone = self._backend.get_instance(instance).placement.zone
        return str((await self._setup("create_volume", AvailabilityZone=zone, Size=8))["VolumeId"])

    async def attach(self, volume: str, instance: str) -> bool:
        """As a storage driver does. False while another instance has it; nothing where this one has it already."""
        async with self._lock:
            attachment = self._backend.volumes[volume].attachment
            if attachment is not None:
                return bool(attachment.instance.id == instance)
            used = set(self._backend.get_instance(instance).block_device_mapping)
            device = next(name for letter in "fghijklmnop" if (name := f"/dev/sd{letter}") not in used)
            self._backend.attach_volume(volume, instance, device)
            return True

    async def detach(self, volume: str, instance: str) -> None:
        """As a storage driver does; nothing where that instance has it no more."""
        async with self._lock:
            attachment = self._backend.volumes[volume].attachment
            if attachment is not None and attachment.instance.id == instance:
                self._backend.detach_volume(volume, instance, "")
        self._has_left(volume, instance)

    def holder(self, volume: str) -> str:
        """The instance that has it, "" where it is available: the truth."""
        attachment = self._backend.volumes[volume].attachment
        return str(attachment.instance.id) if attachment is not None else ""

    def on_detached(self, listener: Callable[[str, str], None]) -> None:
        """Who is told which volume has left which instance."""
        self._detached.append(listener)

    async def protect(self, instance: str) -> None:
        """Against being stopped and terminated by the API."""
        for attribute in ("DisableApiStop", "DisableApiTermination"):
            await self._setup("modify_instance_attribute", InstanceId=instance, **{attribute: {"Value": True}})

    def write_console(self, instance: str, text: str) -> None:
        """What its serial console shows."""
        self._consoles[instance] = text

    def set_state(self, instance: str, state: str) -> None:
        """By the hand of a god. Whatever is under way goes on."""
        self._show(instance, state)

    def hibernate(self, instance: str, reason: str = "Client.UserInitiatedHibernate") -> None:
        """It is stopped, and its memory kept; reason: the code that EC2 gives."""
        shown = self._backend.get_instance(instance)
        shown.state_reason.code = self._hibernated[instance] = reason
        shown.hibernation_options = {"Configured": True}
        self._show(instance, "stopped")

    def set_faults(self, **faults: Any) -> None:
        """Put these faults in force and no others; with nothing, mend it all. What hung is dropped, undone and unanswered."""
        known = [field.name for field in dataclasses.fields(Ec2Faults)]
        for name in faults:
            if name not in known:
                raise NotKnownError(f"fault {name!r} is not known: expected {', '.join(known)}")
        self._faults = Ec2Faults(**faults)
        self._mended.set()
        self._mended = asyncio.Event()

    def requests(self, action: str) -> list[Ec2Request]:
        """Those of one kind, in their order."""
        return [request for request in self.log if request.action == action]

    async def _setup(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Past all rules and logs, straight to moto."""

        def call() -> dict[str, Any]:
            if self._hand is None:
                self._hand = _session().client(
                    "ec2",
                    region_name=self.region,
                    endpoint_url=self._moto_url,
                    aws_access_key_id="hand",
                    aws_secret_access_key="hand",  # noqa: S106 - moto takes any
                    config=Config(retries={"total_max_attempts": 1}, proxies={}),
                )
            answer: dict[str, Any] = getattr(self._hand, operation)(**parameters)
            return answer

        async with self._hand_lock:
            return await asyncio.to_thread(call)

    def _subnet(self, zone: str) -> str:
        return str(self._backend.get_default_subnets()[f"{self.region}{zone}"].id)

    # What is asked of it ---------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        form = wire.form_of(body)
        entry = Ec2Request(action=form.get("Action", request.path), form=form, at=time.monotonic())
        self.log.append(entry)
        faults = self._faults
        if faults.delay:
            await asyncio.sleep(faults.delay)
        if faults.silent:
            return await self._drop(request, after=self._mended)
        try:
            wire.check_signature(request, body, {self.access_key_id: self.secret_access_key}, self.session_token)
            self._refuse_on_demand(entry)
            async with self._lock:
                answer = await self._perform(entry, request, body)
        except RefusedError as refused:
            entry.outcome = refused.code
            return refused.answer()
        if entry.is_command and faults.lose_answers:
            return await self._drop(request, after=self._mended)
        if entry.is_command and faults.drop_answers:
            return await self._drop(request)
        if entry.is_command and await self._loses_answer(entry):
            return await self._drop(request)
        if entry.is_command and faults.fails_after:
            return RefusedError("InternalError", "An internal error has occurred", status=500).answer()
        return answer

    async def _drop(self, request: web.Request, *, after: asyncio.Event | None = None) -> web.StreamResponse:
        if after is not None:
            await after.wait()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _loses_answer(self, entry: Ec2Request) -> bool:
        """Whether one of its machines keeps answers from arriving; returns once it no longer does."""
        try:
            for machine in self._machines_of(entry):
                await machine.lose_answer()
        except MachineRefusedError:
            return True
        return False

    def _machines_of(self, entry: Ec2Request) -> list[Machine]:
        return [self._machines[instance] for instance in self._known(entry) if instance in self._machines]

    def _refuse_on_demand(self, entry: Ec2Request) -> None:
        if self._faults.throttle:
            raise RefusedError("RequestLimitExceeded", "Request limit exceeded.", status=503)
        if self._faults.denied:
            # Said back, as a role's name is by EC2, so that those who repeat it are found out.
            who = f"You ({self.access_key_id}, {self.session_token}) are not authorized to perform this operation."
            text = f"{who} Encoded authorization failure message: {'x' * 900}"
            raise RefusedError("UnauthorizedOperation", text, status=403)
        if self._faults.no_capacity and entry.action == "StartInstances":
            raise RefusedError("InsufficientInstanceCapacity", "Insufficient capacity.", status=500)

    async def _perform(self, entry: Ec2Request, request: web.Request, body: bytes) -> web.Response:
        """One at a time, so that no client sees what moto does between its steps and ours."""
        if entry.form.get("DryRun") == "true":
            raise RefusedError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)
        acts: Mapping[str, Callable[[Ec2Request], web.Response | None]] = {
            "StartInstances": self._check_states,
            "StopInstances": self._stop,
            "TerminateInstances": self._terminate,
            "RebootInstances": self._check_states,
            "SendDiagnosticInterrupt": self._interrupt,
            "GetConsoleOutput": self._console,
            "AttachVolume": self._attach,
            "DetachVolume": self._detach,
            "ModifyNetworkInterfaceAttribute": self._check_groups,
        }
        before = {instance: self.state(instance) for instance in self._known(entry)}
        answer = acts[entry.action](entry) if entry.action in acts else None
        if answer is None:
            answer = await self._ask_moto(request, body)
        if answer.status != 200:
            entry.outcome = "refused"
            return answer
        entry.outcome = entry.outcome or "accepted"
        if entry.action in TRANSITIONS:
            self._begin(entry, TRANSITIONS[entry.action], before)
        return answer

    def _begin(self, entry: Ec2Request, transition: Transition, before: Mapping[str, str]) -> None:
        """For moto it is there already. One that was on its way, or there, or is to stay where it is, goes on as it did."""
        for instance, state in before.items():
            if entry.outcome == "ignored" or state in {transition.via, transition.to}:
                self._show(instance, state)
                if instance in self._hibernated:  # another stop changes nothing of that
                    self._backend.get_instance(instance).state_reason.code = self._hibernated[instance]
                continue
            self._hibernated.pop(instance, None)
            self._show(instance, transition.via)
            if instance in self._under_way:
                self._under_way[instance].cancel()
            work = self._settle(instance, transition)
            self._under_way[instance] = self._tasks.start(work, name=f"{instance} becomes {transition.to}")

    async def _settle(self, instance: str, transition: Transition) -> None:
        await asyncio.sleep(self._faults.settle)
        machine = self._machines.get(instance)
        if machine is not None:
            await machine.set_power(transition.power, DEVICE)
        async with self._lock:
            known = self._backend.get_instance(instance)
            {"running": known.start, "stopped": known.stop, "terminated": known.terminate}[transition.to]()

    async def _ask_moto(self, request: web.Request, body: bytes) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in {"host", "content-length"}}

        def call() -> tuple[int, bytes]:
            # Not by aiohttp, which takes offence at the two Server headers of moto's answers where asyncio is being debugged.
            connection = http.client.HTTPConnection(self._moto_url.removeprefix("http://"), timeout=30)
            with contextlib.closing(connection):
                connection.request(request.method, request.path_qs, body=body, headers=headers)
                answer = connection.getresponse()
                return answer.status, answer.read()

        status, text = await asyncio.to_thread(call)
        return web.Response(body=text, status=status, headers={"Content-Type": "text/xml"})

    def _known(self, entry: Ec2Request) -> list[str]:
        """The instances that it names; none where one is not known, so that moto says so in its own words."""
        named = wire.listed(entry.form, "InstanceId") or [entry.form.get("InstanceId", "")]
        known = {instance.id for instance in self._backend.all_instances()}
        return named if set(named) <= known else []

    def _check_states(self, entry: Ec2Request) -> None:
        done, allowed = ALLOWED[entry.action]
        for instance in self._known(entry):
            if self.state(instance) not in allowed:
                text = f"The instance '{instance}' is not in a state from which it can be {done}."
                raise RefusedError("IncorrectInstanceState", text)

    def _stop(self, entry: Ec2Request) -> None:
        self._check_states(entry)
        ignoring = [machine for machine in self._machines_of(entry) if machine.faults.ignore_off]
        for machine in ignoring:
            self._tasks.start(machine.set_power("off", DEVICE), name=f"{machine.name} ignores a stop")
        if self._faults.ignore_off or ignoring:
            entry.outcome = "ignored"

    def _terminate(self, entry: Ec2Request) -> web.Response | None:
        """Answered here: moto would take volumes and interfaces away at once."""
        known = {instance: self._backend.get_instance(instance) for instance in self._known(entry)}
        for instance, shown in known.items():
            if shown.disable_api_termination:
                text = f"The instance '{instance}' may not be terminated. Modify its 'disableApiTermination' instance attribute."
                raise RefusedError("OperationNotPermitted", text)
        if not known:
            return None
        current = "shutting-down"
        changes = "".join(
            wire.state_change(instance, (current, CODES[current]), (shown.state, CODES[shown.state]))
            for instance, shown in known.items()
        )
        return wire.answer(entry.action, f"<instancesSet>{changes}</instancesSet>")

    def _show(self, instance: str, state: str) -> None:
        shown = self._backend.get_instance(instance).instance_state
        shown.name, shown.code = state, CODES[state]

    def _interrupt(self, entry: Ec2Request) -> web.Response | None:
        self._check_states(entry)
        for instance in self._known(entry):
            if instance in self._machines:
                self._tasks.start(self._machines[instance].pulse_nmi(DEVICE), name=f"diagnostic interrupt of {instance}")
        return wire.answer(entry.action, "<return>true</return>") if self._known(entry) else _no_such(entry)

    def _console(self, entry: Ec2Request) -> web.Response | None:
        if self._faults.old_console and entry.form.get("Latest") == "true":
            raise RefusedError("UnsupportedOperation", "This instance type does not support retrieving the latest console logs.")
        instance = entry.form.get("InstanceId", "")
        if instance not in self._consoles:
            return None
        output = base64.b64encode(self._consoles[instance].encode()).decode()
        told = f"<instanceId>{instance}</instanceId><timestamp>2026-01-01T00:00:00.000Z</timestamp><output>{output}</output>"
        return wire.answer(entry.action, told)

    def _attach(self, entry: Ec2Request) -> web.Response | None:
        volume = self._backend.volumes.get(entry.form.get("VolumeId", ""))
        if volume is not None and volume.attachment is not None and not volume.multi_attach_enabled:
            raise RefusedError("VolumeInUse", f"{volume.id} is already attached to an instance")
        return None

    def _detach(self, entry: Ec2Request) -> web.Response | None:
        volume = self._backend.volumes.get(entry.form.get("VolumeId", ""))
        if volume is None:
            return None
        attachment = volume.attachment
        if attachment is None:
            raise RefusedError("IncorrectState", f"Volume '{volume.id}' is in the 'available' state.")
        holder = attachment.instance
        if entry.form.get("InstanceId", holder.id) != holder.id:
            text = f"The volume '{volume.id}' is not attached to instance '{entry.form['InstanceId']}'."
            raise RefusedError("InvalidAttachment.NotFound", text)
        if attachment.status == "detaching":
            raise RefusedError("IncorrectState", f"Volume '{volume.id}' is in the 'detaching' state.")
        if attachment.device == holder.root_device_name and holder.state != "stopped":
            raise RefusedError("OperationNotPermitted", f"Unable to detach root volume '{volume.id}' from instance '{holder.id}'")
        attachment.status = holder.block_device_mapping[attachment.device].status = "detaching"
        self._tasks.start(self._let_go(volume.id, holder.id), name=f"{volume.id} is detached")
        told = f"<volumeId>{volume.id}</volumeId><instanceId>{holder.id}</instanceId><device>{attachment.device}</device>"
        return wire.answer(entry.action, f"{told}<status>detaching</status><attachTime>2026-01-01T00:00:00.000Z</attachTime>")

    def _check_groups(self, entry: Ec2Request) -> None:
        for group in wire.listed(entry.form, "SecurityGroupId"):
            if self._backend.get_security_group_from_id(group) is None:
                raise RefusedError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")

    async def _let_go(self, volume: str, instance: str) -> None:
        await asyncio.sleep(self._faults.settle)
        async with self._lock:
            self._backend.detach_volume(volume, instance, "")
        self._has_left(volume, instance)

    def _has_left(self, volume: str, instance: str) -> None:
        for listener in self._detached:
            listener(volume, instance)


@functools.cache
def _session() -> Any:
    """It keeps EC2's description, which takes 0.2 s and 30 MB to load."""
    return boto3.session.Session()


def _no_such(entry: Ec2Request) -> web.Response:
    text = f"The instance ID '{entry.form.get('InstanceId', '')}' does not exist"
    return RefusedError("InvalidInstanceID.NotFound", text).answer()
