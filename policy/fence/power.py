"""Power states, what a device can do, and which devices are insecure: the enums that drivers and workflows share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from policy.fence.drivers import parameters_of
from policy.fence.drivers.contract import ParameterError
from policy.fence.plan import PowerDevice


class PowerState(StrEnum):
    """What a device said. Unknown is never off (S3)."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class PowerAct(StrEnum):
    """What a device can be told that changes something: each is licensed by a last look of its own (S42)."""

    OFF = "power-off"
    ON = "power-on"
    TERMINATE = "terminate"
    CUT_PATH = "cut-path"
    RESTORE_PATH = "restore-path"
    QUARANTINE = "quarantine"
    LIFT_QUARANTINE = "lift-quarantine"
    DETACH_VOLUME = "detach-volume"


RESTORING = frozenset({PowerAct.ON, PowerAct.RESTORE_PATH, PowerAct.LIFT_QUARANTINE})
"""What gives something back."""


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
    seal: of whoever has found those groups, so that nobody else says which ones are given back (S42).
    """

    group: str
    former: tuple[InterfaceGroups, ...]
    at: datetime
    seal: str = ""


# Insecure devices: anyone on the network path may listen to them or answer in their place. And what a worker does with one.
#
# IPMI is not insecure in this sense: both sides prove the password, and it encrypts, as far as `drivers/ipmi.py` lets it. Clouds'
# APIs are plain on the loopback only. The parameters of each driver say how it goes without TLS or verifies no certificate.


class InsecureDevices(StrEnum):
    """The setting `worker.insecure_devices`. warn: it is spoken to, and told of in log, fence check and metric."""

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


def insecurity_of(device: PowerDevice) -> str:
    """How it would be spoken to that anybody in between could listen or answer, in words; "" where nobody could. Parameters that
    its driver will refuse anyway say nothing."""
    takes = parameters_of(device.driver)
    try:
        return takes.insecurity(device.parameters) if takes is not None else ""
    except ParameterError:
        return ""
