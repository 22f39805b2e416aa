"""The gate's answer (`policy/episode/gate.py`) as the activities that write give it: an error of a type that each story knows."""

from __future__ import annotations

from datetime import datetime

from activities.contracts.target import LookRequest, LookResult, LookVerdict, Target
from activities.errors import ErrorType, failure
from policy.episode.gate import By, Operation, Seen, objection
from policy.objects.machines import MachineView, is_machine_of
from policy.objects.nodes import NodeView

_REFUSED = {
    LookVerdict.VETOED: ErrorType.VETOED,
    LookVerdict.TARGET_CHANGED: ErrorType.TARGET_CHANGED,
    LookVerdict.NOT_LICENSED: ErrorType.NOT_LICENSED,
    LookVerdict.NEED_GONE: ErrorType.VETOED,
}


def require_leave(seen: Seen, operation: Operation, now: datetime, *, by: By = By.PERSON, about: str = "") -> None:
    """Refuse what the gate objects to. by: who has decided on it; where that is not known here, the look before has asked what
    keeps programs only. about: whom the words are about, to begin the sentence with.

    Raises Vetoed, NotLicensed or TargetChanged.
    """
    if (found := objection(seen, operation, by, now)) is not None:
        kind = _REFUSED[LookVerdict(found.weight)]
        raise failure(kind, f"{about}: {found.words}" if about else found.words)


def require_last_look(look: LookRequest, target: Target, operation: Operation = Operation.DISRUPT) -> None:
    """Refuse a look that comes with an act and would not license it: who asks may be anybody who can schedule activities (S42).
    operation: DISRUPT, or REMOVE where the act has the machine deleted, a look for which licenses the other as well.

    Raises NotLicensed.
    """
    expected = {operation, Operation.REMOVE}
    if look.target != target or look.operation not in expected:
        wanted = " or ".join(sorted(expected))
        told = f"expected a look at {target.pinned.node} for {wanted}, got one at {look.target.pinned.node} for {look.operation}"
        raise failure(ErrorType.NOT_LICENSED, f"look: {told}; nothing was done")


def require_machine_of(target: str, machine: MachineView, node: NodeView | None, about: str) -> None:
    """Refuse a Machine that is not the target's: a look at the one licenses nothing of the other (S9). node: as it is now, None
    where it is gone. Raises TargetChanged."""
    if not is_machine_of(machine, target, node if node is not None and node.name == target else None):
        raise failure(ErrorType.TARGET_CHANGED, f"{about}: expected the Machine of {target}; nothing was done")


def require_go(result: LookResult, otherwise: str) -> None:
    """Refuse what a last look in the same activity does not license. otherwise: what is not done, to begin the sentence with."""
    if result.verdict is not LookVerdict.GO:
        raise failure(_REFUSED[result.verdict], f"{otherwise}: {result.reason}")
