"""What drivers and workflows share about devices: power states and acts, which devices are insecure, and which machine a device
says that it serves."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from policy.fence.drivers import parameters_of
from policy.fence.drivers.contract import ParameterError
from policy.fence.plan import PowerDevice
from policy.objects.machines import same_system


class PowerState(StrEnum):
    """The answer of a device. Unknown is never off (S3)."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class PowerAct(StrEnum):
    """The commands that change something: each is licensed by a last look of its own (S42)."""

    OFF = "power-off"
    ON = "power-on"
    TERMINATE = "terminate"
    CUT_PATH = "cut-path"
    RESTORE_PATH = "restore-path"
    QUARANTINE = "quarantine"
    LIFT_QUARANTINE = "lift-quarantine"
    DETACH_VOLUME = "detach-volume"


RESTORING = frozenset({PowerAct.ON, PowerAct.RESTORE_PATH, PowerAct.LIFT_QUARANTINE})
"""The acts that give something back."""
OF_POWER = frozenset({PowerAct.OFF, PowerAct.ON, PowerAct.TERMINATE})
"""The acts that switch a machine, or end it. The others cut it off, running."""
OF_PATHS = frozenset({PowerAct.CUT_PATH, PowerAct.RESTORE_PATH})
"""The acts that switch a port, as the others switch a machine."""


class PowerCapability(StrEnum):
    """What a driver can do with its device."""

    READ = "read"
    OFF = "off"
    ON = "on"
    CONSOLE = "console"
    EVENT_LOG = "event-log"
    VOLUMES = "volumes"
    QUARANTINE = "quarantine"
    TERMINATE = "terminate"


class VolumeState(StrEnum):
    """Where a cloud volume is. Only `available` means that no machine can write to it any more; unknown is never that (S3)."""

    ATTACHED = "attached"
    AVAILABLE = "available"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceGroups:
    """One network interface of a cloud machine, and the security groups that decide what passes it."""

    interface: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A cloud machine behind one security group only, and which ones each interface had before: kept until they are given back.

    It licenses nothing: connections that are open when the groups change live on. Only `path cut proven` and `off proven` do.
    seal: of the power worker that found those groups, so that no other caller decides which ones are given back (S42).
    """

    group: str
    former: tuple[InterfaceGroups, ...]
    at: datetime
    seal: str = ""


# Insecure devices: anyone on the network path may listen to them or answer in their place.
#
# IPMI is not insecure in this sense: both sides prove the password, and it encrypts, as far as `drivers/bmc.py` lets it. Clouds'
# APIs go without TLS on the loopback only. The parameters of each driver say if it goes without TLS or verifies no certificate.


class InsecureDevices(StrEnum):
    """The setting `worker.insecure_devices`: what a worker does with such a device. warn: it is used, and reported in log, fence
    check and metric."""

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


def insecurity_of(device: PowerDevice) -> str:
    """How anyone on the network path could listen to the device or answer in its place, in words; "" if it is secure. Parameters
    that its driver refuses anyway count as secure."""
    takes = parameters_of(device.driver)
    try:
        return takes.insecurity(device.parameters) if takes is not None else ""
    except ParameterError:
        return ""


# Which machine a device says that it serves, and whether that is the one which an episode has pinned (S39).
#
# The address of a BMC may move to another machine's BMC, and a cloud may make a new instance of an old name. Most devices that
# say their state also say which machine it is. What a device does not say, or what can't be compared, is no difference.

_AWS_ID = re.compile(r"aws://.*/(i-[0-9a-f]+)")
_AWS_NAMES = (re.compile(r"ip(?:-[0-9]{1,3}){4}"), re.compile(r"i-[0-9a-f]{8,}"))
"""How EC2 names the hosts of its subnets: by their address, or by their id. People choose other names."""


class MachineIdentity(Protocol):
    """What is known of a Node's machine, "" for unknown. A protocol, because the pinned target of an episode stands above this
    folder."""

    @property
    def node(self) -> str: ...

    @property
    def provider_id(self) -> str: ...

    @property
    def system_uuid(self) -> str: ...

    @property
    def instance_id(self) -> str: ...


def system_of(uuid: str) -> str:
    """How a device names the machine with that system UUID."""
    return f"system/{uuid}"


def instance_of(number: str) -> str:
    """How a device names the instance with that id, which its cloud gives to no other instance."""
    return f"instance/{number}"


def instance_in(serves: Collection[str]) -> str:
    """Which instance is said to be served, "" where none is."""
    return next((value for kind, _, value in (said.partition("/") for said in serves) if kind == "instance"), "")


def host_of(name: str) -> str:
    """How a device names the host to which its cloud has given that name."""
    return f"host/{name}"


def another_machine(serves: Collection[str], pinned: MachineIdentity) -> str:
    """How the machine that a device serves is another one than the pinned machine, in words; "" if it is not. serves: as in
    `Reading`."""
    for named in serves:
        kind, _, value = named.partition("/")
        if kind == "system" and same_system(value, pinned.system_uuid) is False:
            return f"it serves the machine with system UUID {value}, and Node/{pinned.node} has {pinned.system_uuid}"
        if kind == "instance":
            amazons = _AWS_ID.fullmatch(pinned.provider_id)
            own = pinned.instance_id if value.isdecimal() else amazons[1] if amazons is not None else ""
            if own not in {"", value}:
                return f"it is the instance {value}, and Node/{pinned.node} is {own}"
        if kind == "host":
            theirs, ours = value.partition(".")[0].lower(), pinned.node.partition(".")[0].lower()
            if theirs != ours and any(form.fullmatch(theirs) and form.fullmatch(ours) for form in _AWS_NAMES):
                return f"its cloud calls it {value}, and the Node is {pinned.node}"
    return ""
