"""What really happened to nodes and when: by the API server's and the devices' clocks, never by what we say of ourselves.

The simulated API server tells of each object at the moment of its writing, and of each request at the moment of its answer; a
chassis tells of power when it changes. All of them are in this process, so there is one clock and no polling. Where a fencing is
judged, `tests/system/witness.py` does it, which sees the storage as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import unquote

from policy.values.times import RESOLUTION, moment_of
from simulator.api.storage.kinds import StorageKey
from simulator.api.storage.store import DELETED, Change
from simulator.bmc.machine import HAND, PowerCommand
from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, condition_of, is_ready
from simulator.platforms.gce import Gce
from tests.system.questions import OUR_USER_AGENT
from tests.system.witness import Before

NODES: StorageKey = ("", "nodes")
WHAT_A_NODE_HOLDS: tuple[StorageKey, ...] = (("", "pods"), ("storage.k8s.io", "volumeattachments"))


@dataclass(slots=True, kw_only=True)
class Sighting:
    """One node from the moment it was broken. Moments are None for what was not seen.

    sick_since: as its Ready condition says, in whole seconds. freed: nothing that stood on it when it broke is left in the API.
    in_service: Ready after another boot, and not cordoned.
    """

    before: Before
    boot_id: str
    still_there: set[str]
    sick_since: datetime | None = None
    cordoned: datetime | None = None
    off: datetime | None = None
    freed: datetime | None = None
    in_service: datetime | None = None
    looks: list[datetime] = field(default_factory=list)
    """When nodewarden was answered what the live Node is."""

    @property
    def node(self) -> str:
        """Its name."""
        return self.before.node

    def deadline(self, duration: timedelta) -> datetime | None:
        """When the condition has certainly lasted longer than `duration`: a second later than it says
        (`policy/values/times.py`)."""
        return None if self.sick_since is None else self.sick_since + duration + RESOLUTION


class Sightings:
    """Listens to a simulated cluster from the moment it is made; each node that is to be seen is named by `expect`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        assert cluster.api is not None, "a real API server has no clock that can be listened to"
        self.nodes: dict[str, Sighting] = {}
        self.strangers: list[str] = []
        """What was done to nodes that were not broken, in sentences."""
        self._cluster = cluster
        self._began = datetime.now(UTC)
        self._stood_on: dict[str, Sighting] = {}
        self._under_way = 0
        self.most_under_way = 0
        """So many nodes at once were cordoned or off, or on their way back into service."""
        cluster.api.store.listeners.append(self._written)
        cluster.api.requests.listeners.append(self._answered)
        for name in cluster.nodes:
            cluster.chassis.machine(name).on_change(partial(self._switched, name))

    def expect(self, before: Before) -> Sighting:
        """From now on note what becomes of a node that is broken in this moment."""
        boot_id = self._cluster.nodes[before.node].boot_id
        node = self._cluster.view.nodes.get(before.node)
        own = {node["metadata"]["uid"]} if node is not None else set[str]()
        seen = Sighting(before=before, boot_id=boot_id, still_there=set(before.victims) - own)
        self.nodes[before.node] = seen
        self._stood_on |= dict.fromkeys(seen.still_there, seen)
        return seen

    def look_ages(self) -> Iterator[tuple[Sighting, timedelta | None]]:
        """How old the newest live reading of each node was when its power-off reached the device; None: there was none at all."""
        for seen in self.nodes.values():
            for asked in self._asked_off(seen):
                read = [moment for moment in seen.looks if moment <= asked]
                yield seen, asked - max(read) if read else None

    def _asked_off(self, seen: Sighting) -> list[datetime]:
        """When a power-off reached the device: a cloud notes it some time before the machine follows."""
        since = seen.before.at
        if self._cluster.hardware is not None and isinstance(platform := self._cluster.platform, Gce):
            asked = [entry for entry in platform.cloud.log if entry.verb == "stop" and entry.at >= since]
            return [entry.at for entry in asked if entry.path.split("/")[-2] == seen.node]
        log = self._cluster.chassis.machine(seen.node).log[seen.before.commands :]
        return [entry.at for entry in log if entry.command == "off" and entry.device != HAND]

    def _answered(self, method: str, path: str, user_agent: str, status: int) -> None:
        if method != "GET" or status != 200 or not user_agent.startswith(OUR_USER_AGENT):
            return
        kind, _, name = unquote(path).rpartition("/")
        if kind == "/api/v1/nodes" and (seen := self.nodes.get(name)) is not None:
            seen.looks.append(datetime.now(UTC))

    def _written(self, storage: StorageKey, change: Change) -> None:
        if storage in WHAT_A_NODE_HOLDS and change.type == DELETED:
            self._is_gone(change.record.document["metadata"]["uid"])
        elif storage == NODES and change.type != DELETED:
            self._node_changed(change.record.name, change.record.document)

    def _is_gone(self, uid: str) -> None:
        seen = self._stood_on.pop(uid, None)
        if seen is not None:
            seen.still_there.discard(uid)
            if not seen.still_there:
                seen.freed = datetime.now(UTC)

    def _node_changed(self, name: str, node: JsonObject) -> None:
        cordoned, seen = bool((node.get("spec") or {}).get("unschedulable")), self.nodes.get(name)
        if seen is None:
            if cordoned:
                self.strangers.append(f"{name} was cordoned, and it was not broken")
            return
        ready = condition_of(node, "Ready") or {}
        if seen.sick_since is None and ready.get("status") in {"False", "Unknown"}:
            seen.sick_since = moment_of(ready.get("lastTransitionTime"))
        if cordoned and seen.cordoned is None:
            seen.cordoned = datetime.now(UTC)
            self._count(1)
        boot_id = ((node.get("status") or {}).get("nodeInfo") or {}).get("bootID", "")
        back = is_ready(node) and boot_id != seen.boot_id and not cordoned
        if back and seen.in_service is None and seen.cordoned is not None:
            seen.in_service = datetime.now(UTC)
            self._count(-1)

    def _switched(self, name: str, command: PowerCommand) -> None:
        if command.device == HAND:
            return
        seen = self.nodes.get(name)
        if seen is None:
            self.strangers.append(f"{name} was switched {command.command}, and it was not broken")
        elif command.command == "off" and seen.off is None:
            seen.off = datetime.now(UTC)

    def _count(self, change: int) -> None:
        self._under_way += change
        self.most_under_way = max(self.most_under_way, self._under_way)
