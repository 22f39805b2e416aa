"""What may go wrong, and when: the words of the scripts that an adversary plays by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mishap(StrEnum):
    """What may befall the n-th attempt, or happen beside it."""

    NOTHING = "nothing"
    # To the attempt
    REFUSED = "refused"  # a clear failure: nothing was done
    UNREACHABLE = "unreachable"
    LOST_BEFORE = "lost before"  # its worker dies before it did anything
    LOST_AFTER = "lost after"  # its worker dies after it did it
    LATE = "late"  # it is done at the very end of its time, and its answer is lost
    SLOW = "slow"  # a device says yes, and takes its time
    OWN_NODE = "own node"  # it is given to the worker on the very node
    UNSURE = "unsure"  # done or not: the answer is that nobody knows
    UNLICENSED = "unlicensed"
    QUEUED = "queued"
    NO_PERMIT = "no permit"
    # Beside it
    FLAP = "flap"
    REBOOT = "reboot"
    OTHERS_ON = "others on"
    OTHERS_OFF = "others off"
    PATH_OPENED = "path opened"  # somebody enables the port again
    ATTACHED_AGAIN = "attached again"
    NODE_GONE = "node gone"
    NODE_ANEW = "node anew"  # the same machine under a new Node object
    NODE_REPLACED = "node replaced"  # another machine under the name
    NEED_GONE = "need gone"
    NEED_BACK = "need back"
    VETO = "veto"
    NO_VETO = "no veto"
    LEASED = "leased"  # somebody else services the node
    UNMARKED = "unmarked"  # a person takes our mark away
    STUBBORN = "stubborn"  # pods stay whatever is done
    STUCK = "stuck"  # a device accepts off and does nothing
    ONE_STUCK = "one stuck"  # of several, one
    SILENT = "silent"
    LOCKED = "locked"  # a device takes our password no more
    DUMP = "dump"  # the kernel crashes and writes its dump
    FIRST_SILENT = "first level silent"
    SPEAKS = "speaks"  # whatever was silent answers again
    ONE_DEAD = "one dead"  # of several devices of a level one is dead for good
    UNLICENSED_LONG = "licence lost"  # the cluster Lease or the permit can't be shown any more
    LICENSED_AGAIN = "licence back"
    TAKEN_OVER = "taken over"  # another deployment takes the Lease and our mark, and fences the node
    BREAKER = "breaker"  # a circuit breaker is open: nobody is granted a permit
    PRESERVED = "preserved"  # somebody annotates the Machine alone
    CLUSTER_PAUSED = "cluster paused"  # `clusterctl move` begins
    BACKUP = "backup"  # a backup of the API server from before our mark is restored
    RECONFIGURED = "reconfigured"  # the configuration names another plug
    CORRECTED = "corrected"  # the same, whatever was commanded before; the machine hangs where it hung
    REGROUPED = "regrouped"  # the configuration names one more supply
    BUSY = "busy"  # the API server takes no bookkeeping for so many seconds
    FORBIDDEN = "forbidden"  # it refuses everything with 403 for so many seconds
    HEAL = "heal"
    # Said, or done to the episode itself
    ABORT = "abort"
    ABORT_ON = "abort and power on"
    HOLD = "hold"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    ROLL = "roll"  # its history is long: it goes on in a new one
    HEARSAY = "hearsay"  # somebody signals that the node is Ready on another boot


SPOKEN = frozenset({Mishap.ABORT, Mishap.ABORT_ON, Mishap.HOLD, Mishap.CANCEL, Mishap.TERMINATE, Mishap.ROLL, Mishap.HEARSAY})
LASTING = frozenset({Mishap.BUSY, Mishap.FORBIDDEN})
"""What begins at once and lasts that long."""
SELF = frozenset({Mishap.REFUSED, Mishap.UNREACHABLE, Mishap.LOST_BEFORE, Mishap.LOST_AFTER, Mishap.LATE, Mishap.SLOW}) | {
    Mishap.OWN_NODE,
    Mishap.UNSURE,
    Mishap.UNLICENSED,
    Mishap.QUEUED,
    Mishap.NO_PERMIT,
}
"""What befalls the attempt itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambush:
    """Waits for the n-th attempt at a certain act, and strikes there: at once, or so many seconds later."""

    method: str
    number: int
    mishaps: tuple[tuple[Mishap, float], ...]
