"""The verdict on one target: healthy, soon (a timeout runs, with the moment it expires), unhealthy, or skipped (why); and the
target itself (`JudgedTarget`).

What all dialects share: a listed condition fires when type and status are equal and its duration is *strictly* exceeded; a
condition that the object does not report never fires; the list is a logical OR. What each makes of a Machine, a missing Node or
a deletion is `policy/checks/rules/`; counting verdicts is `policy/scan/ledger.py`, acting on the count
`policy/checks/circuit_breakers.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from policy.checks.health_check import UnhealthyCondition
from policy.objects.machines import MachineView, WorkloadCluster, of_control_plane
from policy.objects.marks import is_marked, strange_mark
from policy.objects.nodes import Condition, NodeView, being_updated
from policy.objects.remediations import RemediationObject
from policy.values.object_refs import is_object_name
from policy.values.times import LATEST, RESOLUTION, format_duration, later, written


class Health(StrEnum):
    """What a check thinks of a target."""

    HEALTHY = "healthy"
    SOON = "soon"
    UNHEALTHY = "unhealthy"
    SKIPPED = "skipped"


class Standing(StrEnum):
    """How a target stands in its check's count; every target of a check has exactly one.

    All but `healthy` use up the budget. starting: a Machine without a Node. recovering: well again, its remediation not yet
    ended. excluded: a person keeps it out of remediation. left-out: not in the check's total at all.
    """

    HEALTHY = "healthy"
    SOON = "soon"
    STARTING = "starting"
    UNHEALTHY = "unhealthy"
    DELETING = "deleting"
    EXCLUDED = "excluded"
    RECOVERING = "recovering"
    LEFT_OUT = "left-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One check's opinion of one target at one moment.

    since: when the offending condition took its status. due: the moment at which time alone changes the verdict: it holds until
    then or until an object changes, whichever is first. again: no clock runs, and how soon a controller would look again.
    expired: for an unhealthy target, the moment at which its time was over; None where it had none.
    """

    health: Health
    standing: Standing
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    due: datetime | None = None
    again: timedelta | None = None
    expired: datetime | None = None

    @property
    def calls_for_action(self) -> bool:
        """Unhealthy, or unhealthy but excluded by a person: excluded targets are listed too, so that people learn why."""
        return self.standing in {Standing.UNHEALTHY, Standing.EXCLUDED}


HEALTHY = Verdict(health=Health.HEALTHY, standing=Standing.HEALTHY)

EXCLUDED = "Excluded"
"""The reason of a verdict on a target that is unhealthy, but that people keep out of remediation."""

DELETING = "Deleting"
"""The reason of a verdict on a target that is being deleted."""

RECOVERING = "Recovering"
"""The reason of a verdict on a target that is well again while its remediation has not ended."""


UNREADABLE = "Unreadable"
"""The reason of a verdict on a target of which hardly anything is known."""


RECOVERS = Verdict(
    health=Health.HEALTHY, standing=Standing.RECOVERING, reason=RECOVERING, message="well again; its episode has not ended yet"
)


def unread(problem: str) -> Verdict:
    """The verdict on a target that can't be read: counted among those that are not healthy, and never acted upon."""
    return Verdict(health=Health.SKIPPED, standing=Standing.SOON, reason=UNREADABLE, message=problem)


# Conditions ---------------------------------------------------------------------------------------------------------

Watched = Mapping[tuple[str, str], timedelta]
"""The duration that makes a condition an offence, by its type and status; the shortest of several."""


def watched(listed: Iterable[UnhealthyCondition]) -> Watched:
    """The list of a check, prepared for lookups."""
    found: dict[tuple[str, str], timedelta] = {}
    for condition in listed:
        key = (condition.type, condition.status)
        found[key] = min(condition.duration, found.get(key, condition.duration))
    return found


@dataclass(frozen=True, slots=True)
class FailingCondition:
    """A listed condition that holds. `due` None: the object does not say since when, so it is not known whether it has
    expired."""

    condition: Condition
    duration: timedelta
    due: datetime | None

    def over(self, now: datetime) -> bool:
        """Whether it has held for longer than its duration."""
        return self.due is not None and now >= self.due


def offences(conditions: tuple[Condition, ...], listed: Watched) -> list[FailingCondition]:
    """The listed conditions that hold, in the list's order. Called for every target under every check: it is kept short."""
    found: list[FailingCondition] = []
    for condition in conditions:
        duration = listed.get((condition.type, condition.status))
        if duration is not None:
            due = later(condition.since, duration, RESOLUTION) if condition.since is not None else None
            found.append(FailingCondition(condition, duration, due))
    if len(found) > 1:
        order = list(listed)
        found.sort(key=lambda offence: order.index((offence.condition.type, offence.condition.status)))
    return found


def by_conditions(found: list[FailingCondition], now: datetime) -> Verdict:
    """The verdict that a list of offences leads to, for one subject and in plain words."""
    timed = [offence for offence in found if offence.due is not None]
    if not timed:
        if not found:
            return HEALTHY
        first = found[0].condition
        message = f"{first.type} is {first.status}, but nothing says since when: never taken for expired"
        return Verdict(health=Health.SOON, standing=Standing.SOON, reason=_reason(first), message=message)
    # The one that expires first is the reason, before and after: a later one does not change the message.
    first = min(timed, key=lambda offence: offence.due or LATEST)
    over, condition, duration = first.over(now), first.condition, format_duration(first.duration)
    return Verdict(
        health=Health.UNHEALTHY if over else Health.SOON,
        standing=Standing.UNHEALTHY if over else Standing.SOON,
        reason=_reason(condition),
        message=f"{_stated(condition)}, {'longer than' if over else 'unhealthy after'} {duration}",
        since=condition.since,
        due=first.due if not over else None,
        expired=first.due if over else None,
    )


def _reason(condition: Condition) -> str:
    return cause_of(condition.type, condition.status)


def cause_of(type_: str, status: str) -> str:
    """The reason of a verdict by a condition, as one stable word: `ReadyUnknown`."""
    return f"{type_}{status}"


def _stated(condition: Condition) -> str:
    assert condition.since is not None, "a timeless condition is no offence that could run or expire"
    return f"{condition.type} is {condition.status} since {written(condition.since)}"


# A target: what a health check judges, a Node alone or a Machine with its Node, and what every check thinks of it.
#
# The pieces are snapshots; a target only holds the newest of each together. It is filled by `policy/scan/ledger.py` and read by
# `policy/checks/rules/` (one check, one target) and `policy/scan/report_builder.py` (all of them).

SICKNESS = {Health.UNHEALTHY: 0, Health.SOON: 1, Health.SKIPPED: 2, Health.HEALTHY: 3}
MACHINE = "machine/"
"""Begins the name of a victim that is a Machine without a Node."""


def is_target(name: str) -> bool:
    """Whether a Node may have that name, or a Machine, as `machine/<namespace>/<name>`. It stands in commands that people copy,
    so that nothing else may be in it (S41)."""
    parts = name.removeprefix(MACHINE).split("/")
    return len(parts) == 1 + name.startswith(MACHINE) and all(map(is_object_name, parts))


NEVER = datetime.max.replace(tzinfo=UTC)


class JudgedTarget:
    """One target and the verdicts on it, by the check's key.

    node: the Node itself, or the Machine's; None while there is none. unseen: why the Machine's Node can't be looked up, ""
    where it can, so that a missing Node is really gone. cluster: the Cluster API Cluster, None where it is not known.
    remediations: the remediation objects about it, ours and others'. contested: which other Node seems to be the same machine,
    in words. marked: an episode of ours holds the node. shown_as: what a report showed of it at the last look, None before
    that.
    """

    __slots__ = (
        "cluster",
        "contested",
        "control_plane",
        "key",
        "machine",
        "marked",
        "node",
        "remediations",
        "shown_as",
        "strange_mark",
        "unseen",
        "updating",
        "verdicts",
    )

    def __init__(self, key: str, *, node: NodeView | None = None, machine: MachineView | None = None) -> None:
        self.key = key
        self.machine = machine
        self.cluster: WorkloadCluster | None = None
        self.remediations: tuple[RemediationObject, ...] = ()
        self.unseen = ""
        self.contested = ""
        self.verdicts: dict[str, Verdict] = {}
        self.shown_as: object = None
        self.see(node)

    def see(self, node: NodeView | None) -> None:
        """Set the Node as it is now, and work out once what is asked of every target again and again."""
        self.node = node
        self.control_plane = of_control_plane(node, self.machine)
        self.marked = node is not None and is_marked(node)
        self.strange_mark = strange_mark(node) if node is not None else ""
        self.updating = node is not None and being_updated(node)

    @property
    def changed(self) -> datetime:
        """When its Machine's status last changed, else when it was made. It stands in for the beginning of illnesses without a
        date, such as a Machine that is marked, has failed or has lost its Node."""
        machine = self.machine
        if machine is None:
            return NEVER
        moments = [each.since for each in machine.conditions if each.since is not None]
        if machine.last_updated is not None:
            moments.append(machine.last_updated)
        return max(moments, default=machine.created or NEVER)

    @property
    def name(self) -> str:
        """The object that the check selects, by its own name."""
        if self.machine is not None:
            return self.machine.name
        assert self.node is not None, "a target without a Machine is a Node"
        return self.node.name

    @property
    def node_name(self) -> str:
        """The Node's name, also where the Node is gone; "" where there has never been one."""
        if self.node is not None:
            return self.node.name
        return self.machine.node_name if self.machine is not None else ""

    @property
    def victim(self) -> str:
        """What an act would hit: targets with the same victim share one episode. A Machine with a Node that can't be looked up
        here is its own victim: a Node of that name may well be another cluster's."""
        return (self.node_name or self.key) if not self.unseen else self.key

    @property
    def victim_name(self) -> str:
        """The victim's name for people and for ids: a Machine that has never had a Node is `machine/<namespace>/<name>`."""
        if self.machine is None or (self.node_name and not self.unseen):
            return self.node_name
        return f"{MACHINE}{self.machine.namespace}/{self.machine.name}"

    @property
    def unreadable(self) -> str:
        """Why the Machine or the Node can't be read, so that the target's health is unknown; "" where both can."""
        for kind, view in (("Machine", self.machine), ("Node", self.node)):
            if view is not None and view.unreadable:
                return f"{kind} {view.name} can't be read: {view.unreadable}"
        return ""

    @property
    def sick(self) -> bool:
        """Whether some check does not call it healthy, or will stop doing so as time passes."""
        return any(verdict.standing is not Standing.HEALTHY or verdict.due is not None for verdict in self.verdicts.values())
