"""The node lifecycle controller: without a renewed Lease a node becomes Unknown, and its state becomes taints.

Follows kube-controller-manager: heartbeats count from when *this* controller saw them, so clocks need not agree;
NoSchedule taints follow conditions at once; NoExecute taints are rationed per zone, and not set at all while every
zone is down, because then the observer is the likelier patient. What NoExecute does to pods is `taint_eviction.py`.
"""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from simulator.client import ApiClient, ApiError, ApiUnreachableError
from simulator.controllers.runtime import Controller
from simulator.informer import ClusterView
from simulator.objects import (
    NOT_READY,
    READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    JsonObject,
    condition_of,
    condition_status,
    is_ready,
    is_terminating,
    key_of,
    name_of,
    taints_of,
    timestamp,
    zone_of,
)
from simulator.resources import NODES, PODS

PRESSURE_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
UNHEALTHY_ZONE_THRESHOLD = 0.55
LARGE_ZONE = 50
OUR_KEYS = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *PRESSURE_TAINTS.values()}


class ZoneState(StrEnum):
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


@dataclass(slots=True)
class Zone:
    """How many nodes of a zone live."""

    nodes: int = 0
    ready: int = 0

    @property
    def state(self) -> ZoneState:
        not_ready = self.nodes - self.ready
        if self.ready == 0:
            return ZoneState.FULL
        if not_ready > 2 and not_ready / self.nodes >= UNHEALTHY_ZONE_THRESHOLD:
            return ZoneState.PARTIAL
        return ZoneState.NORMAL


@dataclass(slots=True)
class Heartbeat:
    """What was last seen of a node's life, and when it changed, on our own clock."""

    seen: tuple[str, str]
    at: float


class NodeLifecycle(Controller):
    """Judges heartbeats, writes Ready=Unknown and keeps the taints that are its own."""

    workers = 4

    def __init__(
        self,
        client: ApiClient,
        view: ClusterView,
        *,
        grace: float = 40.0,
        evictions_per_second: float = 0.1,
        evictions_per_second_in_a_sick_zone: float = 0.01,
    ) -> None:
        super().__init__(client, view)
        self._grace = grace
        self._rate = evictions_per_second
        self._sick_rate = evictions_per_second_in_a_sick_zone
        self._heartbeats: dict[str, Heartbeat] = {}
        self._was_cut_off = False
        self._next_eviction: dict[str, float] = {}
        self.zones: dict[str, Zone] = {}
        view.nodes.subscribe(self._node_changed)
        view.leases.subscribe(self._lease_changed)

    def everything_is_down(self) -> bool:
        return all(zone.state is ZoneState.FULL for zone in self.zones.values())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._notice_own_stalls())

    async def reconcile(self, key: str) -> float | None:
        node = self.view.nodes.get(key)
        if node is None:
            self._heartbeats.pop(key, None)
            return None
        silence = self._silence(node)
        if silence >= self._grace and condition_status(node, READY) != "Unknown":
            silence = await self._look_closely(node)
            if silence >= self._grace:
                node = await self._mark_unknown(node)
        if not is_ready(node):
            await self._mark_pods_not_ready(node)
        wait = await self._keep_taints(node)
        return min(wait, self._grace - silence + 0.005) if silence < self._grace else wait

    # Heartbeats --------------------------------------------------------------------------------------------------------------

    def _lease_changed(self, _before: JsonObject | None, after: JsonObject | None) -> None:
        # Seen at once, judged at leisure: two hundred renewals a second need no two hundred judgements.
        if after is not None and (node := self.view.nodes.get(name_of(after))):
            self._observe(node)

    def _node_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        node = after or before
        assert node is not None
        if after is not None:
            self._observe(after)
        self.queue.add(name_of(node))
        disruption = self._disruption()
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
        if self._disruption() != disruption:
            # What is right for every other silent node has changed with it.
            for other in self.view.nodes:
                if not is_ready(other):
                    self.queue.add(name_of(other))

    def _count(self, node: JsonObject, number: int) -> None:
        zone = self.zones.setdefault(zone_of(node), Zone())
        zone.nodes += number
        zone.ready += number if is_ready(node) else 0
        if not zone.nodes:
            del self.zones[zone_of(node)]

    def _disruption(self) -> dict[str, ZoneState]:
        return {name: zone.state for name, zone in self.zones.items()}

    def _silence(self, node: JsonObject) -> float:
        """In seconds. What no watch would have shown is no silence of the node."""
        if (live_since := self.view.leases.live_since) is None:
            return 0.0
        return asyncio.get_running_loop().time() - max(self._observe(node).at, live_since)

    async def _notice_own_stalls(self) -> None:
        """The kubelets are of this process: where it gets no processor, their silence is ours."""
        loop, short = asyncio.get_running_loop(), self._grace / 8
        while True:
            began = loop.time()
            await asyncio.sleep(short)
            if loop.time() - began > self._grace / 2:
                self._heartbeats.clear()

    async def _look_closely(self, node: JsonObject) -> float:
        """Ask the API itself: an observer who hears nothing, or only after a long wait, must not declare nodes dead."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            lease = await self.client.get(self.view.leases.resource.path(name_of(node), namespace="kube-node-lease"))
        except ApiError as error:
            if not error.not_found:
                raise
        except ApiUnreachableError:
            self._was_cut_off = True
            raise
        else:
            self.view.leases.remember(lease)
        if self._was_cut_off or loop.time() - asked > self._grace / 4:
            # The silence was ours. kube-controller-manager loses its own lease then, and begins anew.
            self._heartbeats.clear()
            self._was_cut_off = False
        return self._silence(node)

    def _observe(self, node: JsonObject) -> Heartbeat:
        lease = self.view.leases.get(f"kube-node-lease/{name_of(node)}")
        ready = condition_of(node, READY) or {}
        seen = (
            str((lease or {"spec": {}})["spec"].get("renewTime", "")),
            str(ready.get("lastHeartbeatTime", "")),
        )
        known = self._heartbeats.get(name_of(node))
        if known is None or known.seen != seen:
            known = self._heartbeats[name_of(node)] = Heartbeat(seen, asyncio.get_running_loop().time())
        return known

    async def _mark_unknown(self, node: JsonObject) -> JsonObject:
        now = timestamp()
        conditions = copy.deepcopy((node.get("status") or {}).get("conditions") or [])
        known = {condition["type"] for condition in conditions}
        for condition_type in (READY, "MemoryPressure", "DiskPressure", "PIDPressure"):
            if condition_type not in known:
                conditions.append({"type": condition_type, "status": "", "lastHeartbeatTime": now})
        for condition in conditions:
            if condition["type"] not in {READY, "MemoryPressure", "DiskPressure", "PIDPressure"}:
                continue
            if condition["status"] != "Unknown":
                condition["lastTransitionTime"] = now
            condition["status"] = "Unknown"
            condition["reason"] = "NodeStatusUnknown"
            condition["message"] = "No heartbeat from the kubelet within the grace period."
        path = NODES.path(name_of(node), subresource="status")
        version = node["metadata"]["resourceVersion"]
        answer = await self.client.patch(path, {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}})
        self.view.nodes.remember(answer)
        return answer

    async def _mark_pods_not_ready(self, node: JsonObject) -> None:
        for pod in self.view.pods_by_node[name_of(node)]:
            ready = condition_of(pod, READY)
            if ready is None or ready["status"] != "True" or is_terminating(pod):
                continue
            conditions = [dict(each) for each in pod["status"]["conditions"]]
            for condition in conditions:
                if condition["type"] == READY:
                    condition.update(status="False", lastTransitionTime=timestamp(), reason="NodeNotReady")
            version = pod["metadata"]["resourceVersion"]
            answer = await self.client.patch(
                PODS.path_of_key(key_of(pod), subresource="status"),
                {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}},
            )
            self.view.pods.remember(answer)

    # Taints ------------------------------------------------------------------------------------------------------------------

    async def _keep_taints(self, node: JsonObject) -> float:
        """Write the taints that the node should have; answer when a rationed one may come."""
        wait = 3600.0
        wanted = _no_schedule_taints(node)
        execute_key = {"Unknown": UNREACHABLE, "False": NOT_READY}.get(condition_status(node, READY))
        if execute_key and not self.everything_is_down():
            present = any(taint["key"] in {NOT_READY, UNREACHABLE} for taint in taints_of(node, "NoExecute"))
            wait = 0.0 if present else self._ration(zone_of(node))
            if wait <= 0:
                wanted.add((execute_key, "NoExecute"))
                wait = 3600.0
        before = taints_of(node)
        after = [taint for taint in before if taint["key"] not in OUR_KEYS or (taint["key"], taint["effect"]) in wanted]
        present_now = {(taint["key"], taint["effect"]) for taint in after}
        now = datetime.now(UTC)
        after += [
            {"key": key, "effect": effect, "timeAdded": timestamp(now)}
            for key, effect in sorted(wanted - present_now, reverse=True)
        ]
        if after != before:
            # spec.taints is one atomic list: without the resourceVersion we would undo the taints of others.
            answer = await self.client.patch(
                NODES.path(name_of(node)),
                {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": after}},
            )
            self.view.nodes.remember(answer)
        return wait

    def _ration(self, zone: str) -> float:
        """Seconds until one more node of the zone may be evicted; 0 takes the turn."""
        rate = self._rate
        if self.zones[zone].state is ZoneState.PARTIAL:
            rate = self._sick_rate if self.zones[zone].nodes > LARGE_ZONE else 0.0
        if rate <= 0:
            return 3600.0
        now = asyncio.get_running_loop().time()
        due = self._next_eviction.get(zone, 0.0)
        if due > now:
            return due - now
        self._next_eviction[zone] = now + 1 / rate
        return 0.0


def _no_schedule_taints(node: JsonObject) -> set[tuple[str, str]]:
    wanted = {(key, "NoSchedule") for condition, key in PRESSURE_TAINTS.items() if condition_status(node, condition) == "True"}
    ready = condition_of(node, READY)
    if ready is None or ready["status"] == "False":
        wanted.add((NOT_READY, "NoSchedule"))
    elif ready["status"] == "Unknown":
        wanted.add((UNREACHABLE, "NoSchedule"))
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.add((UNSCHEDULABLE, "NoSchedule"))
    return wanted
