"""The methods that are ours: words that need no definition, because what they act on is the cluster, or the instance itself.

In which steps each may stand follows from what it does: nothing is freed before a proof, nothing is switched in recovery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.fence.config import FenceStep, MethodAction

_ISOLATION = frozenset({FenceStep.ISOLATION})
_POWER = frozenset({FenceStep.POWER_MANAGEMENT})
_RECOVERY = frozenset({FenceStep.RECOVERY})

EFFECTS = ("NoSchedule", "PreferNoSchedule")
"""Not NoExecute: it deletes pods, which needs the proof of off (S1)."""

YES, NO = frozenset({"1", "yes", "on", "true"}), frozenset({"0", "no", "off", "false"})
LONGEST_SECONDS = 3600

_KEY = re.compile(r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")


class ParameterKind(StrEnum):
    """What a parameter of ours may be."""

    KEY = "the key of a taint"
    VALUE = "the value of a taint"
    EFFECT = f"one of {', '.join(EFFECTS)}"
    ANSWER = "yes or no"
    SECONDS = f"whole seconds from 1 to {LONGEST_SECONDS}, without a unit"

    def takes(self, value: str) -> bool:
        """Whether the text is one."""
        match self:
            case ParameterKind.KEY:
                return _KEY.fullmatch(value) is not None
            case ParameterKind.VALUE:
                return _VALUE.fullmatch(value) is not None
            case ParameterKind.EFFECT:
                return value in EFFECTS
            case ParameterKind.ANSWER:
                return value.lower() in YES | NO
            case ParameterKind.SECONDS:
                return value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= LONGEST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMethod:
    """One word. parameters: what it may be told; required: what it must be told.

    of_instance: it acts on the machine that the node's providerID names, and is told what that cloud's driver takes.
    """

    action: MethodAction
    steps: frozenset[FenceStep]
    parameters: Mapping[str, ParameterKind] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    of_instance: bool = False


_CORDON = OwnMethod(action=MethodAction.CORDON, steps=_ISOLATION)
_UNCORDON = OwnMethod(action=MethodAction.UNCORDON, steps=_RECOVERY)
_FREE_PODS = OwnMethod(action=MethodAction.FREE_PODS, steps=_ISOLATION | _POWER)

OWN_METHODS: Mapping[str, OwnMethod] = {
    "mark-unschedulable": _CORDON,
    "cordon": _CORDON,
    "mark-schedulable": _UNCORDON,
    "uncordon": _UNCORDON,
    "free-pods": _FREE_PODS,
    "clean-pods": _FREE_PODS,
    "taint": OwnMethod(
        action=MethodAction.TAINT,
        steps=_ISOLATION,
        parameters={"key": ParameterKind.KEY, "value": ParameterKind.VALUE, "effect": ParameterKind.EFFECT},
        required=("key", "effect"),
    ),
    "drain": OwnMethod(
        action=MethodAction.DRAIN,
        steps=_ISOLATION,
        parameters={
            "force": ParameterKind.ANSWER,
            "ignore-daemonsets": ParameterKind.ANSWER,
            "delete-emptydir-data": ParameterKind.ANSWER,
            "grace-period": ParameterKind.SECONDS,
            "skip-wait-for-delete-timeout": ParameterKind.SECONDS,
        },
    ),
    "out-of-service-taint": OwnMethod(action=MethodAction.OUT_OF_SERVICE_TAINT, steps=_POWER),
    "release-volumes": OwnMethod(action=MethodAction.RELEASE_VOLUMES, steps=_POWER),
    "delete-node": OwnMethod(action=MethodAction.DELETE_NODE, steps=_POWER),
    "kdump": OwnMethod(
        action=MethodAction.KDUMP,
        steps=_ISOLATION | _POWER,
        parameters={
            "window": ParameterKind.SECONDS,
            "silence": ParameterKind.SECONDS,
            "longest": ParameterKind.SECONDS,
            "trusted": ParameterKind.ANSWER,
        },
    ),
    "restart-instance": OwnMethod(action=MethodAction.RESTART, steps=_POWER, of_instance=True),
    "terminate-instance": OwnMethod(action=MethodAction.TERMINATE, steps=_POWER, of_instance=True),
    "detach-volumes": OwnMethod(action=MethodAction.DETACH_VOLUMES, steps=_ISOLATION, of_instance=True),
    "quarantine": OwnMethod(
        action=MethodAction.QUARANTINE,
        steps=_ISOLATION,
        required=("quarantine-group",),
        of_instance=True,
    ),
    "lift-quarantine": OwnMethod(action=MethodAction.LIFT_QUARANTINE, steps=_RECOVERY, of_instance=True),
}

SLIPS: Mapping[tuple[FenceStep, str], str] = {(FenceStep.RECOVERY, "mark-unschedulable"): "mark-schedulable"}
"""The proposal's own default says `recovery=mark-unschedulable`; a node that has recovered is what it was isolated for."""
