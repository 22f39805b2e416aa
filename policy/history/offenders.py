"""Offenders: machines that are repaired again and again, counted by their hardware, whatever name their Node has.

An episode that acts says in a search attribute which hardware it repairs (`activities/contracts/search_attributes.py`), so that
Temporal's visibility finds the repairs of a machine that was renamed, re-imaged or moved to another place of the same cluster.

The system UUID is what a kubelet reports: a stranger's. What it gains by another one than its own: its repairs are counted for
that machine, which then, once it is sick itself and fenced, waits for a person as the setting says; or its own are not counted.
Nothing is begun, freed or deleted by this count. Where a device says which system it serves, every power command has compared
that with what the Node says (S39).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.objects.machines import is_placeholder_uuid
from policy.values.display_text import counted
from policy.values.times import format_duration

_DIGITS = re.compile(r"[0-9a-f]{32}")
LAST_REASONS = 3
MOST_NAMES = 5


class OffenderAnswer(StrEnum):
    """What an episode does about an offender."""

    NOTIFY = "notify"
    """Its record, an Event and a notice say so."""
    ASK = "ask"
    """The same, and a person is asked before the machine is switched on again."""
    KEEP = "keep"
    """The same, and it is fenced in place of the steps of its ladder, and then neither switched on nor given back nor replaced
    before a person answers (S53)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffenderRules:
    """The limit-th repair of a machine within the window makes it an offender."""

    limit: int = 3
    window: timedelta = timedelta(days=28)
    answer: OffenderAnswer = OffenderAnswer.NOTIFY


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRepairs:
    """offence: why the machine is an offender, "" where it is none. asks: whether a person is asked before it is switched on
    again; keeps: and it is kept until the answer. problem: why it is not known whether it is one, "" where it is; the other two
    are then as if it were (S53)."""

    offence: str = ""
    asks: bool = False
    problem: str = ""
    keeps: bool = False

    @property
    def is_doubtful(self) -> bool:
        """Whether it has to be asked again before the machine comes back."""
        return bool(self.problem) and self.asks

    @property
    def question(self) -> str:
        if self.keeps:
            kept = "it is kept for a person, isolated, and neither switched on nor replaced"
            return f"{self._why}; {kept}: `resume` has its repair go on, `abort` leaves a machine off that is off"
        return f"{self._why}; `resume` switches it on, `abort` leaves it off"

    def is_asked_in(self, problem: str) -> bool:
        return bool(self._why) and problem.startswith(self._why)

    @property
    def _why(self) -> str:
        return self.offence or (self.problem and f"whether this machine was repaired too often is not known: {self.problem}")


NO_REPAIRS = FoundRepairs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One episode that has acted on a machine. outcome: "" while it is open. waits: for a person."""

    hardware: str
    node: str
    kind: str
    reason: str
    started: datetime
    outcome: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedMachine:
    """A machine and its repairs, the newest first. nodes: the names that its Node has had, the latest first; reasons: the last
    ones that differ. offends: whether there are as many repairs as the limit says. waits: whether one of them waits for a
    person."""

    hardware: str
    nodes: tuple[str, ...]
    repairs: tuple[Repair, ...]
    reasons: tuple[str, ...]
    offends: bool
    waits: bool = False


def hardware_of(system_uuid: str) -> str:
    """One spelling of a system UUID; "" for what is none, or stands on many machines alike."""
    digits = system_uuid.casefold().replace("-", "")
    if not _DIGITS.fullmatch(digits):
        return ""
    known = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return "" if is_placeholder_uuid(known) else known


def offence(hardware: str, node: str, before: Sequence[Repair], rules: OffenderRules) -> str:
    """Why the machine that is repaired now is an offender, "" where it is none. before: its other repairs within the window."""
    times = len(before) + 1
    if times < rules.limit:
        return ""
    names = Counter([node, *(each.node for each in before)]).most_common()
    as_nodes = ", ".join(f"{name} {counted(number, 'time')}" for name, number in names[:MOST_NAMES])
    days = rules.window / timedelta(days=1)
    within = counted(int(days), "day") if days.is_integer() else format_duration(rules.window)
    more = f" and {len(names) - MOST_NAMES} more names" if len(names) > MOST_NAMES else ""
    return (
        f"this machine (system UUID {hardware}) was repaired {times} times within {within}: "
        f"as {as_nodes}{more}; `nodewarden offenders` lists its repairs"
    )


def machines(repairs: Iterable[Repair], rules: OffenderRules) -> tuple[RepairedMachine, ...]:
    """The repaired machines, the one with most repairs first."""
    found: defaultdict[str, list[Repair]] = defaultdict(list)
    for each in repairs:
        found[each.hardware].append(each)
    listed = []
    for hardware, its in found.items():
        newest = sorted(its, key=lambda each: each.started, reverse=True)
        listed.append(
            RepairedMachine(
                hardware=hardware,
                nodes=tuple(dict.fromkeys(each.node for each in newest)),
                repairs=tuple(newest),
                reasons=tuple(dict.fromkeys(each.reason for each in newest if each.reason))[:LAST_REASONS],
                offends=len(newest) >= rules.limit,
                waits=any(each.waits for each in newest),
            )
        )
    return tuple(sorted(listed, key=lambda each: (-len(each.repairs), -each.repairs[0].started.timestamp(), each.hardware)))
