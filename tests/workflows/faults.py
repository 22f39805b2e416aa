"""What may go wrong, and when: single faults, what comes together, and known ones at the act at which they hurt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from policy.episode.messages import Kind
from policy.remediation.strategy_rules import Strategy
from tests.workflows.plans import ASKS, MINUTE, plan, step


class Fault(StrEnum):
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
    UNSURE = "unsure"  # done or not is not known
    UNLICENSED = "unlicensed"
    QUEUED = "queued"
    NO_PERMIT = "no permit"
    SAYS_BUSY = "says busy"  # or 409, or 429: the API server has done it all the same
    # Beside it
    FLAP = "flap"
    REBOOT = "reboot"
    OTHERS_ON = "others on"
    OTHERS_OFF = "others off"
    PATH_OPENED = "path opened"  # a person enables the port again
    ATTACHED_AGAIN = "attached again"
    NODE_GONE = "node gone"
    NODE_ANEW = "node anew"  # the same machine under a new Node object
    NODE_REPLACED = "node replaced"  # another machine under the name
    NEED_GONE = "need gone"
    NEED_BACK = "need back"
    VETO = "veto"
    NO_VETO = "no veto"
    LEASED = "leased"  # another one services the node
    UNMARKED = "unmarked"  # a person takes our mark away
    STUBBORN = "stubborn"  # pods stay whatever is done
    STUCK = "stuck"  # a device accepts off and does nothing
    ONE_STUCK = "one stuck"  # of several, one
    SILENT = "silent"
    LOCKED = "locked"  # a device takes our password no more
    NO_SECRET = "no secret"  # the Secret with its password is deleted
    FIRMWARE = "firmware"  # a BMC starts anew, answers nothing meanwhile, and then does as its policy says: on
    ONE_ON = "one on"  # another cluster was given the same outlet of a PDU
    ONE_OFF = "one off"
    LOWERED = "mode lowered"
    RAISED = "mode raised"
    ROLLED = "rolled"  # the owner of Machines puts another one in its place
    DUMP = "dump"  # the kernel crashes and writes its dump
    FIRST_SILENT = "first level silent"
    SPEAKS = "speaks"  # whatever was silent answers again
    ONE_DEAD = "one dead"  # of several devices of a level one is dead for good
    UNLICENSED_LONG = "licence lost"  # the cluster Lease or the permit can't be shown any more
    LICENSED_AGAIN = "licence back"
    TAKEN_OVER = "taken over"  # another deployment takes the Lease and our mark, and fences the node
    BREAKER = "breaker"  # a circuit breaker is open: no permit is granted
    PRESERVED = "preserved"  # a person annotates the Machine alone
    CLUSTER_PAUSED = "cluster paused"  # `clusterctl move` begins
    CHECK_PAUSED = "check paused"  # the health check that asks, and so no object of its may be deleted
    CHECK_GONE = "check gone"
    BACKUP = "backup"  # a backup of the API server from before our mark is restored
    RECONFIGURED = "reconfigured"  # the configuration names another plug
    CORRECTED = "corrected"  # the same, whatever was commanded before; the machine hangs where it hung
    REGROUPED = "regrouped"  # the configuration names one more supply
    BUSY = "busy"  # the API server takes no bookkeeping for so many seconds
    UNANSWERED = "answers lost"  # for so many seconds it takes every write, and no answer to one arrives
    FORGOTTEN = "permit forgotten"  # a scanner that was started anew knows nothing of it
    FORBIDDEN = "forbidden"  # it refuses everything with 403 for so many seconds
    HEAL = "heal"
    AWAY = "away"  # all workers, or Temporal: for so many seconds nothing is carried out
    CLOCK_BEHIND = "clock behind"  # the API server's, by ten minutes
    CLOCK_AHEAD = "clock ahead"
    # Said, or done to the episode itself
    ABORT = "abort"
    ABORT_ON = "abort and power on"
    HOLD = "hold"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    ROLL = "roll"  # its history is long: it goes on in a new one
    BUILD = "build"  # workers of another build are the current ones
    RESET = "reset"  # to any of its workflow tasks; what people have said since is said to it again, or not
    SAID_TWICE = "said twice"  # a person's last word to it arrives once more
    HEARSAY = "hearsay"  # a stranger signals that the node is Ready on another boot
    REPLAYED = "replayed"  # a stranger's worker answers for the workflow, and asks once more for what was just done


SPOKEN = frozenset(
    {Fault.ABORT, Fault.ABORT_ON, Fault.HOLD, Fault.CANCEL, Fault.TERMINATE, Fault.ROLL, Fault.RESET, Fault.SAID_TWICE}
) | {Fault.HEARSAY, Fault.BUILD, Fault.AWAY}
LASTING = frozenset({Fault.BUSY, Fault.FORBIDDEN, Fault.UNANSWERED})
"""What begins at once and lasts that long."""
FOUND_LATER = frozenset({Fault.AWAY, Fault.CLOCK_BEHIND, Fault.CLOCK_AHEAD})
"""Drawn for ladders alone (`Scenario.climbing`), so that all earlier seeds stay the same plays."""
SELF = frozenset({Fault.REFUSED, Fault.UNREACHABLE, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE, Fault.SLOW}) | {
    Fault.OWN_NODE,
    Fault.UNSURE,
    Fault.UNLICENSED,
    Fault.QUEUED,
    Fault.NO_PERMIT,
    Fault.SAYS_BUSY,
}
"""What befalls the attempt itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFault:
    """Waits for the n-th attempt at a certain act, and strikes there: at once, or so many seconds later."""

    method: str
    number: int
    faults: tuple[tuple[Fault, float], ...]


# What goes wrong, where it hurts: kinds of trouble that come together, and known ones by the act at which they strike.


def _theme(faults: str) -> tuple[Fault, ...]:
    return tuple(map(Fault, faults.split(", ")))


THEMES = (
    tuple(fault for fault in Fault if fault not in FOUND_LATER),
    _theme("stuck, one stuck, silent, slow, late, unsure, locked, unreachable, heal"),
    _theme("others on, others off, reboot, flap, stubborn, path opened, attached again"),
    _theme("node gone, node anew, node replaced, unmarked, need gone, need back, flap"),
    _theme("lost before, lost after, late, own node, terminate, unsure, refused"),
    _theme("hold, abort, abort and power on, cancel, veto, leased, stubborn, others on"),
    _theme("first level silent, speaks, one dead, unreachable, reconfigured, locked, heal"),
    _theme("backup, unmarked, node anew, terminate, stubborn, others on, roll"),
    _theme("forbidden, busy, licence lost, licence back, breaker, refused, terminate"),
    _theme("preserved, no veto, veto, busy, hold, taken over, licence back, cluster paused, roll"),
    _theme("reset, reset, late, hold, said twice, roll, others on, terminate"),
    _theme("mode lowered, mode raised, hold, roll, reset, build, rolled, need gone"),
    _theme("says busy, says busy, late, busy, unmarked, terminate, reset"),
    _theme("one on, one off, firmware, no secret, heal, stuck, silent"),
    _theme("check paused, no veto, check gone, need back, node anew, replayed, abort"),
    _theme("answers lost, permit forgotten, abort, hold, reset, need gone, flap"),
)
"""What goes wrong together: everything, devices, other people's hands, the Node, workers, words, other levels, what is
remembered, the API server and leave, who else has a say."""


FAULT_PRONE = ("mark_unschedulable", "last_look", "read_power", "power_off", "read_workload", "power_on", "mark_schedulable")
"""Acts at which something may befall any plan."""
OFTEN = frozenset({"last_look", "read_power", "read_kdump", "read_again"})
"""What is done so often that it matters when."""
FAULTS_AT: dict[str, tuple[tuple[tuple[Fault, float], ...], ...]] = {
    "mark_unschedulable": (((Fault.DUMP, 0.0),), ((Fault.DUMP, 2.0),)),
    "read_kdump": (((Fault.DUMP, 0.0),), ((Fault.REBOOT, 0.0),), ((Fault.HOLD, 0.0),)),
    "free_while_dumping": (((Fault.STUBBORN, 0.0), (Fault.REBOOT, 0.5)), ((Fault.STUBBORN, 0.0), (Fault.ABORT, 5.0))),
    "taint_out_of_service": (
        ((Fault.STUBBORN, 0.0), (Fault.OTHERS_ON, 1.0)),  # a machine comes back while it is being freed
        ((Fault.STUBBORN, 0.0),),
        ((Fault.STUBBORN, 0.0), (Fault.HOLD, 0.5)),
        ((Fault.LOST_AFTER, 0.0),),
        ((Fault.STUBBORN, 0.0), (Fault.UNMARKED, 1.0)),
        ((Fault.STUBBORN, 0.0), (Fault.CORRECTED, 1.0)),
        ((Fault.STUBBORN, 0.0), (Fault.TERMINATE, 1.0)),
        ((Fault.BACKUP, 1.0),),
        ((Fault.FORBIDDEN, 20.0),),
        ((Fault.STUBBORN, 0.0), (Fault.REPLAYED, 120.0)),
    ),
    "delete_workload": (
        ((Fault.STUBBORN, 0.0), (Fault.REPLAYED, 120.0)),
        ((Fault.STUBBORN, 0.0), (Fault.REGROUPED, 1.0)),
        ((Fault.STUBBORN, 0.0), (Fault.OTHERS_ON, 0.5)),
        ((Fault.STUBBORN, 0.0),),
        ((Fault.STUBBORN, 0.0), (Fault.HOLD, 0.5)),
    ),
    "read_workload": (
        ((Fault.OTHERS_ON, 0.01),),
        ((Fault.HOLD, 0.01),),
        ((Fault.HOLD, 0.01), (Fault.OTHERS_ON, 60.0)),
        ((Fault.NODE_REPLACED, 0.01),),
        ((Fault.PRESERVED, 0.01),),
        ((Fault.NODE_ANEW, 0.01),),
    ),
    "power_off": (
        ((Fault.TERMINATE, 1.0), (Fault.LATE, 14.0)),  # the next episode must wait for what the last one had begun
        ((Fault.RESET, 1.0), (Fault.LATE, 14.0)),  # and so must this one, which knows nothing of it
        ((Fault.HOLD, 0.3), (Fault.RESET, 1.0), (Fault.LATE, 14.0)),  # and Temporal schedules that off anew
        ((Fault.RESET, 0.5), (Fault.NEED_GONE, 0.3)),
        ((Fault.CANCEL, 0.1), (Fault.CANCEL, 0.4)),
        ((Fault.LATE, 14.0),),
        ((Fault.NEED_GONE, 0.0),),
        ((Fault.STUCK, 0.0),),
        ((Fault.SILENT, 0.01),),
        ((Fault.OWN_NODE, 0.0), (Fault.OTHERS_OFF, 0.0)),
        ((Fault.BACKUP, 1.0),),
        ((Fault.NODE_ANEW, 1.0),),
        ((Fault.FORBIDDEN, 0.4),),
        ((Fault.FORBIDDEN, 50.0),),
        ((Fault.UNLICENSED_LONG, 0.0),),
        ((Fault.REPLAYED, 3.0),),
        ((Fault.CHECK_GONE, 0.0),),
        ((Fault.CHECK_PAUSED, 0.0),),
    ),
    "read_again": (  # power, of a device that has said off since it was switched off: right before what needs the proof
        ((Fault.HOLD, 0.0),),
        ((Fault.ABORT, 0.0),),
        ((Fault.OTHERS_ON, 0.0), (Fault.OTHERS_OFF, 0.4)),
        ((Fault.OTHERS_ON, 0.0), (Fault.OTHERS_OFF, 1.5)),
    ),
    "power_on": (
        ((Fault.SLOW, 15.0),),
        ((Fault.STUCK, 0.0), (Fault.ABORT, 1.0)),
        ((Fault.LOST_AFTER, 0.0), (Fault.ABORT, 2.0)),
        ((Fault.SILENT, 0.0), (Fault.BREAKER, 0.0)),
        ((Fault.FORBIDDEN, 50.0),),
    ),
    "untaint_out_of_service": (((Fault.FORBIDDEN, 10.0),), ((Fault.BUSY, 40.0),), ((Fault.ABORT, 0.0),), ((Fault.HOLD, 0.0),)),
    "mark_schedulable": (((Fault.FORBIDDEN, 100.0),), ((Fault.PRESERVED, 0.0),)),
    "delete_node": (((Fault.LOST_AFTER, 0.0),),),
    "cut_path": (
        ((Fault.TERMINATE, 1.0), (Fault.LATE, 14.0)),
        ((Fault.RESET, 1.0), (Fault.LATE, 14.0)),
        ((Fault.LOST_BEFORE, 0.0),),
        ((Fault.NEED_GONE, 0.5),),
    ),
    "read_path": (((Fault.NEED_GONE, 0.2), (Fault.TERMINATE, 0.0)),),
    "free_cut_pods": (
        ((Fault.FLAP, 0.1),),  # it is well again, and pods of it run elsewhere
        ((Fault.FLAP, 0.1), (Fault.HEARSAY, 60.0)),
        ((Fault.RESET, 0.5), (Fault.FLAP, 0.3)),
        ((Fault.STUBBORN, 0.0), (Fault.PATH_OPENED, 0.5)),
        ((Fault.STUBBORN, 0.0), (Fault.ATTACHED_AGAIN, 0.5)),
        ((Fault.STUBBORN, 0.0), (Fault.HOLD, 0.5)),
        ((Fault.TERMINATE, 1.0),),
        ((Fault.BACKUP, 1.0),),
    ),
    "detach_volume": (((Fault.SILENT, 0.01),), ((Fault.STUCK, 0.0),), ((Fault.LATE, 14.0),)),
    "read_volume": (((Fault.SILENT, 0.0),),),
    "quarantine": (
        ((Fault.TERMINATE, 0.5), (Fault.LOST_AFTER, 0.0)),
        ((Fault.RESET, 0.5), (Fault.NEED_GONE, 0.3)),
        ((Fault.ABORT, 0.0), (Fault.SILENT, 0.5)),
    ),
    "terminate": (((Fault.LOST_AFTER, 0.0),), ((Fault.OTHERS_ON, 0.0),)),
    "last_look": (
        ((Fault.VETO, 0.0),),
        ((Fault.ABORT, 0.0),),
        ((Fault.HOLD, 0.0),),
        ((Fault.NODE_ANEW, 1.0),),
        ((Fault.NODE_GONE, 0.0),),
        ((Fault.BACKUP, 0.5),),
        ((Fault.RECONFIGURED, 0.5),),
        ((Fault.UNLICENSED_LONG, 0.0), (Fault.LICENSED_AGAIN, 40.0)),
        ((Fault.BUSY, 60.0), (Fault.ABORT, 20.0)),
        ((Fault.BUSY, 60.0), (Fault.HOLD, 20.0)),
        ((Fault.BUSY, 60.0), (Fault.FLAP, 1.0)),
        ((Fault.BUSY, 60.0), (Fault.PRESERVED, 1.0)),
        ((Fault.BUSY, 60.0), (Fault.UNLICENSED_LONG, 1.0)),
        ((Fault.ROLL, 0.0),),
        ((Fault.CHECK_PAUSED, 0.0),),
        ((Fault.CHECK_PAUSED, 0.0), (Fault.NO_VETO, 90.0)),
        ((Fault.CHECK_GONE, 0.0),),
    ),
    "give_up": (
        ((Fault.LOST_AFTER, 0.0),),
        ((Fault.TERMINATE, 1.0),),
        ((Fault.OWN_NODE, 0.0),),
        ((Fault.FORBIDDEN, 30.0),),
        ((Fault.ABORT, 1.0), (Fault.LATE, 0.0)),
        ((Fault.NEED_GONE, 1.0), (Fault.LOST_AFTER, 0.0)),
        ((Fault.NEED_GONE, 1.0), (Fault.REFUSED, 0.0)),
        ((Fault.ABORT, 1.0), (Fault.REFUSED, 0.0)),
        ((Fault.LOST_BEFORE, 0.0), (Fault.ABORT, 1.0)),
    ),
    "request_owner": (((Fault.PRESERVED, 5.0),), ((Fault.TERMINATE, 1.0),), ((Fault.LOST_AFTER, 0.0), (Fault.ABORT, 20.0))),
    "annotate_external": (((Fault.ABORT, 5.0),), ((Fault.TERMINATE, 1.0),), ((Fault.LOST_AFTER, 0.0), (Fault.ABORT, 20.0))),
    "create_object": (
        ((Fault.CHECK_PAUSED, 5.0), (Fault.NO_VETO, 1000.0)),
        ((Fault.CHECK_GONE, 5.0),),
        ((Fault.ABORT, 5.0),),
        ((Fault.NODE_ANEW, 5.0),),
        ((Fault.LOST_AFTER, 0.0),),
        ((Fault.ROLL, 1.0),),
    ),
    "read_power": (((Fault.HOLD, 0.0),), ((Fault.CANCEL, 0.0), (Fault.CANCEL, 1.0)), ((Fault.SILENT, 0.5),)),
}
"""Known evils, by the act at which they strike: what has broken fencers before, or us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A known fault in an episode that is calm else. act: what its plan must come to. changes: what else is drawn so."""

    act: str
    placed_faults: tuple[PlacedFault, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)


def _at(method: str, *faults: tuple[Fault, float], number: int = 1) -> PlacedFault:
    return PlacedFault(method=method, number=number, faults=faults)


def _climbing(strategy: Strategy, *others: Strategy, kinds: tuple[Kind, ...] = (Kind.REMEDIATION,)) -> dict[str, Any]:
    ladder = tuple(step(each, 5 * MINUTE) for each in (strategy, *others))
    return {"kinds": kinds, "ladder": ladder}


PATIENT = {"reactions": ("later", "resume")}
NOT_REPLACED = {"goes_after": None, "reactions": ("resume", "resume", "abort-on")}
"""The Machine is to be replaced and is not, so that a person has its ladder go on."""
BOTH, AND_BACK = (Kind.FENCING, Kind.REMEDIATION), (Kind.REMEDIATION, Kind.FENCING)
STRATEGY_OF = {act: strategy for strategy, act in ASKS.items()}
SLOWLY = {"owner_acts_after": 7 * MINUTE, "operator_acts_after": 7 * MINUTE}
"""Others begin only after the five minutes of a step."""
IN_TIME = {"owner_acts_after": 4 * MINUTE, "operator_acts_after": 4 * MINUTE}
"""Late enough for whoever does not want it any more, and within the time of a step."""
OFF_FOR_NOW = ((Fault.SILENT, 0.0),)
"""At power-on: the step has failed, and has left the machine off."""
SLOW = tuple(faults for faults in FAULTS_AT["last_look"] if faults[0][0] is Fault.BUSY)
TERMINATED = (
    ("power_off", ((Fault.TERMINATE, 1.0), (Fault.LATE, 14.0))),
    ("taint_out_of_service", ((Fault.STUBBORN, 0.0), (Fault.TERMINATE, 1.0))),
    ("free_cut_pods", ((Fault.TERMINATE, 1.0),)),
    ("cut_path", ((Fault.TERMINATE, 1.0), (Fault.LATE, 14.0))),
)
"""What an episode may leave to its successor."""

KNOWN = (
    *(
        Known(act=method, placed_faults=(_at(method, *faults),))
        for method, each in FAULTS_AT.items()
        if method not in STRATEGY_OF
        for faults in each
        if method != "last_look" or faults not in SLOW
    ),
    # What is mended while a hold lasts
    *(
        Known(act="power_off", placed_faults=(_at("read_workload", (Fault.HOLD, 0.01), (each, 20.0)),), changes=PATIENT)
        for each in (Fault.NEED_GONE, Fault.CORRECTED, Fault.REGROUPED)
    ),
    # A ladder's second round, after one that has seen another boot: what was proven then proves nothing now
    *(
        Known(
            act="paths alone",
            placed_faults=(
                _at("free_cut_pods", (Fault.REBOOT, 1.0)),
                _at("mark_schedulable", (Fault.FLAP, 5.0)),
                _at("free_cut_pods", (Fault.FLAP, seconds), number=2),
            ),
            changes=_climbing(Strategy.DELETE_MACHINE, Strategy.FENCE) | NOT_REPLACED,
        )
        for seconds in (1.0, 5.0)
    ),
    Known(act="terminate", placed_faults=(_at("taint_out_of_service", (Fault.HOLD, 0.01)),)),
    # Right before each round of consequences, and before the machine comes back
    *(
        Known(act="read_again", placed_faults=(_at("read_again", *faults, number=number),))
        for faults in FAULTS_AT["read_again"]
        for number in (2, 3, 4)
    ),
    # A person passes an open circuit breaker; or it is no person, as Kubernetes has it
    *(
        Known(act="power_off", placed_faults=placed, changes={"overrides": overrides, "permitted": False})
        for overrides, placed in (
            ("attested", ()),
            ("attested", (_at("last_look", (Fault.REBOOT, 0.0), number=2),)),
            ("attested", (_at("power_off", (Fault.TERMINATE, 1.0)),)),
            ("forged", ()),
        )
    ),
    # A Machine that never got its Node, or gets one in the middle
    *(
        Known(act=act, placed_faults=placed, changes=_climbing(strategy, Strategy.DELETE_MACHINE) | {"nodeless": True})
        for strategy, act in ASKS.items()
        for placed in ((), (_at(act, (Fault.NODE_ANEW, 5.0)),), (_at(act, (Fault.NODE_REPLACED, 5.0)),))
    ),
    Known(act="several", placed_faults=(_at("power_off", (Fault.ONE_STUCK, 0.0)),)),
    Known(act="several", placed_faults=(_at("read_power", (Fault.ONE_DEAD, 0.0), number=6),)),
    Known(act="delete_workload", placed_faults=(_at("power_off", (Fault.STUBBORN, 0.0), (Fault.LOCKED, 0.0)),)),
    Known(act="delete_workload", placed_faults=(_at("power_off", (Fault.STUBBORN, 0.0), (Fault.SILENT, 0.0)),)),
    Known(act="delete_node", placed_faults=(_at("taint_out_of_service", (Fault.STUBBORN, 0.0), (Fault.PRESERVED, 1.0)),)),
    Known(act="delete_node", placed_faults=(_at("delete_workload", (Fault.STUBBORN, 0.0), (Fault.VETO, 1.0)),)),
    Known(
        act="levels",
        placed_faults=(_at("power_off", (Fault.FIRST_SILENT, 0.0)), _at("read_workload", (Fault.SPEAKS, 0.01))),
        changes={"miswired": True},
    ),
    Known(
        act="levels",
        placed_faults=(
            _at("power_off", (Fault.FIRST_SILENT, 0.0)),
            *(_at(each, (Fault.STUBBORN, 0.0), (Fault.SPEAKS, 5.0)) for each in ("taint_out_of_service", "delete_workload")),
        ),
        changes={"miswired": True},
    ),
    Known(act="power_on", placed_faults=(_at("untaint_out_of_service", (Fault.TAKEN_OVER, 0.0)),)),
    Known(act="power_on", placed_faults=(_at("read_workload", (Fault.TAKEN_OVER, 0.01)),)),
    Known(act="power_off", placed_faults=(_at("last_look", (Fault.TAKEN_OVER, 1.0), number=2),)),
    Known(act="power_off", placed_faults=(_at("read_power", (Fault.LOCKED, 0.0)),), changes={"reactions": ("mend", "resume")}),
    Known(
        act="delete_workload",
        placed_faults=(_at("delete_workload", (Fault.OTHERS_ON, 0.5), (Fault.OTHERS_OFF, 2.5), (Fault.STUBBORN, 0.0)),),
        changes={"skews": (9.0,), "per_minute": None},
    ),
    Known(act="power_off", placed_faults=(), changes={"skews": (600.0, 0.0)}),
    Known(act="power_off", placed_faults=(), changes={"skews": (-600.0, 0.0)}),
    # What one kind leaves to another
    *(
        Known(act=act, placed_faults=(_at(act, *faults),), changes=_climbing(strategy, *others, kinds=kinds))
        for act, faults in TERMINATED
        for kinds, strategy, *others in (
            (BOTH, Strategy.FENCE),
            (BOTH, Strategy.REBOOT, Strategy.FENCE),
            (BOTH, Strategy.EXTERNAL),
            (BOTH, Strategy.DELETE_MACHINE),
            (AND_BACK, Strategy.FENCE),
            ((Kind.REMEDIATION,), Strategy.FENCE),
        )
    ),
    # What is said while a step keeps its books
    *(
        Known(act="last_look", placed_faults=(_at("last_look", *faults),), changes=_climbing(strategy))
        for faults in SLOW
        for strategy in STRATEGY_OF.values()
    ),
    *(
        Known(act=method, placed_faults=(_at(method, *faults),), changes=_climbing(strategy, Strategy.FENCE, kinds=AND_BACK))
        for method, strategy in STRATEGY_OF.items()
        for faults in FAULTS_AT[method]
    ),
    # Before others are asked, while they have not begun, after their time, and with an answer that was lost
    *(
        Known(act=act, placed_faults=(_at(before, (each, 0.0)),), changes=_climbing(strategy))
        for strategy, act in ASKS.items()
        for before in ("mark", "follow_machine")
        for each in (Fault.HOLD, Fault.ABORT)
        if before == "mark" or act in {"give_up", "request_owner"}
    ),
    *(
        Known(act=act, placed_faults=(_at(act, *faults),), changes=_climbing(strategy, Strategy.REBOOT) | IN_TIME)
        for strategy, act in ASKS.items()
        if act != "give_up"
        for faults in (
            *(((each, 5.0),) for each in (Fault.FLAP, Fault.NEED_GONE, Fault.ABORT, Fault.VETO, Fault.RESET)),
            *(((Fault.RESET, delay), (Fault.NEED_GONE, 0.3)) for delay in (0.5, 2.0, 6.0)),
            ((Fault.RESET, 0.5), (Fault.ABORT, 0.7)),
        )
    ),
    *(
        Known(act=act, placed_faults=placed, changes=_climbing(strategy, *others) | SLOWLY)
        for strategy, act in ASKS.items()
        for others in ((Strategy.REBOOT,), (Strategy.DELETE_MACHINE, Strategy.FENCE))
        if act != "give_up"
        for placed in ((), (_at("power_off", (Fault.ABORT, 1.0)),))
    ),
    *(
        Known(
            act=act,
            placed_faults=(_at(at, (Fault.UNANSWERED, 150.0), *also),),
            changes=_climbing(strategy, *others) | {"owner_acts_after": None},
        )
        for strategy, act in ASKS.items()
        for at in (act, "mark")
        for also, others in (((), ()), (((Fault.ABORT, 60.0),), ()), ((), (Strategy.REBOOT,)), (((Fault.NEED_GONE, 60.0),), ()))
    ),
    *(
        Known(act=act, placed_faults=(_at("last_look", (Fault.FORGOTTEN, 0.0)),), changes=_climbing(strategy))
        for strategy, act in ((Strategy.REBOOT, "power_off"), (Strategy.FENCE, "power_off"))
    ),
    *(
        Known(act=act, placed_faults=(_at(act, (Fault.FORGOTTEN, 0.0)),), changes=_climbing(strategy))
        for strategy, act in ASKS.items()
    ),
    *(
        Known(act=act, placed_faults=(), changes=_climbing(strategy) | {"operator_lies": True, "reactions": reactions})
        for strategy, act in ASKS.items()
        if act in {"create_object", "annotate_external"}
        for reactions in (("resume", "resume"), ("abort",))
    ),
    *(
        Known(
            act=act,
            placed_faults=(_at(act, (Fault.NOTHING, 0.0)), _at("time_out_object", (Fault.TERMINATE, 1.0))),
            changes=_climbing(strategy, Strategy.REBOOT) | {"operator_acts_after": None},
        )
        for strategy, act in ((Strategy.EXTERNAL, "create_object"),)
    ),
    # A step that has left the machine off, and what people say then
    *(
        Known(act="power_on", placed_faults=placed, changes=_climbing(strategy, *others) | {"reactions": reactions} | going)
        for strategy in (Strategy.REBOOT, Strategy.FENCE)
        for placed, others, reactions, going in (
            ((_at("power_on", *OFF_FOR_NOW),), (), ("abort-on",), {}),
            ((_at("power_on", *OFF_FOR_NOW, (Fault.SPEAKS, 60.0)),), (), ("abort-on",), {}),
            ((_at("power_on", *OFF_FOR_NOW),), (), ("abort",), {}),
            ((_at("power_on", *OFF_FOR_NOW, (Fault.NEED_GONE, 5.0)),), (), ("later", "mend"), {}),
            ((_at("power_on", *OFF_FOR_NOW, (Fault.NEED_GONE, 5.0), (Fault.BREAKER, 6.0)),), (), ("mend", "resume"), {}),
            ((_at("power_on", *OFF_FOR_NOW, (Fault.NEED_GONE, 5.0)),), (Strategy.EXTERNAL,), ("resume",), {}),
            ((_at("power_on", *OFF_FOR_NOW, (Fault.ABORT_ON, 500.0)),), (Strategy.DELETE_MACHINE,), (), {"follows_after": None}),
        )
    ),
    # A Machine that goes slowly, while the next step is at it
    *(
        Known(
            act="give_up",
            placed_faults=(_at(at, (each, 0.0)),),
            changes=_climbing(Strategy.DELETE_MACHINE, strategy) | {"goes_after": 20 * MINUTE},
        )
        for strategy in (Strategy.FENCE, Strategy.REBOOT)
        for at in ("remember", "read_power", "power_off")
        for each in (Fault.NEED_GONE, Fault.VETO, Fault.ABORT)
    ),
    *(
        Known(act=act, placed_faults=(_at("mark", (Fault.LOWERED, 0.0)),), changes=_climbing(strategy))
        for strategy, act in (*ASKS.items(), (Strategy.REBOOT, "power_off"))
    ),
    *(
        Known(act=act, placed_faults=(_at(act, (Fault.LOWERED, 0.5)),), changes=_climbing(Strategy.FENCE))
        for act in ("cut_path", "quarantine", "power_off")
    ),
    *(
        Known(
            act="taint_out_of_service",
            placed_faults=(_at("taint_out_of_service", (Fault.STUBBORN, 0.0), (Fault.TERMINATE, 1.0), (Fault.OTHERS_ON, 2.0)),),
            changes=_climbing(strategy, kinds=BOTH),
        )
        for strategy in (Strategy.EXTERNAL, Strategy.DELETE_MACHINE, Strategy.REBOOT)
    ),
    *(
        Known(act=method, placed_faults=(_at(method, *faults),), changes=_climbing(strategy, Strategy.DELETE_MACHINE))
        for method in ("power_off", "taint_out_of_service", "power_on")
        for strategy in (Strategy.FENCE, Strategy.DETACH_VOLUMES)
        for faults in FAULTS_AT[method]
    ),
    # A controller that fails, and a person who has it tried again
    Known(
        act="create_object",
        placed_faults=(),
        changes=_climbing(Strategy.EXTERNAL) | {"operator_acts_after": None, "reactions": ("resume", "resume")},
    ),
    # A deletion of which the answer is lost on its way: it arrives later, and its worker lives
    *(
        Known(
            act="give_up", placed_faults=(_at("give_up", (Fault.UNSURE, 0.0), *also),), changes=_climbing(Strategy.DELETE_MACHINE)
        )
        for also in ((), ((Fault.ABORT, 1.0),), ((Fault.NEED_GONE, 1.0),))
    ),
    # The machine is Ready in another boot than that of the word, before a hold ends
    *(
        Known(
            act="power_off",
            placed_faults=(_at("last_look", (Fault.REBOOT, 0.0), (Fault.HOLD, 0.01), number=number),),
            changes={"overrides": "attested", "permitted": False} | PATIENT,
        )
        for number in (1, 2)
    ),
    Known(act="power_off", placed_faults=(_at("power_off", (Fault.LATE, 14.0)),), changes={"plan": plan(tries=2)}),
)
"""Each known fault once."""
