"""A cache of one collection of the API, kept by list and watch, that tells others about changes.

One set of informers serves all simulated kubelets and controllers of a process: two hundred kubelets with a watch
each would cost two hundred connections and show nothing more. It is a cache, therefore it may be behind; `remember`
lets a writer put the answer to its own write in at once, so that it does not act twice on what it has just changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from simulator.client import ApiClient, ChangeType, list_then_watch
from simulator.objects import JsonObject, claims_of, key_of, node_of
from simulator.resources import (
    ATTACHMENTS,
    CLAIMS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    LEASES,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUMES,
    Resource,
)

Listener = Callable[[JsonObject | None, JsonObject | None], None]
"""Called with the object before and after a change; None where there is none."""


class Informer:
    """The newest known objects of one collection by key, and a call for each change."""

    def __init__(self, client: ApiClient, resource: Resource, *, namespace: str = "") -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.live_since: float | None = None
        """When its watch began; None while that is lost."""
        self.objects: dict[str, JsonObject] = {}
        self._client = client
        self._namespace = namespace
        self._listeners: list[Listener] = []
        self._watched_version = 0

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def get(self, key: str) -> JsonObject | None:
        return self.objects.get(key)

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(list(self.objects.values()))

    def remember(self, obj: JsonObject) -> None:
        """Take the answer to one's own write, unless the watch has already told something newer."""
        known = self.objects.get(key_of(obj))
        version = _version(obj)
        if version > self._watched_version and (known is None or version > _version(known)):
            self._set(self._complete(obj))

    async def run(self) -> None:
        path = self.resource.path(namespace=self._namespace)
        async for change in list_then_watch(self._client, path, on_loss=self._lose):
            if change.type is ChangeType.REPLACED:
                self._replace(change.objects)
                self._watched_version = int(change.resource_version)
                self.live_since = asyncio.get_running_loop().time()
                self.synced.set()
                continue
            obj = self._complete(change.objects[0])
            self._watched_version = max(self._watched_version, _version(obj))
            if change.type is ChangeType.DELETED:
                self._remove(key_of(obj))
            elif _version(self.objects.get(key_of(obj))) < _version(obj):
                self._set(obj)

    def _lose(self) -> None:
        self.live_since = None

    def _replace(self, objects: Iterable[JsonObject]) -> None:
        fresh = {key_of(obj): self._complete(obj) for obj in objects}
        for key in self.objects.keys() - fresh.keys():
            self._remove(key)
        for key, obj in fresh.items():
            if _version(self.objects.get(key)) != _version(obj):
                self._set(obj)

    def _complete(self, obj: JsonObject) -> JsonObject:
        # Items of built-in lists carry neither; owner references and events need both.
        obj.setdefault("kind", self.resource.kind)
        obj.setdefault("apiVersion", self.resource.api_version)
        return obj

    def _set(self, obj: JsonObject) -> None:
        before = self.objects.get(key_of(obj))
        self.objects[key_of(obj)] = obj
        self._tell(before, obj)

    def _remove(self, key: str) -> None:
        before = self.objects.pop(key, None)
        if before is not None:
            self._tell(before, None)

    def _tell(self, before: JsonObject | None, after: JsonObject | None) -> None:
        for listener in self._listeners:
            listener(before, after)


def _version(obj: JsonObject | None) -> int:
    return int(obj["metadata"]["resourceVersion"]) if obj else 0


class Index:
    """Keys of an informer's objects by whatever a function says of them, e.g. pods by node."""

    def __init__(self, informer: Informer, terms: Callable[[JsonObject], Iterable[str]]) -> None:
        self._informer = informer
        self._terms = terms
        self._keys: dict[str, dict[str, None]] = {}
        informer.subscribe(self._changed)

    def __getitem__(self, term: str) -> list[JsonObject]:
        known = (self._informer.get(key) for key in list(self._keys.get(term, ())))
        return [obj for obj in known if obj is not None]

    def _changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if before is not None:
            for term in self._terms(before):
                self._keys[term].pop(key_of(before), None)
                if not self._keys[term]:
                    del self._keys[term]
        if after is not None:
            for term in self._terms(after):
                self._keys.setdefault(term, {})[key_of(after)] = None


class ClusterView:
    """The informers that the simulated kubelets and controllers share."""

    def __init__(self, client: ApiClient) -> None:
        self.nodes = Informer(client, NODES)
        self.leases = Informer(client, LEASES, namespace="kube-node-lease")
        self.pods = Informer(client, PODS)
        self.claims = Informer(client, CLAIMS)
        self.volumes = Informer(client, VOLUMES)
        self.storage_classes = Informer(client, STORAGE_CLASSES)
        self.attachments = Informer(client, ATTACHMENTS)
        self.stateful_sets = Informer(client, STATEFUL_SETS)
        self.deployments = Informer(client, DEPLOYMENTS)
        self.replica_sets = Informer(client, REPLICA_SETS)
        self.disruption_budgets = Informer(client, DISRUPTION_BUDGETS)
        # Indexes listen first, so that every other listener finds them up to date.
        self.pods_by_node = Index(self.pods, lambda pod: [node_of(pod)])
        self.pods_by_claim = Index(self.pods, claims_of)
        self.attachments_by_node = Index(self.attachments, lambda each: [each["spec"]["nodeName"]])
        self.attachments_by_volume = Index(self.attachments, lambda each: [_volume_of(each)])

    @property
    def informers(self) -> list[Informer]:
        return [each for each in vars(self).values() if isinstance(each, Informer)]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer {informer.resource.plural}")

    async def wait_until_synced(self) -> None:
        for informer in self.informers:
            await informer.synced.wait()

    def volumes_of(self, pod: JsonObject) -> list[JsonObject] | None:
        """The PersistentVolumes behind the pod's claims; None while one of them is not bound yet."""
        volumes = []
        for key in claims_of(pod):
            claim = self.claims.get(key)
            volume = self.volumes.get(claim["spec"].get("volumeName") or "") if claim else None
            if claim is None or volume is None or (claim.get("status") or {}).get("phase") != "Bound":
                return None
            volumes.append(volume)
        return volumes


class MachineView:
    """The informers of one system of Machines, beside those of the cluster; make it before those are run."""

    def __init__(self, client: ApiClient, view: ClusterView, *, machines: Resource, machine_sets: Resource) -> None:
        self.machines = Informer(client, machines)
        self.machine_sets = Informer(client, machine_sets)
        self.machines_by_provider_id = Index(self.machines, _provider_ids)
        self.nodes_by_provider_id = Index(view.nodes, _provider_ids)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.machines.run(), name="informer machines")
            group.create_task(self.machine_sets.run(), name="informer machine sets")

    async def wait_until_synced(self) -> None:
        await self.machines.synced.wait()
        await self.machine_sets.synced.wait()

    def node_of(self, machine: JsonObject) -> JsonObject | None:
        """The Node of a Machine's instance, whatever the Machine says of it."""
        found = [node for provider_id in _provider_ids(machine) for node in self.nodes_by_provider_id[provider_id]]
        return found[0] if found else None


def _provider_ids(obj: JsonObject) -> list[str]:
    provider_id = (obj.get("spec") or {}).get("providerID")
    return [str(provider_id)] if provider_id else []


def _volume_of(attachment: JsonObject) -> str:
    source: dict[str, Any] = attachment["spec"].get("source") or {}
    return str(source.get("persistentVolumeName") or "")
