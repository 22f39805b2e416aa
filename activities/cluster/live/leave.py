"""The gate's answer (`policy/episode/gate.py`) as the activities that write give it: an error of a type that each story knows."""

from __future__ import annotations

from datetime import datetime

from activities.contracts.target import LookResult, LookVerdict
from activities.errors import ErrorType, failure
from policy.episode.gate import By, Operation, Seen, objection

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


def require_go(result: LookResult, otherwise: str) -> None:
    """Refuse what a last look in the same activity does not license. otherwise: what is not done, to begin the sentence with."""
    if result.verdict is not LookVerdict.GO:
        raise failure(_REFUSED[result.verdict], f"{otherwise}: {result.reason}")
