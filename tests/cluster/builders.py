"""Small honest builders of API objects, and waiting on conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.client import ApiClient
from tests.cluster.skipping import now
from tests.documents import document
from tests.patience import PATIENCE
from tests.policy.builders import confirmed

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


TEMPLATE = {
    "apiVersion": "nodewarden.io/v1alpha1",
    "kind": "FencingTemplate",
    "metadata": {"name": "default"},
    "spec": {"template": {"spec": {"power": [{"driver": "ipmi", "parameters": {"ip": "192.0.2.9"}}]}}},
}
"""What the checks of these tests name."""


def templates(namespace: str = "nodewarden", plural: str = "fencingtemplates") -> str:
    return f"/apis/nodewarden.io/v1alpha1/namespaces/{namespace}/{plural}"


async def with_templates(person: ApiClient, *namespaces: str) -> None:
    """The kind of our templates, these namespaces, and in each the template that checks name."""
    await person.create(DEFINITIONS, document("deploy/crds/fencingtemplates.nodewarden.io.yaml"))
    for namespace in namespaces:
        await person.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await person.create(templates(namespace), TEMPLATE)


async def with_template_of(person: ApiClient, reference: Mapping[str, str], *, namespace: str = "") -> None:
    """The kind of another controller's template, and the one that is named; where the check lives, if it says no namespace."""
    from tests.cluster.test_preserving import definition as definition_of

    (group, version), kind = reference["apiVersion"].split("/"), reference["kind"]
    await person.create(DEFINITIONS, definition_of(kind, group=group, served=version))
    path = f"/apis/{group}/{version}/namespaces/{namespace or reference['namespace']}/{kind.lower()}s"
    await person.create(path, of_kind(kind, path, name=reference["name"], spec={"template": {"spec": {}}}))


def of_kind(kind: str, path: str, *, name: str = "", spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A custom resource that is posted to that path: a server takes none that does not say what it is."""
    version = "/".join(path.split("/")[2:4])
    return {"apiVersion": version, "kind": kind, "metadata": {**({"name": name} if name else {}), **metadata}, "spec": spec or {}}


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
    async with asyncio.timeout(seconds * PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)
