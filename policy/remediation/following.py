"""What a remediation object says about its work, in the words of whichever controller does it.

The contract is medik8s': conditions Processing, Succeeded and PermanentNodeDeletionExpected. Metal3's has a phase instead and
never says that it succeeded: there the node's health tells. Success and failure end a step; silence does not, its time-out does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policy.objects.remediations import GIVEN_UP_ANNOTATION

TIMED_OUT_ANNOTATION = GIVEN_UP_ANNOTATION
"""On a remediation object: since when it is given up for the next one. The same annotation by which we are given up by others."""

PHASE_FAILED, PHASE_DELETING = "Failed", "Deleting machine"
"""Of a Metal3Remediation. The second: it has handed the Machine to its owner."""


class Progress(StrEnum):
    """How far the work is."""

    WORKING = "working"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationConditions:
    """The statuses of its conditions ("True", "False", "Unknown", "" where there is none) and its phase."""

    processing: str = ""
    succeeded: str = ""
    permanent_node_deletion_expected: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationProgress:
    """node_goes: the Node will be deleted for good, another one is to come; that it vanishes is no reason to give up."""

    progress: Progress
    why: str
    node_goes: bool = False


def follow(told: RemediationConditions) -> RemediationProgress:
    """What it means. Where it says both that it succeeded and that it failed, it failed."""
    goes = told.permanent_node_deletion_expected == "True" or told.phase == PHASE_DELETING
    if told.succeeded == "False" or told.phase == PHASE_FAILED:
        why = "Succeeded is False" if told.succeeded == "False" else f"its phase is {PHASE_FAILED}"
        return RemediationProgress(progress=Progress.FAILED, why=why, node_goes=goes)
    if told.succeeded == "True":
        return RemediationProgress(progress=Progress.SUCCEEDED, why="Succeeded is True", node_goes=goes)
    if told.phase:
        why = f"its phase is {told.phase}"
    elif told.processing == "True":
        why = "Processing is True"
    elif told.processing == "False":
        why = "Processing is False, and how it ended is not said"
    else:
        why = "no controller has taken it up yet"
    return RemediationProgress(progress=Progress.WORKING, why=why, node_goes=goes)


def to_be_given_up(told: RemediationConditions) -> bool:
    """Whether it is told that its time is over: not where it has succeeded, as only the node's recovery is waited for then."""
    return told.succeeded != "True"
