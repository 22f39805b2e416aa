"""The objects of that night's cluster, and of larger ones, read as `nodewarden evaluate` reads files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.cluster.watch.offline import ClusterSnapshot
from policy.episode.messages import Kind, Phase, episode_id
from policy.objects.marks import Mark, digest_of
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL
from policy.values.times import written
from tests.web.night import CLUSTER, NOW, OPEN, SICK, ZONES, ago, pool, zone

RACKS = 10
WELL = ("True", 40 * 24 * 3600)
NOT_READY = {number: (ready, seconds) for number, ready, seconds, _ in SICK} | {16: ("False", 120)}
CORDONED = {number for number, _, _, cordoned in SICK if cordoned} | {20}
MARKED = {each.node: each for each in OPEN if each.kind is not Kind.PRESERVATION and each.phase is not Phase.QUEUED}


def health_check(name: str, *, minimum: str = "51%", wait: str = "5m", of: str = "") -> dict[str, Any]:
    """of: the pool, if it is not the one of that name."""
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": written(ago(days=90))},
        "spec": {
            "selector": {"matchLabels": {"pool": of or name}},
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


def _held(number: int) -> dict[str, dict[str, str]]:
    """Metadata of a node whose episode has marked it."""
    held = MARKED.get(f"node-{number}")
    if held is None:
        return {"annotations": {}, "labels": {}}
    mark = Mark(incident=held.incident, kind=held.kind.value, workflow_id=episode_id(CLUSTER, held.node), cordoned=True).to_json()
    return {"annotations": {MARK_ANNOTATION: mark}, "labels": {MARK_LABEL: digest_of(mark)}}


def node(number: int, now: datetime = NOW) -> dict[str, Any]:
    name, held = f"node-{number}", _held(number)
    status, seconds = NOT_READY.get(number, WELL)
    since = written(now - timedelta(seconds=seconds))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": written(ago(days=40)),
            "annotations": held["annotations"],
            "labels": {
                "pool": pool(number),
                "topology.kubernetes.io/zone": zone(number),
                "rack": f"rack-{number // ZONES % RACKS}",
                "karpenter.sh/nodepool": pool(number),
                **held["labels"],
            },
        },
        "spec": {"unschedulable": number in CORDONED},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": status,
                    "lastTransitionTime": since,
                    "reason": "KubeletReady" if status == "True" else "NodeStatusUnknown",
                },
                {"type": "MemoryPressure", "status": "False", "lastTransitionTime": since},
            ]
        },
    }


def objects(count: int, now: datetime) -> Iterator[dict[str, Any]]:
    yield health_check("workers")
    yield health_check("gpu")
    for number in range(1, count + 1):
        yield node(number, now)


class NightCluster:
    """Reads it anew each time that it is asked, and counts how often. now: as it is then; None: it is always that late."""

    def __init__(self, count: int = 24, now: datetime | None = None) -> None:
        self.count = count
        self.now = now
        self.asked = 0
        self.opens: asyncio.Event | None = None
        """Until when it does not answer."""

    async def __call__(self, cluster: str) -> ClusterSnapshot:
        self.asked += 1
        if self.opens is not None:
            await self.opens.wait()
        now = self.now or datetime.now(UTC)
        found = ClusterSnapshot(now, sees_all_nodes=False)
        for each in objects(self.count, now):
            found.put(each, cluster)
        found.finish()
        return found
