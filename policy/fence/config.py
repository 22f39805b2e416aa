"""The one typed fence configuration of a node, whatever it was written in.

It carries references to credentials, never a credential (S12). With a single error in it nothing of it holds: a configuration is
applied whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from policy.fence.plan import CutStorage, FencingPlan, PowerDevice

CLUSTER = "cluster"
"""The driver of what is done to objects of the cluster."""


INSTANCE = "instance"
"""The driver of an instance that is not known: nothing says which one, or in which cloud it is."""

DEFAULTS = FencingPlan(source="", levels=())
"""The settings where nothing is said."""


class FenceStep(StrEnum):
    """The steps of the node-fencing proposal, in their order: in the words of records and of `fence plan`."""

    ISOLATION = "isolation"
    POWER_MANAGEMENT = "power-management"
    RECOVERY = "recovery"


class Source(StrEnum):
    """At which level of the fallback the winning object was found; for our own kinds their name stands instead."""

    NODE = "node"
    TYPE = "type"
    DEFAULT = "default"


class MethodAction(StrEnum):
    """What a method does. The device ones first: reboot and restart are an off half and an on half, never a reset (S5)."""

    OFF = "off"
    ON = "on"
    REBOOT = "reboot"
    RESTART = "restart"
    CORDON = "mark-unschedulable"
    UNCORDON = "mark-schedulable"
    TAINT = "taint"
    DRAIN = "drain"
    FREE_PODS = "free-pods"
    OUT_OF_SERVICE_TAINT = "out-of-service-taint"
    RELEASE_VOLUMES = "release-volumes"
    DETACH_VOLUMES = "detach-volumes"
    QUARANTINE = "quarantine"
    LIFT_QUARANTINE = "lift-quarantine"
    DELETE_NODE = "delete-node"
    TERMINATE = "terminate-instance"
    KDUMP = "kdump"

    @property
    def has_off(self) -> bool:
        """Whether a device is switched off by it."""
        return self in {MethodAction.OFF, MethodAction.REBOOT, MethodAction.RESTART}

    @property
    def has_on(self) -> bool:
        """Whether a device is switched on by it."""
        return self in {MethodAction.ON, MethodAction.REBOOT, MethodAction.RESTART}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a step. name: as its configuration calls it. template: the object that it is an instance of, "" without one.

    parameters: what it was told, under the names it was written with and filled in for the node; secret ones are in the device's
    credentials. device: what is switched, in the driver's own names. fabric: the device carries a path (a switch port), so that
    off cuts it and proves nothing about power; storage: the volumes behind that path. level: of power devices, the first whose
    devices are all off fences the node.
    """

    name: str
    action: MethodAction
    driver: str = CLUSTER
    template: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    device: PowerDevice | None = None
    fabric: bool = False
    storage: CutStorage = field(default_factory=CutStorage)
    level: int = 1
    delay: timedelta = timedelta(0)
    timeout: timedelta | None = None
    tries: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceConfig:
    """How a node is fenced. name: of the winning object, "default" for what holds without any. subject: the same with its kind.

    settings: what holds for the whole flow, as a plan without any device; its wait_before_isolation is how long a node stays
    `new` where no health check has waited already. warnings and errors are sentences that name object and field and never a value
    that may be secret.
    """

    node: str
    name: str
    source: str
    subject: str
    isolation: tuple[Method, ...] = ()
    power_management: tuple[Method, ...] = ()
    recovery: tuple[Method, ...] = ()
    settings: FencingPlan = DEFAULTS
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def step(self, step: FenceStep) -> tuple[Method, ...]:
        """The methods of one step, in their order."""
        match step:
            case FenceStep.ISOLATION:
                return self.isolation
            case FenceStep.POWER_MANAGEMENT:
                return self.power_management
            case FenceStep.RECOVERY:
                return self.recovery


# The bounds of what a fence configuration may ask for, in whichever spelling.
#
# A workflow polls and repeats within these; with them its history is bounded, whatever anybody writes.

LONGEST_ACT = timedelta(seconds=30)
"""An act that may take longer could not be waited out before its outcome is read (S34)."""

LONGEST_WAIT = timedelta(hours=24)
LONGEST_RETRY_INTERVAL = timedelta(minutes=10)
LONGEST_OFF = timedelta(minutes=10)
LONGEST_FREEING = timedelta(minutes=30)
LONGEST_BOOT = timedelta(hours=2)
LONGEST_DELAY = timedelta(minutes=10)
LONGEST_METHOD = timedelta(minutes=30)
MOST_TRIES, MOST_RESTARTS, MOST_LEVELS = 10, 5, 9
