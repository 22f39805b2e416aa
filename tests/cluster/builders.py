"""Small honest builders of API objects, and waiting on conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.skipping import now
from tests.documents import document
from tests.marks import confirmed

NODES = "/api/v1/nodes"
CHECKS = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(ready: str = "True", since: datetime | None = None) -> list[dict[str, Any]]:
    moment = stamp(since or now() - timedelta(hours=1))
    return [{"type": "Ready", "status": ready, "lastTransitionTime": moment, "lastHeartbeatTime": moment, "reason": "Test"}]


def node(name: str, ready: str = "True", since: datetime | None = None, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "zone-a", **confirmed(annotations)},
            "annotations": dict(annotations),
        },
        "spec": {"providerID": f"sim:///{name}"},
        "status": {"conditions": conditions(ready, since), "nodeInfo": {"bootID": f"boot-{name}", "systemUUID": f"uuid-{name}"}},
    }


def owner(kind: str, name: str = "set", *, api_version: str = "x.io/v1", uid: str = "u") -> dict[str, Any]:
    """The owner reference of a controller."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def definition() -> dict[str, Any]:
    return document("simulator/crds/nodehealthchecks.yaml")


def check(name: str = "workers", duration: str = "300s", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]},
            "minHealthy": "51%",
            "unhealthyConditions": [
                {"type": "Ready", "status": "False", "duration": duration},
                {"type": "Ready", "status": "Unknown", "duration": duration},
            ],
            "remediationTemplate": {
                "apiVersion": "nodewarden.io/v1alpha1",
                "kind": "FencingTemplate",
                "name": "default",
                "namespace": "nodewarden",
            },
            **spec,
        },
    }


async def until(condition: Callable[[], object], seconds: float = 2.5) -> None:
    """Wait until the condition holds; a bounded wait on a fact, not a sleep of a guessed length."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
