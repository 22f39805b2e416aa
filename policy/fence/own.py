"""The methods that are ours: words that need no definition, because what they act on is the cluster, or the instance itself.

In which steps each may stand follows from what it does: nothing is freed before a proof, nothing is switched in recovery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.fence.config import Action, Step

_ISOLATION = frozenset({Step.ISOLATION})
_POWER = frozenset({Step.POWER_MANAGEMENT})
_RECOVERY = frozenset({Step.RECOVERY})

EFFECTS = ("NoSchedule", "PreferNoSchedule")
"""Not NoExecute: it deletes pods, which needs the proof of off (S1)."""

YES, NO = frozenset({"1", "yes", "on", "true"}), frozenset({"0", "no", "off", "false"})
LONGEST_SECONDS = 3600

_KEY = re.compile(r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")


class Told(StrEnum):
    """What a parameter of ours may be."""

    KEY = "the key of a taint"
    VALUE = "the value of a taint"
    EFFECT = f"one of {', '.join(EFFECTS)}"
    ANSWER = "yes or no"
    SECONDS = f"whole seconds from 1 to {LONGEST_SECONDS}, without a unit"

    def takes(self, value: str) -> bool:
        """Whether the text is one."""
        match self:
            case Told.KEY:
                return _KEY.fullmatch(value) is not None
            case Told.VALUE:
                return _VALUE.fullmatch(value) is not None
            case Told.EFFECT:
                return value in EFFECTS
            case Told.ANSWER:
                return value.lower() in YES | NO
            case Told.SECONDS:
                return value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= LONGEST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMethod:
    """One word. parameters: what it may be told; required: what it must be told.

    of_instance: it acts on the machine that the node's providerID names, and is told what that cloud's driver takes.
    """

    action: Action
    steps: frozenset[Step]
    parameters: Mapping[str, Told] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    of_instance: bool = False


_CORDON = OwnMethod(action=Action.CORDON, steps=_ISOLATION)
_UNCORDON = OwnMethod(action=Action.UNCORDON, steps=_RECOVERY)
_FREE_PODS = OwnMethod(action=Action.FREE_PODS, steps=_ISOLATION | _POWER)

OWN_METHODS: Mapping[str, OwnMethod] = {
    "mark-unschedulable": _CORDON,
    "cordon": _CORDON,
    "mark-schedulable": _UNCORDON,
    "uncordon": _UNCORDON,
    "free-pods": _FREE_PODS,
    "clean-pods": _FREE_PODS,
    "taint": OwnMethod(
        action=Action.TAINT,
        steps=_ISOLATION,
        parameters={"key": Told.KEY, "value": Told.VALUE, "effect": Told.EFFECT},
        required=("key", "effect"),
    ),
    "drain": OwnMethod(
        action=Action.DRAIN,
        steps=_ISOLATION,
        parameters={
            "force": Told.ANSWER,
            "ignore-daemonsets": Told.ANSWER,
            "delete-emptydir-data": Told.ANSWER,
            "grace-period": Told.SECONDS,
            "skip-wait-for-delete-timeout": Told.SECONDS,
        },
    ),
    "out-of-service-taint": OwnMethod(action=Action.OUT_OF_SERVICE_TAINT, steps=_POWER),
    "release-volumes": OwnMethod(action=Action.RELEASE_VOLUMES, steps=_POWER),
    "delete-node": OwnMethod(action=Action.DELETE_NODE, steps=_POWER),
    "kdump": OwnMethod(
        action=Action.KDUMP,
        steps=_ISOLATION | _POWER,
        parameters={
            "window": Told.SECONDS,
            "silence": Told.SECONDS,
            "longest": Told.SECONDS,
            "trusted": Told.ANSWER,
        },
    ),
    "restart-instance": OwnMethod(action=Action.RESTART, steps=_POWER, of_instance=True),
    "terminate-instance": OwnMethod(action=Action.TERMINATE, steps=_POWER, of_instance=True),
    "detach-volumes": OwnMethod(action=Action.DETACH_VOLUMES, steps=_ISOLATION, of_instance=True),
    "quarantine": OwnMethod(
        action=Action.QUARANTINE,
        steps=_ISOLATION,
        required=("quarantine-group",),
        of_instance=True,
    ),
    "lift-quarantine": OwnMethod(action=Action.LIFT_QUARANTINE, steps=_RECOVERY, of_instance=True),
}

SLIPS: Mapping[tuple[Step, str], str] = {(Step.RECOVERY, "mark-unschedulable"): "mark-schedulable"}
"""The proposal's own default says `recovery=mark-unschedulable`; a node that has recovered is what it was isolated for."""
