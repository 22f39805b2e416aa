"""The Deployment and ReplicaSet controllers: so many equal pods, and a new one as soon as one is Terminating.

The opposite of `stateful_set.py` in the one point that matters here: these pods are replaced while it is not known
whether the old one still runs. A changed template scales the new ReplicaSet up and the old ones down at once; there
are no rollout strategies.
"""

from __future__ import annotations

import copy

from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, own_key, owner_key
from simulator.controllers.stateful_set import template_hash
from simulator.informer import ClusterView
from simulator.objects import (
    JsonObject,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    node_of,
    owner_reference,
    uid_of,
)
from simulator.resources import PODS, REPLICA_SETS


class ReplicaSets(Controller):
    """Works per ReplicaSet."""

    workers = 2

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self.look_on(view.replica_sets, own_key)
        self.look_on(view.pods, owner_key("ReplicaSet"))

    async def reconcile(self, key: str) -> float | None:
        replica_set = self.view.replica_sets.get(key)
        if replica_set is None or is_terminating(replica_set):
            return None
        active = self._active(replica_set)
        surplus = len(active) - replica_set["spec"].get("replicas", 1)
        for _ in range(-surplus):
            pod = self._new_pod(replica_set)
            self.view.pods.remember(await self.client.create(PODS.path(namespace=namespace_of(replica_set)), pod))
        if surplus > 0:
            # The ones that serve no client go first.
            active.sort(key=lambda pod: (is_ready(pod), bool(node_of(pod)), name_of(pod)))
            for pod in active[:surplus]:
                self.view.pods.remember(await self.client.delete(PODS.path_of_key(key_of(pod)), uid=uid_of(pod)))
        await self._report(replica_set)
        return None

    def _active(self, replica_set: JsonObject) -> list[JsonObject]:
        return [
            pod
            for pod in self.view.pods
            if (controller_of(pod) or {}).get("uid") == uid_of(replica_set) and not is_terminating(pod) and not is_finished(pod)
        ]

    def _new_pod(self, replica_set: JsonObject) -> JsonObject:
        template = copy.deepcopy(replica_set["spec"]["template"])
        metadata = template.get("metadata") or {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name_of(replica_set)}-",
                "namespace": namespace_of(replica_set),
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [owner_reference(replica_set)],
            },
            "spec": template["spec"],
        }

    async def _report(self, replica_set: JsonObject) -> None:
        active = self._active(replica_set)
        ready = sum(1 for pod in active if is_ready(pod))
        await self.report(
            self.view.replica_sets,
            replica_set,
            {
                "observedGeneration": replica_set["metadata"].get("generation", 1),
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": ready,
                "availableReplicas": ready,
            },
        )


class Deployments(Controller):
    """Works per Deployment."""

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self.look_on(view.deployments, own_key)
        self.look_on(view.replica_sets, owner_key("Deployment"))

    async def reconcile(self, key: str) -> float | None:
        deployment = self.view.deployments.get(key)
        if deployment is None or is_terminating(deployment):
            return None
        current = f"{name_of(deployment)}-{template_hash(deployment)}"
        owned = {
            name_of(each): each for each in self.view.replica_sets if (controller_of(each) or {}).get("uid") == uid_of(deployment)
        }
        if current not in owned:
            owned[current] = await self._create(deployment, current)
        for name, replica_set in owned.items():
            replicas = deployment["spec"].get("replicas", 1) if name == current else 0
            if replica_set["spec"].get("replicas", 1) != replicas:
                path = REPLICA_SETS.path_of_key(key_of(replica_set))
                self.view.replica_sets.remember(await self.client.patch(path, {"spec": {"replicas": replicas}}))
        counted = owned[current].get("status") or {}
        replicas, ready = counted.get("replicas", 0), counted.get("readyReplicas", 0)
        await self.report(
            self.view.deployments,
            deployment,
            {
                "observedGeneration": deployment["metadata"].get("generation", 1),
                "replicas": replicas,
                "updatedReplicas": replicas,
                "readyReplicas": ready,
                "availableReplicas": ready,
                "unavailableReplicas": max(0, deployment["spec"].get("replicas", 1) - ready),
            },
        )
        return None

    async def _create(self, deployment: JsonObject, name: str) -> JsonObject:
        template = copy.deepcopy(deployment["spec"]["template"])
        labels = {**(template["metadata"].get("labels") or {}), "pod-template-hash": template_hash(deployment)}
        template["metadata"]["labels"] = labels
        selector = copy.deepcopy(deployment["spec"]["selector"])
        selector.setdefault("matchLabels", {})["pod-template-hash"] = labels["pod-template-hash"]
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": namespace_of(deployment),
                "labels": labels,
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": deployment["spec"].get("replicas", 1),
                "selector": selector,
                "template": template,
            },
        }
        namespace = namespace_of(deployment)
        try:
            answer = await self.client.create(REPLICA_SETS.path(namespace=namespace), body)
        except ApiError as error:
            if not error.already_exists:
                raise
            answer = await self.client.get(REPLICA_SETS.path(name, namespace=namespace))
        self.view.replica_sets.remember(answer)
        return answer
