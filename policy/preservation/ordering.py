"""Who goes first when a set of machines is scaled down: those that nobody keeps.

The order is that of machine-controller-manager: not kept (or no longer), then automatically kept, then kept on request; among the
kept the earliest expiry first; then the priority that others gave, a mark for deletion, how far gone the machine is, its age. The
number of replicas is honoured even where only kept machines remain.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from policy.preservation.automatic import is_automatic
from policy.preservation.held import Held, MachinePhase
from policy.preservation.last_to_go import priority_in_its_set
from policy.values.moments import moment_of

_PHASES = {
    MachinePhase.TERMINATING: 0,
    MachinePhase.FAILED: 1,
    MachinePhase.CRASH_LOOP: 2,
    MachinePhase.UNKNOWN: 3,
    MachinePhase.PENDING: 4,
    MachinePhase.AVAILABLE: 5,
    MachinePhase.RUNNING: 6,
}
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)


def scale_down_order(machines: Iterable[Held], now: datetime) -> list[Held]:
    """All of them, the first to go first."""

    def rank(machine: Held) -> tuple[object, ...]:
        kept = machine.expiry is not None and not machine.expired(now)
        standing = 0 if not kept else 1 if is_automatic(machine) else 2
        expiry = machine.expiry if kept and machine.expiry is not None else _BEGINNING
        phase = _PHASES[MachinePhase.TERMINATING if machine.deleting else machine.phase]
        mark = machine.marked_for_deletion
        marked = moment_of(mark) or (_BEGINNING if mark else _NEVER)
        return (standing, expiry, priority_in_its_set(machine), marked, phase, machine.created or _BEGINNING, machine.key)

    return sorted(machines, key=rank)
