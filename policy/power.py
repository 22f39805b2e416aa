"""Power states and what a device can do: the words that drivers and workflows share."""

from __future__ import annotations

from enum import StrEnum


class PowerState(StrEnum):
    """What a device said. Unknown is never off (S3)."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class PowerCapability(StrEnum):
    """What a driver can do with its device."""

    READ = "read"
    OFF = "off"
    ON = "on"
    NMI = "nmi"
    RESET = "reset"
    IDENTITY = "identity"
    CONSOLE = "console"
    VOLUMES = "volumes"
    QUARANTINE = "quarantine"
    TERMINATE = "terminate"


class VolumeState(StrEnum):
    """Where a cloud volume is. Only `available` means that no machine can write to it any more; unknown is never that (S3)."""

    ATTACHED = "attached"
    AVAILABLE = "available"
    UNKNOWN = "unknown"
