"""What goes wrong, where it hurts: kinds of trouble that come together, and known evils by the act at which they strike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.episode.messages import Kind
from policy.remediation.strategies import Strategy
from tests.workflows.mishaps import Ambush, Mishap
from tests.workflows.plans import ASKS, MINUTE, step


def _theme(mishaps: str) -> tuple[Mishap, ...]:
    return tuple(map(Mishap, mishaps.split(", ")))


THEMES = (
    tuple(Mishap),
    _theme("stuck, one stuck, silent, slow, late, unsure, locked, unreachable, heal"),
    _theme("others on, others off, reboot, flap, stubborn, path opened, attached again"),
    _theme("node gone, node anew, node replaced, unmarked, need gone, need back, flap"),
    _theme("lost before, lost after, late, own node, terminate, unsure, refused"),
    _theme("hold, abort, abort and power on, cancel, veto, leased, stubborn, others on"),
    _theme("first level silent, speaks, one dead, unreachable, reconfigured, locked, heal"),
    _theme("backup, unmarked, node anew, terminate, stubborn, others on, roll"),
    _theme("forbidden, busy, licence lost, licence back, breaker, refused, terminate"),
    _theme("preserved, no veto, veto, busy, hold, taken over, licence back, cluster paused, roll"),
)
"""What goes wrong together: everything, devices, other people's hands, the Node, workers, words, other levels, what is
remembered, the API server and leave, who else has a say."""


AMBUSHED = ("mark_unschedulable", "last_look", "read_power", "power_off", "read_workload", "power_on", "mark_schedulable")
"""Acts at which something may befall any plan."""
OFTEN = frozenset({"last_look", "read_power", "read_kdump"})
"""What is done so often that it matters when."""
EVILS: dict[str, tuple[tuple[tuple[Mishap, float], ...], ...]] = {
    "mark_unschedulable": (((Mishap.DUMP, 0.0),), ((Mishap.DUMP, 2.0),)),
    "read_kdump": (((Mishap.DUMP, 0.0),), ((Mishap.REBOOT, 0.0),), ((Mishap.HOLD, 0.0),)),
    "free_while_dumping": (((Mishap.STUBBORN, 0.0), (Mishap.REBOOT, 0.5)), ((Mishap.STUBBORN, 0.0), (Mishap.ABORT, 5.0))),
    "taint_out_of_service": (
        ((Mishap.STUBBORN, 0.0), (Mishap.OTHERS_ON, 1.0)),  # a machine comes back while it is being freed
        ((Mishap.STUBBORN, 0.0),),
        ((Mishap.STUBBORN, 0.0), (Mishap.HOLD, 0.5)),
        ((Mishap.LOST_AFTER, 0.0),),
        ((Mishap.STUBBORN, 0.0), (Mishap.UNMARKED, 1.0)),
        ((Mishap.STUBBORN, 0.0), (Mishap.CORRECTED, 1.0)),
        ((Mishap.STUBBORN, 0.0), (Mishap.TERMINATE, 1.0)),
        ((Mishap.BACKUP, 1.0),),
        ((Mishap.FORBIDDEN, 20.0),),
    ),
    "delete_workload": (
        ((Mishap.STUBBORN, 0.0), (Mishap.REGROUPED, 1.0)),
        ((Mishap.STUBBORN, 0.0), (Mishap.OTHERS_ON, 0.5)),
        ((Mishap.STUBBORN, 0.0),),
        ((Mishap.STUBBORN, 0.0), (Mishap.HOLD, 0.5)),
    ),
    "read_workload": (
        ((Mishap.OTHERS_ON, 0.01),),
        ((Mishap.HOLD, 0.01),),
        ((Mishap.HOLD, 0.01), (Mishap.OTHERS_ON, 60.0)),
        ((Mishap.NODE_REPLACED, 0.01),),
        ((Mishap.PRESERVED, 0.01),),
        ((Mishap.NODE_ANEW, 0.01),),
    ),
    "power_off": (
        ((Mishap.TERMINATE, 1.0), (Mishap.LATE, 14.0)),  # the next episode must wait for what the last one had begun
        ((Mishap.CANCEL, 0.1), (Mishap.CANCEL, 0.4)),
        ((Mishap.LATE, 14.0),),
        ((Mishap.NEED_GONE, 0.0),),
        ((Mishap.STUCK, 0.0),),
        ((Mishap.SILENT, 0.01),),
        ((Mishap.OWN_NODE, 0.0), (Mishap.OTHERS_OFF, 0.0)),
        ((Mishap.BACKUP, 1.0),),
        ((Mishap.NODE_ANEW, 1.0),),
        ((Mishap.FORBIDDEN, 0.4),),
        ((Mishap.FORBIDDEN, 50.0),),
        ((Mishap.UNLICENSED_LONG, 0.0),),
    ),
    "power_on": (
        ((Mishap.SLOW, 15.0),),
        ((Mishap.STUCK, 0.0), (Mishap.ABORT, 1.0)),
        ((Mishap.LOST_AFTER, 0.0), (Mishap.ABORT, 2.0)),
        ((Mishap.SILENT, 0.0), (Mishap.BREAKER, 0.0)),
        ((Mishap.FORBIDDEN, 50.0),),
    ),
    "untaint_out_of_service": (((Mishap.FORBIDDEN, 10.0),), ((Mishap.BUSY, 40.0),)),
    "mark_schedulable": (((Mishap.FORBIDDEN, 100.0),), ((Mishap.PRESERVED, 0.0),)),
    "delete_node": (((Mishap.LOST_AFTER, 0.0),),),
    "cut_path": (((Mishap.TERMINATE, 1.0), (Mishap.LATE, 14.0)), ((Mishap.LOST_BEFORE, 0.0),), ((Mishap.NEED_GONE, 0.5),)),
    "read_path": (((Mishap.NEED_GONE, 0.2), (Mishap.TERMINATE, 0.0)),),
    "free_cut_pods": (
        ((Mishap.FLAP, 0.1),),  # it is well again, and pods of it run elsewhere
        ((Mishap.FLAP, 0.1), (Mishap.HEARSAY, 60.0)),
        ((Mishap.STUBBORN, 0.0), (Mishap.PATH_OPENED, 0.5)),
        ((Mishap.STUBBORN, 0.0), (Mishap.ATTACHED_AGAIN, 0.5)),
        ((Mishap.STUBBORN, 0.0), (Mishap.HOLD, 0.5)),
        ((Mishap.TERMINATE, 1.0),),
        ((Mishap.BACKUP, 1.0),),
    ),
    "detach_volume": (((Mishap.SILENT, 0.01),), ((Mishap.STUCK, 0.0),), ((Mishap.LATE, 14.0),)),
    "read_volume": (((Mishap.SILENT, 0.0),),),
    "quarantine": (((Mishap.TERMINATE, 0.5), (Mishap.LOST_AFTER, 0.0)), ((Mishap.ABORT, 0.0), (Mishap.SILENT, 0.5))),
    "terminate": (((Mishap.LOST_AFTER, 0.0),), ((Mishap.OTHERS_ON, 0.0),)),
    "last_look": (
        ((Mishap.VETO, 0.0),),
        ((Mishap.ABORT, 0.0),),
        ((Mishap.HOLD, 0.0),),
        ((Mishap.NODE_ANEW, 1.0),),
        ((Mishap.NODE_GONE, 0.0),),
        ((Mishap.BACKUP, 0.5),),
        ((Mishap.RECONFIGURED, 0.5),),
        ((Mishap.UNLICENSED_LONG, 0.0), (Mishap.LICENSED_AGAIN, 40.0)),
        ((Mishap.BUSY, 60.0), (Mishap.ABORT, 20.0)),
        ((Mishap.BUSY, 60.0), (Mishap.HOLD, 20.0)),
        ((Mishap.BUSY, 60.0), (Mishap.FLAP, 1.0)),
        ((Mishap.BUSY, 60.0), (Mishap.PRESERVED, 1.0)),
        ((Mishap.BUSY, 60.0), (Mishap.UNLICENSED_LONG, 1.0)),
        ((Mishap.ROLL, 0.0),),
    ),
    "give_up": (((Mishap.LOST_AFTER, 0.0),), ((Mishap.TERMINATE, 1.0),), ((Mishap.OWN_NODE, 0.0),), ((Mishap.FORBIDDEN, 30.0),)),
    "request_owner": (((Mishap.PRESERVED, 5.0),), ((Mishap.TERMINATE, 1.0),), ((Mishap.LOST_AFTER, 0.0), (Mishap.ABORT, 20.0))),
    "annotate_external": (((Mishap.ABORT, 5.0),), ((Mishap.TERMINATE, 1.0),), ((Mishap.LOST_AFTER, 0.0), (Mishap.ABORT, 20.0))),
    "create_object": (((Mishap.ABORT, 5.0),), ((Mishap.NODE_ANEW, 5.0),), ((Mishap.LOST_AFTER, 0.0),), ((Mishap.ROLL, 1.0),)),
    "read_power": (((Mishap.HOLD, 0.0),), ((Mishap.CANCEL, 0.0), (Mishap.CANCEL, 1.0)), ((Mishap.SILENT, 0.5),)),
}
"""Known evils, by the act at which they strike: what has broken fencers before, or us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A known evil in an episode that is calm else. act: what its plan must come to. changes: what else is drawn so."""

    act: str
    ambushes: tuple[Ambush, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)


def _at(method: str, *mishaps: tuple[Mishap, float], number: int = 1) -> Ambush:
    return Ambush(method=method, number=number, mishaps=mishaps)


def _climbing(strategy: Strategy, *others: Strategy, kinds: tuple[Kind, ...] = (Kind.REMEDIATION,)) -> dict[str, Any]:
    ladder = tuple(step(each, 5 * MINUTE) for each in (strategy, *others))
    return {"kinds": kinds, "ladder": ladder}


PATIENT = {"reactions": ("later", "resume")}
NOT_REPLACED = {"goes_after": None, "reactions": ("resume", "resume", "abort-on")}
"""The Machine is to be replaced and is not, so that a person has its ladder go on."""
BOTH, AND_BACK = (Kind.FENCING, Kind.REMEDIATION), (Kind.REMEDIATION, Kind.FENCING)
STRATEGY_OF = {act: strategy for strategy, act in ASKS.items()}
SLOW = tuple(mishaps for mishaps in EVILS["last_look"] if mishaps[0][0] is Mishap.BUSY)
TERMINATED = (
    ("power_off", ((Mishap.TERMINATE, 1.0), (Mishap.LATE, 14.0))),
    ("taint_out_of_service", ((Mishap.STUBBORN, 0.0), (Mishap.TERMINATE, 1.0))),
    ("free_cut_pods", ((Mishap.TERMINATE, 1.0),)),
    ("cut_path", ((Mishap.TERMINATE, 1.0), (Mishap.LATE, 14.0))),
)
"""What an episode may leave to its successor."""

KNOWN = (
    *(
        Known(act=method, ambushes=(_at(method, *mishaps),))
        for method, each in EVILS.items()
        if method not in STRATEGY_OF
        for mishaps in each
        if method != "last_look" or mishaps not in SLOW
    ),
    # What is mended while a hold lasts
    *(
        Known(act="power_off", ambushes=(_at("read_workload", (Mishap.HOLD, 0.01), (each, 20.0)),), changes=PATIENT)
        for each in (Mishap.NEED_GONE, Mishap.CORRECTED, Mishap.REGROUPED)
    ),
    # A ladder's second round, after one that has seen another boot: what was proven then proves nothing now
    *(
        Known(
            act="paths alone",
            ambushes=(
                _at("free_cut_pods", (Mishap.REBOOT, 1.0)),
                _at("mark_schedulable", (Mishap.FLAP, 5.0)),
                _at("free_cut_pods", (Mishap.FLAP, seconds), number=2),
            ),
            changes=_climbing(Strategy.DELETE_MACHINE, Strategy.FENCE) | NOT_REPLACED,
        )
        for seconds in (1.0, 5.0)
    ),
    Known(act="terminate", ambushes=(_at("taint_out_of_service", (Mishap.HOLD, 0.01)),)),
    Known(act="several", ambushes=(_at("power_off", (Mishap.ONE_STUCK, 0.0)),)),
    Known(act="several", ambushes=(_at("read_power", (Mishap.ONE_DEAD, 0.0), number=6),)),
    Known(act="delete_workload", ambushes=(_at("power_off", (Mishap.STUBBORN, 0.0), (Mishap.LOCKED, 0.0)),)),
    Known(act="delete_workload", ambushes=(_at("power_off", (Mishap.STUBBORN, 0.0), (Mishap.SILENT, 0.0)),)),
    Known(act="delete_node", ambushes=(_at("taint_out_of_service", (Mishap.STUBBORN, 0.0), (Mishap.PRESERVED, 1.0)),)),
    Known(act="delete_node", ambushes=(_at("delete_workload", (Mishap.STUBBORN, 0.0), (Mishap.VETO, 1.0)),)),
    Known(
        act="levels",
        ambushes=(_at("power_off", (Mishap.FIRST_SILENT, 0.0)), _at("read_workload", (Mishap.SPEAKS, 0.01))),
        changes={"miswired": True},
    ),
    Known(
        act="levels",
        ambushes=(
            _at("power_off", (Mishap.FIRST_SILENT, 0.0)),
            *(_at(each, (Mishap.STUBBORN, 0.0), (Mishap.SPEAKS, 5.0)) for each in ("taint_out_of_service", "delete_workload")),
        ),
        changes={"miswired": True},
    ),
    Known(act="power_on", ambushes=(_at("untaint_out_of_service", (Mishap.TAKEN_OVER, 0.0)),)),
    Known(act="power_on", ambushes=(_at("read_workload", (Mishap.TAKEN_OVER, 0.01)),)),
    Known(act="power_off", ambushes=(_at("last_look", (Mishap.TAKEN_OVER, 1.0), number=2),)),
    Known(act="power_off", ambushes=(_at("read_power", (Mishap.LOCKED, 0.0)),), changes={"reactions": ("mend", "resume")}),
    Known(
        act="delete_workload",
        ambushes=(_at("delete_workload", (Mishap.OTHERS_ON, 0.5), (Mishap.OTHERS_OFF, 2.5), (Mishap.STUBBORN, 0.0)),),
        changes={"skews": (9.0,), "per_minute": None},
    ),
    Known(act="power_off", ambushes=(), changes={"skews": (600.0, 0.0)}),
    Known(act="power_off", ambushes=(), changes={"skews": (-600.0, 0.0)}),
    # What one kind leaves to another
    *(
        Known(act=act, ambushes=(_at(act, *mishaps),), changes=_climbing(strategy, *others, kinds=kinds))
        for act, mishaps in TERMINATED
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
        Known(act="last_look", ambushes=(_at("last_look", *mishaps),), changes=_climbing(strategy))
        for mishaps in SLOW
        for strategy in STRATEGY_OF.values()
    ),
    *(
        Known(act=method, ambushes=(_at(method, *mishaps),), changes=_climbing(strategy, Strategy.FENCE, kinds=AND_BACK))
        for method, strategy in STRATEGY_OF.items()
        for mishaps in EVILS[method]
    ),
    *(
        Known(act=method, ambushes=(_at(method, *mishaps),), changes=_climbing(strategy, Strategy.DELETE_MACHINE))
        for method in ("power_off", "taint_out_of_service", "power_on")
        for strategy in (Strategy.FENCE, Strategy.DETACH_VOLUMES)
        for mishaps in EVILS[method]
    ),
)
"""Each known evil once."""
