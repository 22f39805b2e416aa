"""Why a preserved machine is deleted by another controller all the same: by the state of the sets above it (S21, S26).

An API does not record who asked for a deletion. What can be read is whether the sets still want the machine. A
MachineDeployment, or a MachineSet without one, that wants no machine is hibernated, or was scaled to zero by hand. A deployment
with a newer MachineSet is being rolled. Else a person or a program has deleted the machine, or a set that is scaled down has
chosen it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from policy.values.times import EARLIEST


class Override(StrEnum):
    """What takes precedence over a preservation."""

    NONE = ""
    HIBERNATION = "hibernation"
    ROLLING_UPDATE = "rolling update"
    DELETION = "deletion"
    """Requested by a person, a program, or a set that is scaled down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReplicas:
    """A MachineSet, or the MachineDeployment above it: how many machines it wants. replicas: None where it does not say.

    revision: the newest set of a deployment has the highest; a roll-back gives an old set a new one. created: decides where
    there are no revisions.
    """

    kind: str
    name: str
    replicas: int | None = None
    deleting: bool = False
    revision: int = 0
    created: datetime | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overridden:
    """Which override it was, and the evidence for it, for people."""

    override: Override = Override.NONE
    why: str = ""

    @property
    def sentence(self) -> str:
        """Both; "" where nothing was overridden."""
        return f"{self.override.value}: {self.why}" if self.override else ""


NOT_OVERRIDDEN = Overridden()


def overridden_by(
    own: WantedReplicas | None, deployment: WantedReplicas | None = None, others: Iterable[WantedReplicas] = ()
) -> Overridden:
    """Which override the sets show. own: the MachineSet of the machine, None where it has none (any more); others: further
    MachineSets of its deployment."""
    if own is None:
        return Overridden(override=Override.DELETION, why="its deletion was asked for, and no MachineSet is known above it")
    top = deployment or own
    for each in (top, own):
        if each.deleting:
            return Overridden(override=Override.DELETION, why=f"{each} is being deleted with its machines")
    if top.replicas == 0:
        return Overridden(override=Override.HIBERNATION, why=f"{top} is scaled to 0")
    newest = max((each for each in others if each.replicas and not each.deleting), key=_age, default=None)
    if newest is not None and _age(newest) > _age(own):
        return Overridden(override=Override.ROLLING_UPDATE, why=f"{top} replaces the machines of {own} by those of {newest}")
    if own.replicas == 0:
        return Overridden(override=Override.HIBERNATION, why=f"{own} is scaled to 0")
    many = "" if own.replicas is None else f", which is to have {own.replicas}"
    return Overridden(override=Override.DELETION, why=f"asked for by a person or a program, or by {own}{many}")


def _age(each: WantedReplicas) -> tuple[int, datetime]:
    return each.revision, each.created or EARLIEST
