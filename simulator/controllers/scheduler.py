"""A small scheduler: binds pending pods to Ready nodes with taints that they tolerate, and spreads them over zones.

It knows what matters when nodes fail: cordons, taints, node selectors, control planes, one pod at a time on an
exclusive volume, an even spread. It does not know resources, affinities, priorities or preemption.
"""

from __future__ import annotations

from collections import Counter

from simulator.client import ApiClient
from simulator.controllers.runtime import Controller
from simulator.informer import ClusterView
from simulator.objects import (
    JsonObject,
    claims_of,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    node_of,
    taints_of,
    timestamp,
    tolerations_for,
    uid_of,
    zone_of,
)
from simulator.resources import PODS


class Scheduler(Controller):
    """Works per pending pod, one at a time, so that each sees where the one before it went."""

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self._assumed: dict[str, str] = {}
        """Nodes of pods (by uid) that were bound a moment ago and that the cache may not show yet."""
        view.pods.subscribe(self._pod_changed)
        view.nodes.subscribe(self._node_changed)
        self.look_on(view.claims, lambda claim: [key_of(pod) for pod in view.pods_by_claim[key_of(claim)]])

    async def reconcile(self, key: str) -> float | None:
        pod = self.view.pods.get(key)
        if pod is None or node_of(pod) or is_terminating(pod) or is_finished(pod) or uid_of(pod) in self._assumed:
            return None
        if pod["spec"].get("schedulerName", "default-scheduler") != "default-scheduler":
            return None
        if self.view.volumes_of(pod) is None or self._waits_for_exclusive_volume(pod):
            return None
        fitting = [node for node in self.view.nodes if _fits(pod, node)]
        if not fitting:
            await self._say_unschedulable(pod)
            return None
        await self._bind(pod, name_of(self._best(pod, fitting)))
        return None

    def _waits_for_exclusive_volume(self, pod: JsonObject) -> bool:
        for claim_key in claims_of(pod):
            claim = self.view.claims.get(claim_key)
            if claim and "ReadWriteOncePod" in claim["spec"].get("accessModes", ()):
                others = self.view.pods_by_claim[claim_key]
                if any(node_of(each) and not is_finished(each) for each in others if uid_of(each) != uid_of(pod)):
                    return True
        return False

    def _best(self, pod: JsonObject, nodes: list[JsonObject]) -> JsonObject:
        """The zone with the fewest siblings, then the node with the fewest siblings, then with the fewest pods."""
        owner = (controller_of(pod) or {}).get("uid")
        zones = {name_of(node): zone_of(node) for node in self.view.nodes}
        load: Counter[str] = Counter()
        siblings: Counter[str] = Counter()
        sibling_zones: Counter[str] = Counter()
        for each in self.view.pods:
            node = node_of(each) or self._assumed.get(uid_of(each), "")
            if not node or is_finished(each):
                continue
            load[node] += 1
            if owner and (controller_of(each) or {}).get("uid") == owner:
                siblings[node] += 1
                sibling_zones[zones.get(node, "")] += 1
        return min(
            nodes,
            key=lambda node: (
                sibling_zones[zone_of(node)],
                siblings[name_of(node)],
                load[name_of(node)],
                name_of(node),
            ),
        )

    async def _bind(self, pod: JsonObject, node: str) -> None:
        self._assumed[uid_of(pod)] = node
        try:
            await self.client.create(
                PODS.path_of_key(key_of(pod), subresource="binding"),
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                },
            )
        except BaseException:
            del self._assumed[uid_of(pod)]
            raise

    async def _say_unschedulable(self, pod: JsonObject) -> None:
        conditions = (pod.get("status") or {}).get("conditions") or []
        if any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/{len(self.view.nodes.objects)} nodes are available",
            "lastTransitionTime": timestamp(),
        }
        others = [each for each in conditions if each["type"] != "PodScheduled"]
        version = pod["metadata"]["resourceVersion"]
        await self.client.patch(
            PODS.path_of_key(key_of(pod), subresource="status"),
            {"metadata": {"resourceVersion": version}, "status": {"conditions": [*others, condition]}},
        )

    def _pod_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is None or node_of(after):
            self._assumed.pop(uid_of(after or before or {"metadata": {}}), None)
        if after is None:
            # Room, or an exclusive volume, may have become free.
            self._look_at_pending()
        elif not node_of(after):
            self.queue.add(key_of(after))

    def _node_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is not None and (before is None or _offer(before) != _offer(after)):
            self._look_at_pending()

    def _look_at_pending(self) -> None:
        for pod in self.view.pods_by_node[""]:
            self.queue.add(key_of(pod))


def _fits(pod: JsonObject, node: JsonObject) -> bool:
    if is_terminating(node) or not is_ready(node) or (node["spec"] or {}).get("unschedulable"):
        return False
    if any(not tolerations_for(pod, taint) for taint in taints_of(node, "NoSchedule", "NoExecute")):
        return False
    labels = node["metadata"].get("labels") or {}
    selector = pod["spec"].get("nodeSelector") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def _offer(node: JsonObject) -> tuple[object, ...]:
    """What of a node decides where pods fit."""
    return is_ready(node), taints_of(node), (node.get("spec") or {}).get("unschedulable"), node["metadata"].get("labels")
