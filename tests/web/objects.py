"""The objects of that night's cluster, and of larger ones, read as `nodewarden evaluate` reads files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from activities.cluster.watch.offline import OfflineCluster
from policy.values.moments import written
from tests.web.night import NOW, ago

ZONES, RACKS = 3, 10
SICK = {"node-9": ("Unknown", 23), "node-7": ("Unknown", 4), "node-12": ("False", 3), "node-15": ("Unknown", 10)}
SOON = {"node-16": ("False", 2)}
CORDONED = {"node-7", "node-9", "node-20"}


def health_check(name: str, *, minimum: str = "51%", pool: str = "", wait: str = "5m") -> dict[str, Any]:
    labels = {"pool": pool} if pool else {}
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": written(ago(days=90))},
        "spec": {
            "selector": {"matchLabels": labels} if labels else {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
            "minHealthy": minimum,
            "unhealthyConditions": [{"type": "Ready", "status": status, "duration": wait} for status in ("False", "Unknown")],
            "remediationTemplate": {
                "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
                "kind": "SelfNodeRemediationTemplate",
                "namespace": "openshift-operators",
                "name": "automatic",
            },
        },
    }


def node(number: int, *, pool: str = "workers") -> dict[str, Any]:
    name = f"node-{number}"
    status, minutes = {**SICK, **SOON}.get(name, ("True", 60 * 24 * 40))
    since = written(ago(minutes=minutes))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": written(ago(days=40)),
            "labels": {
                "pool": pool,
                "topology.kubernetes.io/zone": f"zone-{'abc'[number % ZONES]}",
                "rack": f"rack-{number // ZONES % RACKS}",
                "karpenter.sh/nodepool": pool,
            },
        },
        "spec": {"unschedulable": name in CORDONED},
        "status": {
            "conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": since, "reason": "KubeletReady"},
                {"type": "MemoryPressure", "status": "False", "lastTransitionTime": since},
            ]
        },
    }


def objects(count: int = 24) -> Iterator[dict[str, Any]]:
    yield health_check("workers")
    yield health_check("gpu", pool="gpu")
    for number in range(1, count + 1):
        yield node(number, pool="gpu" if number in {12, 15, 16, 21} else "workers")


class NightCluster:
    """Reads it anew each time that it is asked, and counts how often."""

    def __init__(self, count: int = 24, now: datetime = NOW) -> None:
        self.count = count
        self.now = now
        self.asked = 0

    async def __call__(self, cluster: str) -> OfflineCluster:
        self.asked += 1
        found = OfflineCluster(self.now, sees_all_nodes=False)
        for each in objects(self.count):
            found.put(each, cluster)
        found.finish()
        return found
