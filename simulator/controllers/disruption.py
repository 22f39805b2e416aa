"""The disruption controller: how many pods of each PodDisruptionBudget may be evicted right now.

The API server only spends `status.disruptionsAllowed` when it evicts; here it is earned. Pods that are not Ready count as
lost, which is why a dead node can make the drain of a healthy one impossible.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from simulator.client import ApiClient
from simulator.controllers.runtime import Controller, own_key
from simulator.informer import ClusterView, Informer
from simulator.objects import (
    JsonObject,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    namespace_of,
    selector_matches,
    uid_of,
)
from simulator.resources import DISRUPTION_BUDGETS

ReplicasOf = Callable[[JsonObject, str], int | None]


class Disruption(Controller):
    """Works per PodDisruptionBudget."""

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self._owners: dict[str, Informer] = {"StatefulSet": view.stateful_sets, "ReplicaSet": view.replica_sets}
        self.look_on(view.disruption_budgets, own_key)
        for informer in (view.pods, *self._owners.values()):
            self.look_on(informer, self._budgets_beside)

    async def reconcile(self, key: str) -> float | None:
        budget = self.view.disruption_budgets.get(key)
        if budget is None:
            return None
        status = budget_status(budget, list(self.view.pods), self._replicas)
        known = budget.get("status") or {}
        # An eviction that has led to a deletion is over; the API server only ever adds to this list.
        over = [name for name in known.get("disruptedPods") or () if not self._still_stands(f"{namespace_of(budget)}/{name}")]
        if over or any(known.get(field) != value for field, value in status.items()):
            status["disruptedPods"] = dict.fromkeys(over)
            path = DISRUPTION_BUDGETS.path_of_key(key, subresource="status")
            version = budget["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "status": status}
            self.view.disruption_budgets.remember(await self.client.patch(path, patch))
        return None

    def _still_stands(self, key: str) -> bool:
        pod = self.view.pods.get(key)
        return pod is not None and not is_terminating(pod)

    def _replicas(self, owner: JsonObject, namespace: str) -> int | None:
        """What the pod's controller wants to run; None if it is not known here."""
        informer = self._owners.get(owner["kind"])
        found = informer.get(f"{namespace}/{owner['name']}") if informer else None
        if found is None or uid_of(found) != owner["uid"]:
            return None
        return int(found["spec"].get("replicas", 1))

    def _budgets_beside(self, obj: JsonObject) -> list[str]:
        return [key_of(each) for each in self.view.disruption_budgets if namespace_of(each) == namespace_of(obj)]


def budget_status(budget: JsonObject, pods: list[JsonObject], replicas: ReplicasOf) -> JsonObject:
    """A percentage, and a maximum, count from what the owners want to run; a plain minimum needs only the pods there are."""
    spec, namespace = budget["spec"], namespace_of(budget)
    covered = [
        pod
        for pod in pods
        if namespace_of(pod) == namespace
        and selector_matches(spec.get("selector"), pod["metadata"].get("labels") or {})
        and not is_finished(pod)
    ]
    wanted = _wanted(covered, namespace, replicas)
    if "minAvailable" in spec:
        expected = len(covered) if isinstance(spec["minAvailable"], int) else wanted
        desired = _part(spec["minAvailable"], wanted)
    elif "maxUnavailable" in spec:
        expected, desired = wanted, max(0, wanted - _part(spec["maxUnavailable"], wanted))
    else:
        expected = desired = len(covered)
    healthy = sum(1 for pod in covered if is_ready(pod) and not is_terminating(pod))
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
    }


def _wanted(pods: list[JsonObject], namespace: str, replicas: ReplicasOf) -> int:
    counted: dict[str, int] = {}
    for pod in pods:
        owner = controller_of(pod)
        count = replicas(owner, namespace) if owner else None
        if owner and count is not None:
            counted[owner["uid"]] = count
        else:
            counted[uid_of(pod)] = 1
    return sum(counted.values())


def _part(value: int | str, whole: int) -> int:
    """Percentages are rounded up, for a minimum as for a maximum, as policy/v1 does."""
    return value if isinstance(value, int) else math.ceil(whole * int(value.rstrip("%")) / 100)
