"""A cluster-autoscaler, as far as its judgement of MachineSets goes: it makes a set larger, and watches whether Nodes come of it.

It works on sets that say in two annotations how large they may be, and knows OpenShift's and Cluster API's. Instead of pods that
find no room a test says how many Nodes more are wanted (`want`). What it calls a broken set is one of which a Machine has had no
Node for `max_node_provision_time`. Then it marks that Machine, makes the set smaller again, leaves it alone for a while and tries
the next one. The clock runs per Machine, by its uid. So a program that deletes such Machines before their time is over, for
their set to make new ones, keeps it from ever finding out: the hot loop that OpenShift's proposal of machine health checking
warns of. Left out, knowingly: pods, prices and every other reason to prefer a set, making a cluster smaller because it is idle.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from simulator.client import ApiClient, ApiError, ApiUnreachableError
from simulator.informer import MachineView
from simulator.machine_systems.contract import MachineSystem, annotation
from simulator.objects import JsonObject, controller_of, is_terminating, key_of, name_of, timestamp, uid_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerSettings:
    """In seconds, with the defaults of cluster-autoscaler. min_size, max_size: what every set is annotated with at the start.

    backoff: how long a set is left alone after its first failure; each further one doubles that, up to max_backoff.
    """

    scan_interval: float = 10.0
    max_node_provision_time: float = 900.0
    backoff: float = 300.0
    max_backoff: float = 1800.0
    min_size: int = 1
    max_size: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingEvent:
    """Something that the autoscaler did or found.

    what: `scaled-up`, `awaited` (the clock of a Machine without a Node has begun), `registered` (its Node has come), `lost` (it
    has been deleted by then), `gave-up` (its time is over), `scaled-back`, `backed-off`. replicas: of the set after that.
    """

    what: str
    machine_set: str
    machine: str = ""
    replicas: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A Machine that has no Node yet, and since when, on the autoscaler's clock."""

    machine: str
    machine_set: str
    since: float


class Autoscaler:
    """Looks at all sets once in a while."""

    def __init__(self, client: ApiClient, machines: MachineView, *, system: MachineSystem, settings: AutoscalerSettings) -> None:
        self.history: list[ScalingEvent] = []
        self.awaited: dict[str, Awaited] = {}
        """By the uid of the Machine."""
        self.rounds = 0
        """How often it has looked."""
        self._client = client
        self._machines = machines
        self._system = system
        self._settings = settings
        self._ahead = 0.0
        self._target = 0
        self._backed_off: dict[str, tuple[float, float]] = {}
        """Until when, and for how long that was."""

    # Doors

    def want(self, nodes: int) -> None:
        """So many Nodes more than there are registered now, for good."""
        self._target = self._registered() + nodes

    def pass_time(self, seconds: float) -> None:
        """Put its clock forward: what it waits for has been waited for so much longer, and what it leaves alone left so."""
        self._ahead += seconds

    @property
    def is_content(self) -> bool:
        """All Nodes that were wanted are there."""
        return self._registered() >= self._target

    @property
    def backed_off(self) -> list[str]:
        """The sets that it leaves alone now."""
        return sorted(name for name, (until, _) in self._backed_off.items() if until > self._now())

    def what_befell(self, machine_set: str) -> list[str]:
        """Of one set, in order."""
        return [event.what for event in self.history if event.machine_set == machine_set]

    def last_of(self, machine: str) -> str:
        """What was done about a Machine, or found of it, last; "" for nothing."""
        return next((event.what for event in reversed(self.history) if event.machine == machine), "")

    # Work

    def _now(self) -> float:
        return asyncio.get_running_loop().time() + self._ahead

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.scan_interval)
            try:
                await self.scan()
            except (ApiError, ApiUnreachableError) as error:
                log.info("autoscaler: %s", error)

    async def scan(self) -> None:
        """One round."""
        self._keep_clocks()
        for group in self._groups():
            await self._give_up_on(group)
        await self._make_room()
        self.rounds += 1

    def _groups(self) -> list[JsonObject]:
        """The sets that say how large they may be."""
        sets = [
            each for each in self._machines.machine_sets if self._size(each, "min-size") is not None and not is_terminating(each)
        ]
        return sorted((each for each in sets if self._size(each, "max-size") is not None), key=name_of)

    def _size(self, machine_set: JsonObject, which: str) -> int | None:
        text = annotation(machine_set, self._system.node_group + which)
        return int(text) if text else None

    def _of(self, machine_set: JsonObject) -> list[JsonObject]:
        return [each for each in self._machines.machines if (controller_of(each) or {}).get("uid") == uid_of(machine_set)]

    def _registered(self) -> int:
        return sum(1 for group in self._groups() for machine in self._of(group) if self._has_node(machine))

    def _has_node(self, machine: JsonObject) -> bool:
        return not is_terminating(machine) and self._machines.node_of(machine) is not None

    def _has_given_up(self, machine: JsonObject) -> bool:
        return self._system.delete_first in (machine["metadata"].get("annotations") or {})

    def _keep_clocks(self) -> None:
        """A Machine that is being deleted is not waited for, and its replacement is another one."""
        standing = {
            uid_of(machine): (group, machine)
            for group in self._groups()
            for machine in self._of(group)
            if not is_terminating(machine) and not self._has_given_up(machine)
        }
        for uid in self.awaited.keys() - standing.keys():
            lost = self.awaited.pop(uid)
            replicas = next((_replicas(each) for each in self._groups() if name_of(each) == lost.machine_set), 0)
            self._record("lost", lost.machine_set, replicas=replicas, machine=lost.machine)
        for uid, (group, machine) in standing.items():
            told = {"machine_set": name_of(group), "machine": name_of(machine)}
            if self._has_node(machine) and uid in self.awaited:
                del self.awaited[uid]
                self._record("registered", **told, replicas=_replicas(group))
            elif not self._has_node(machine) and uid not in self.awaited:
                self.awaited[uid] = Awaited(**told, since=self._now())
                self._record("awaited", **told, replicas=_replicas(group))

    async def _give_up_on(self, group: JsonObject) -> None:
        """Those of its Machines past their time: they are marked to go first, and the set is made as much smaller."""
        now = self._now()
        late = [
            machine
            for machine in self._of(group)
            if (awaited := self.awaited.get(uid_of(machine))) is not None
            and now - awaited.since > self._settings.max_node_provision_time
        ]
        replicas = _replicas(group)
        late = late[: max(replicas - (self._size(group, "min-size") or 0), 0)]
        if not late:
            return
        for machine in late:
            path = self._system.machines.path_of_key(key_of(machine))
            mark = {"metadata": {"annotations": {self._system.delete_first: timestamp()}}}
            self._machines.machines.remember(await self._client.patch(path, mark))
        await self._resize(group, replicas - len(late))
        for machine in late:
            del self.awaited[uid_of(machine)]
            self._record("gave-up", name_of(group), replicas=replicas, machine=name_of(machine))
        self._record("scaled-back", name_of(group), replicas=replicas - len(late))
        _, before = self._backed_off.get(name_of(group), (0.0, 0.0))
        pause = min(before * 2, self._settings.max_backoff) if before else self._settings.backoff
        self._backed_off[name_of(group)] = (now + pause, pause)
        self._record("backed-off", name_of(group), replicas=replicas - len(late))

    async def _make_room(self) -> None:
        """The first set that may have more gets what is missing. What is on its way anywhere is counted as if it were there."""
        groups = self._groups()
        missing = self._target - self._registered() - sum(self._on_their_way(group) for group in groups)
        for group in groups:
            replicas = _replicas(group)
            more = min(missing, (self._size(group, "max-size") or 0) - replicas)
            if more > 0 and name_of(group) not in self.backed_off:
                await self._resize(group, replicas + more)
                self._record("scaled-up", name_of(group), replicas=replicas + more)
                return

    def _on_their_way(self, group: JsonObject) -> int:
        registered = sum(1 for machine in self._of(group) if self._has_node(machine))
        return max(_replicas(group) - registered, 0)

    async def _resize(self, group: JsonObject, replicas: int) -> None:
        path = self._system.machine_sets.path_of_key(key_of(group))
        version = group["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        self._machines.machine_sets.remember(await self._client.patch(path, change))

    def _record(self, what: str, machine_set: str, *, replicas: int, machine: str = "") -> None:
        log.info("autoscaler: %s %s %s, %d replicas", what, machine_set, machine, replicas)
        self.history.append(
            ScalingEvent(what=what, machine_set=machine_set, machine=machine, replicas=replicas, at=datetime.now(UTC))
        )


def _replicas(machine_set: JsonObject) -> int:
    return int(machine_set["spec"].get("replicas", 1))
