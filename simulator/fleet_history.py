"""A month of a fleet, written down before it happens: which node is sick from when until when, and what ends it. What is true of
the month is counted from that plan, never from what a product saw of it.

Nodes come back by themselves, stay dead, are rebooted, mended or replaced by a person hours later, and once a whole zone is out.
All are under one health check with a time-out and a circuit breaker. `events` gives the Nodes as an API server would show them,
`truth` what a report has to say. Drawn from one seed; moments are counted from the start of the month.

Sicknesses begin at a whole minute and end within a minute's later seconds, and an outage takes and frees its nodes at one moment.
So no order of two moments that counts hangs on how soon a product looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random

from simulator.objects import JsonObject, timestamp

RACKS, NODES_PER_RACK, ZONES = 8, 5, "abc"
MONTH = timedelta(days=30)
TIMEOUT = timedelta(minutes=5)
RESOLUTION = timedelta(seconds=1)
"""A condition is dated by whole seconds, so that only so much later a time-out is over for sure."""
REPAIR = timedelta(minutes=10)
"""How long a repair takes from its beginning: a node that is well again by itself in less needed none."""
MIN_HEALTHY = "80%"
"""Of the nodes: with fewer, the circuit breaker is open, however short the others are sick. Only the outage opens it."""
REPLACEMENT_TAKES = timedelta(minutes=20)
"""From a Node that is deleted to the one that joins in its place."""
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class Fate(StrEnum):
    """What ends a sickness."""

    CAME_BACK = "came back by itself"
    OUTAGE = "came back with its zone"
    REBOOTED = "rebooted by a person"
    MENDED = "cordoned and mended by a person"
    REPLACED = "replaced by a person"
    DEAD = "stays dead"


class Verdict(StrEnum):
    """What a repair of a sick node would have been."""

    FALSE = "false"
    """The node was well by itself in less than the repair takes."""
    LATER = "later"
    """It was well by itself, but later than that."""
    PEOPLE = "people"
    """People repaired it."""
    DEAD = "dead"
    HELD = "held"
    """There was none to be begun: the circuit breaker was open until the node was well."""


_BY_PEOPLE = frozenset({Fate.REBOOTED, Fate.MENDED, Fate.REPLACED})
_FINAL = frozenset({Fate.DEAD, Fate.REPLACED})
"""After these no more befalls the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sickness:
    """Of one node. began, ended: since the start of the month; ended None: never within it. cordoned: when a person cordoned it,
    None where none did. ready: what its condition Ready says meanwhile."""

    node: str
    fate: Fate
    began: timedelta
    ended: timedelta | None
    cordoned: timedelta | None = None
    ready: str = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Of one sickness that outlasts the time-out. begins: since the start of the month, None where the breaker held it to the
    end."""

    verdict: Verdict
    begins: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a check with a time-out meets in the month: the repair of each sickness that outlasts it."""

    repairs: Mapping[Sickness, Repair]
    node_days: float

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many repairs would have been what."""
        return Counter(each.verdict for each in self.repairs.values())

    @property
    def begun(self) -> int:
        """How many would have begun."""
        return len(self.repairs) - self.verdicts[Verdict.HELD]

    @property
    def waited(self) -> list[timedelta]:
        """How long after the moment at which ours would have begun the repairs by people were done, the shortest first."""
        found = [(sick.ended, each.begins) for sick, each in self.repairs.items() if each.verdict is Verdict.PEOPLE]
        return sorted(ended - begins for ended, begins in found if ended is not None and begins is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A Node as it is from then on; None: it is gone."""

    at: timedelta
    name: str
    node: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What changes of a Node. ready_at: when its condition changed last. cordoned: since when it is."""

    ready: str = "True"
    ready_at: timedelta = timedelta(0)
    boots: int = 1
    cordoned: timedelta | None = None


class FleetHistory:
    """One month."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.racks = {f"n{number:02}": f"r{1 + number // NODES_PER_RACK}" for number in range(RACKS * NODES_PER_RACK)}
        """The rack of each node, by the names at the beginning; a replacement has another name."""
        began = self._minute(6, 24)
        self.outage = began, began + self._random.randrange(18, 46) * MINUTE + timedelta(seconds=10)
        self.sicknesses = sorted(self._drawn(), key=lambda each: each.began)

    def truth(self, timeout: timedelta = TIMEOUT) -> Truth:
        """Counted from the plan. timeout: another one than the check has, whose breaker opens and closes as it did."""
        lasting = [each for each in self.sicknesses if each.ended is None or each.ended - each.began > timeout + RESOLUTION]
        replaced = sum(each.fate is Fate.REPLACED for each in self.sicknesses)
        return Truth(
            repairs={each: self._repair(each, each.began + timeout + RESOLUTION) for each in lasting},
            node_days=(len(self.racks) * MONTH - replaced * REPLACEMENT_TAKES) / timedelta(days=1),
        )

    def _repair(self, sick: Sickness, due: timedelta) -> Repair:
        opened, closed = self.outage
        begins = closed if opened <= due < closed else due
        if sick.ended is None:
            return Repair(verdict=Verdict.DEAD, begins=begins)
        if sick.ended <= begins:
            return Repair(verdict=Verdict.HELD, begins=None)
        soon = Verdict.FALSE if sick.ended - begins < REPAIR else Verdict.LATER
        return Repair(verdict=Verdict.PEOPLE if sick.fate in _BY_PEOPLE else soon, begins=begins)

    def events(self, start: datetime) -> list[Event]:
        """All changes of Nodes in their order, those of the beginning first."""
        found = [Event(at=timedelta(0), name=name, node=self._node(name, _State(), start)) for name in self.racks]
        for name in self.racks:
            found.extend(self._events_of(name, start))
        return sorted(found, key=lambda event: event.at)

    # The plan -------------------------------------------------------------------------------------------------------

    def _minute(self, first: int, last: int) -> timedelta:
        """Some minute of the days between."""
        return self._random.randrange(first * 24 * 60, last * 24 * 60) * MINUTE

    def _drawn(self) -> Iterator[Sickness]:
        draw = self._random
        taken: dict[str, list[tuple[timedelta, timedelta]]] = {name: [] for name in self.racks}
        for name in self.racks:
            if self._zone(name) == "a":
                taken[name].append(self.outage)
                yield Sickness(node=name, fate=Fate.OUTAGE, began=self.outage[0], ended=self.outage[1])
        fates = [Fate.DEAD] * draw.randrange(1, 4) + [Fate.REPLACED] * draw.randrange(1, 4)
        fates += [Fate.REBOOTED] * draw.randrange(3, 8) + [Fate.MENDED] * draw.randrange(1, 5)
        fates += [Fate.CAME_BACK] * draw.randrange(20, 40)
        for fate in fates:
            lasts = self._duration(fate)
            while True:
                name, began = draw.choice(list(self.racks)), self._minute(1, 29)
                end = MONTH if fate in _FINAL else began + lasts
                if all(end + HOUR < other[0] or other[1] + HOUR < began for other in taken[name]):
                    break
            taken[name].append((began, end))
            yield Sickness(
                node=name,
                fate=fate,
                began=began,
                ended=None if fate is Fate.DEAD else began + lasts,
                cordoned=began + lasts // (2 * MINUTE) * MINUTE if fate is Fate.MENDED else None,
                ready=draw.choice(["Unknown", "False"]),
            )

    def _duration(self, fate: Fate) -> timedelta:
        """How long a node is sick; of those that come back a third within the time-out, a third while a repair would run."""
        spans = [(1, 5), (5, 15), (15, 180)] if fate is Fate.CAME_BACK else [(60, 720)]
        return self._random.randrange(*self._random.choice(spans)) * MINUTE + timedelta(seconds=self._random.randrange(20, 50))

    # The Nodes ------------------------------------------------------------------------------------------------------

    def _zone(self, name: str) -> str:
        """Racks one to three are zone a, and so on: a bit more than a third of the fleet."""
        return ZONES[(int(self.racks[name][1:]) - 1) // 3]

    def _events_of(self, name: str, start: datetime) -> Iterator[Event]:
        state = _State()
        for each in [sickness for sickness in self.sicknesses if sickness.node == name]:
            state = replace(state, ready=each.ready, ready_at=each.began)
            yield Event(at=each.began, name=name, node=self._node(name, state, start))
            if each.cordoned is not None:
                state = replace(state, cordoned=each.cordoned)
                yield Event(at=each.cordoned, name=name, node=self._node(name, state, start))
            if each.ended is None:
                return
            if each.fate is Fate.REPLACED:
                yield Event(at=each.ended, name=name, node=None)
                at = each.ended + REPLACEMENT_TAKES
                successor = self._node(name, _State(ready_at=at), start, name=f"{name}-b", created=start + at)
                yield Event(at=at, name=f"{name}-b", node=successor)
                return
            state = replace(state, ready="True", ready_at=each.ended, boots=state.boots + (each.fate is Fate.REBOOTED))
            yield Event(at=each.ended, name=name, node=self._node(name, state, start))
            if state.cordoned is not None:
                state = replace(state, cordoned=None)
                yield Event(at=each.ended + 5 * MINUTE, name=name, node=self._node(name, state, start))

    def _node(self, place: str, state: _State, start: datetime, *, name: str = "", created: datetime | None = None) -> JsonObject:
        """place: the name of the first node there."""
        name, at = name or place, timestamp(start + state.ready_at)
        reason = {"True": "KubeletReady", "False": "KubeletNotReady"}.get(state.ready, "NodeStatusUnknown")
        ready = {"type": "Ready", "status": state.ready, "reason": reason, "lastTransitionTime": at, "lastHeartbeatTime": at}
        touched: JsonObject = {"metadata": {}, "spec": {}}
        if state.cordoned is not None:
            owned = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
            touched = {
                "metadata": {"managedFields": [owned | {"time": timestamp(start + state.cordoned)}]},
                "spec": {"unschedulable": True},
            }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": timestamp(created or start - timedelta(days=9)),
                "labels": {
                    "kubernetes.io/hostname": name,
                    "node-role.kubernetes.io/worker": "",
                    "topology.kubernetes.io/zone": f"zone-{self._zone(place)}",
                    "rack": self.racks[place],
                },
                **touched["metadata"],
            },
            "spec": {"providerID": f"simulated:///{name}", **touched["spec"]},
            "status": {
                "conditions": [ready],
                "nodeInfo": {"bootID": f"boot-{name}-{state.boots}", "systemUUID": f"uuid-{name}", "machineID": f"id-{name}"},
            },
        }
