"""Automatic preservation: how many failed machines of a pool are kept without anybody having asked.

The cap is spread over the parts of a pool (its zones, or MachineDeployments) as Gardener spreads a worker pool: all get the same,
and of what is left over the first ones get one more. The newest are kept first: what a health check alone calls failed by that
moment, which is later than any machine's creation, all others by their creation as in the shipped system. When the cap falls
exactly what exceeds the whole of it goes, the earliest expiry first, from the parts that have more than their share (S23, S24).
Machines that a person asked for neither count nor are released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime

from policy.objects.marks import is_marked
from policy.preservation.kept_machine import BY_US, Held
from policy.preservation.requests import Intent, requested
from policy.values.times import LATEST

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What is known of machines as candidates beside what they say, by their keys.

    barred: the cap begins to keep them at another moment at best. begun: somebody was told to keep them, and the objects do not
    say so yet: they go first, or the place would be given away twice.
    """

    barred: AbstractSet[str] = field(default_factory=frozenset)
    begun: AbstractSet[str] = field(default_factory=frozenset)


PLAIN = Queue()


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticChoice:
    """What the cap asks of one pool. count: automatic preservations as found."""

    count: int = 0
    selected: tuple[Held, ...] = ()
    released: tuple[Held, ...] = ()


def shares(cap: int, parts: Sequence[str]) -> dict[str, int]:
    """The cap of each part, in the order of their names; last the machines of which nobody knows the part, called ""."""
    if not parts:
        return {}
    each, rest = divmod(cap, len(parts))
    ordered = sorted(parts, key=lambda part: (not part, part))
    return {part: each + (1 if index < rest else 0) for index, part in enumerate(ordered)}


def choose(parts: Mapping[str, Iterable[Held]], cap: int, *, now: datetime, queue: Queue = PLAIN) -> AutomaticChoice:
    """Which machines of one pool begin to be kept, and which are released. A hold that ends by itself gives its place up.

    parts: all machines by the part that they are in, also parts without machines. The shares say only where a free place goes
    and which part gives one back first: parts come into sight and go again (a Machine without its Node, a new MachineSet), and
    as long as the whole cap is not exceeded nothing is released (S21, S24).
    """
    left, count, kept, candidates = shares(cap, list(parts)), 0, list[tuple[str, Held]](), list[tuple[str, Held]]()
    for part, machines in parts.items():
        for machine in machines:
            if is_automatic(machine):
                count += 1
                if machine.failed and not machine.deleting and not machine.expired(now):
                    kept.append((part, machine))
                    left[part] -= 1
            elif machine.key not in queue.barred and _is_candidate(machine):
                candidates.append((part, machine))
    room, selected, released = cap - len(kept), list[Held](), list[Held]()
    kept.sort(key=lambda each: (each[1].expiry or LATEST, each[1].created or _BEGINNING, each[1].key))
    for part, machine in kept:
        if len(released) < -room and left[part] < 0:
            released.append(machine)
            left[part] += 1
    candidates.sort(key=lambda each: each[1].key)
    candidates.sort(key=lambda each: each[1].failed_at or each[1].created or _BEGINNING, reverse=True)
    candidates.sort(key=lambda each: each[1].key not in queue.begun)
    for part, machine in candidates:
        if len(selected) < room and left[part] > 0:
            selected.append(machine)
            left[part] -= 1
    return AutomaticChoice(count=count, selected=tuple(selected), released=tuple(released))


def is_automatic(machine: Held) -> bool:
    """Whether it is kept by the cap and not by anybody's word; also where its annotation was removed, which releases nothing."""
    request = requested(machine.annotated, node_exists=machine.node is not None)
    if request.intent is Intent.AUTOMATIC:
        return not machine.ended or machine.expiry is not None
    return request.intent is Intent.NONE and machine.expiry is not None and machine.condition_reason == BY_US


def _is_candidate(machine: Held) -> bool:
    """Failed, not asked for in whatever way (`false` is a way), not the failure that was preserved before (S25), and in nobody's
    hands: what an episode of ours has begun with it goes on, and takes no place meanwhile."""
    if not machine.failed or machine.deleting or machine.expiry is not None or machine.ended:
        return False
    if machine.node is not None and is_marked(machine.node):
        return False
    return requested(machine.annotated, node_exists=machine.node is not None).intent is Intent.NONE
