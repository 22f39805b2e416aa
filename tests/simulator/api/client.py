"""A bare HTTP client and small objects for the tests of the simulated API server; it shares nothing with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

Document = dict[str, Any]

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = f"{NAMESPACES}/default/configmaps"
PODS = f"{NAMESPACES}/default/pods"
EVENTS = f"{NAMESPACES}/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    raw: bytes
    headers: dict[str, str]

    @property
    def document(self) -> Document:
        document: Document = orjson.loads(self.raw)
        return document

    @property
    def metadata(self) -> Document:
        metadata: Document = self.document["metadata"]
        return metadata

    @property
    def version(self) -> str:
        return str(self.metadata["resourceVersion"])

    @property
    def reason(self) -> str:
        return str(self.document["reason"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.document["items"]]


@dataclass(slots=True, kw_only=True)
class Events:
    """An open watch, read line by line with a deadline."""

    response: aiohttp.ClientResponse
    seen: list[tuple[str, str]] = field(default_factory=list)

    async def next(self, seconds: float = 5) -> Document:
        async with asyncio.timeout(seconds):
            line = await self.response.content.readline()
        if not line:
            raise EOFError("the watch has ended")
        event: Document = orjson.loads(line)
        return event

    async def told(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


class Client:
    """One person or program with a token."""

    def __init__(self, url: str, session: aiohttp.ClientSession, token: str) -> None:
        self.url = url
        self.session = session
        self.token = token

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        agent: str = "tests",
        raw: bytes | None = None,
    ) -> Answer:
        data = raw if raw is not None else None if body is None else orjson.dumps(body)
        headers = {"Content-Type": kind, "Accept": accept, "User-Agent": agent, "Accept-Encoding": "identity"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with asyncio.timeout(20), self.session.request(method, self.url + path, data=data, headers=headers) as got:
            return Answer(status=got.status, raw=await got.read(), headers=dict(got.headers))

    async def get(self, path: str, accept: str = "application/json") -> Answer:
        return await self.ask("GET", path, accept=accept)

    async def post(self, path: str, body: Any) -> Answer:
        return await self.ask("POST", path, body)

    async def put(self, path: str, body: Any) -> Answer:
        return await self.ask("PUT", path, body)

    async def patch(self, path: str, body: Any, kind: str = MERGE) -> Answer:
        return await self.ask("PATCH", path, body, kind=kind)

    async def delete(self, path: str, body: Any = None) -> Answer:
        return await self.ask("DELETE", path, body)

    async def made(self, path: str, body: Any) -> Document:
        """Create what a test needs; anything but 201 is a broken test."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer.raw
        return answer.document

    @asynccontextmanager
    async def watch(
        self, path: str, query: str = "", *, agent: str = "tests", accept: str = "application/json"
    ) -> AsyncIterator[Events]:
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": agent, "Accept": accept}
        sign = "&" if "?" in path else "?"
        whole = f"{self.url}{path}{sign}watch=true{query}"
        async with self.session.get(whole, headers=headers, timeout=aiohttp.ClientTimeout(total=30)) as response:
            yield Events(response=response)


def named(kind: str, name: str, api_version: str = "v1", /, **metadata: Any) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def config_map(name: str, data: dict[str, str] | None = None, /, **metadata: Any) -> Document:
    return {**named("ConfigMap", name, **metadata), "data": data or {"key": "value"}}


def node(name: str, ready: str = "True", /, **metadata: Any) -> Document:
    conditions = [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "False"}]
    return {**named("Node", name, **metadata), "spec": {}, "status": {"conditions": conditions}}


def pod(name: str, on: str | None = None, /, **metadata: Any) -> Document:
    spec: Document = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
    if on is not None:
        spec["nodeName"] = on
    return {**named("Pod", name, **metadata), "spec": spec}


def lease(name: str, holder: str) -> Document:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {**named("Lease", name, "coordination.k8s.io/v1"), "spec": spec}


def budget(name: str, labels: dict[str, str], /, **spec: Any) -> Document:
    selector = {"selector": {"matchLabels": labels}}
    return {**named("PodDisruptionBudget", name, "policy/v1"), "spec": {**spec, **selector}}


def stateful_set(name: str, replicas: int = 1) -> Document:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    spec = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": labels}, "template": template}
    return {**named("StatefulSet", name, "apps/v1"), "spec": spec}


def definition(schema: Document | None = None, *, status: bool = True, scope: str = "Namespaced") -> Document:
    """A CustomResourceDefinition of gadgets."""
    version: Document = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or GADGET_SCHEMA},
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        ],
    }
    if status:
        version["subresources"] = {"status": {}}
    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "shortNames": ["gd"]}
    spec = {"group": "example.org", "scope": scope, "names": names, "versions": [version]}
    return {**named("CustomResourceDefinition", "gadgets.example.org", "apiextensions.k8s.io/v1"), "spec": spec}


GADGET_SCHEMA: Document = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["owner"],
            "properties": {
                "owner": {"type": "string", "minLength": 1},
                "size": {"type": "integer", "default": 3, "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["Slow", "Fast"]},
                "share": {"x-kubernetes-int-or-string": True},
                "wait": {"type": "string", "pattern": "^[0-9]+s$"},
                "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "maxItems": 3,
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                    },
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
GADGETS = "/apis/example.org/v1/namespaces/default/gadgets"


def gadget(name: str, /, **spec: Any) -> Document:
    return {**named("Gadget", name, "example.org/v1"), "spec": {"owner": "somebody", **spec}}
