"""The StatefulSet controller: numbered pods with their own volumes, and never two of one number.

The rule that makes fencing necessary is here: a member that is Terminating is *not* replaced until its object is gone
from the API, because until then it is not known whether it still runs. Rolling updates and revisions are left out.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re

from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, own_key, owner_key
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
    owner_reference,
    phase_of,
    uid_of,
)
from simulator.resources import CLAIMS, PODS


class StatefulSets(Controller):
    """Works per StatefulSet."""

    workers = 2

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self.look_on(view.stateful_sets, own_key)
        self.look_on(view.pods, owner_key("StatefulSet"))

    async def reconcile(self, key: str) -> float | None:
        stateful_set = self.view.stateful_sets.get(key)
        if stateful_set is None or is_terminating(stateful_set):
            return None
        members = self._members(stateful_set)
        await self._scale(stateful_set, members)
        await self._report(stateful_set)
        return None

    def _members(self, stateful_set: JsonObject) -> dict[int, JsonObject]:
        pattern = re.compile(re.escape(name_of(stateful_set)) + r"-(\d+)$")
        members = {}
        for pod in self.view.pods:
            matched = pattern.match(name_of(pod))
            owner = controller_of(pod) or {}
            if matched and namespace_of(pod) == namespace_of(stateful_set) and owner.get("uid") == uid_of(stateful_set):
                members[int(matched[1])] = pod
        return members

    async def _scale(self, stateful_set: JsonObject, members: dict[int, JsonObject]) -> None:
        replicas = stateful_set["spec"].get("replicas", 1)
        ordered = stateful_set["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        for ordinal in range(replicas):
            pod = members.get(ordinal)
            if pod is not None and is_finished(pod) and not is_terminating(pod):
                await self.client.delete(PODS.path_of_key(key_of(pod)), uid=uid_of(pod))
            if pod is None:
                await self._create(stateful_set, ordinal)
            if ordered and (pod is None or is_terminating(pod) or phase_of(pod) != "Running" or not is_ready(pod)):
                return
        for ordinal in sorted((each for each in members if each >= replicas), reverse=True):
            if not is_terminating(members[ordinal]):
                pod = members[ordinal]
                self.view.pods.remember(await self.client.delete(PODS.path_of_key(key_of(pod)), uid=uid_of(pod)))
            if ordered:
                return

    async def _create(self, stateful_set: JsonObject, ordinal: int) -> None:
        name = f"{name_of(stateful_set)}-{ordinal}"
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            claim = f"{name_of(template)}-{name}"
            if f"{namespace_of(stateful_set)}/{claim}" not in self.view.claims.objects:
                await self._create_claim(stateful_set, template, claim)
        pod = copy.deepcopy(stateful_set["spec"]["template"])
        pod["metadata"] = {
            "annotations": pod.get("metadata", {}).get("annotations") or {},
            "labels": {
                **(pod.get("metadata", {}).get("labels") or {}),
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
                "controller-revision-hash": f"{name_of(stateful_set)}-{template_hash(stateful_set)}",
            },
            "name": name,
            "namespace": namespace_of(stateful_set),
            "ownerReferences": [owner_reference(stateful_set)],
        }
        pod["spec"]["hostname"] = name
        pod["spec"]["subdomain"] = stateful_set["spec"].get("serviceName", "")
        volumes = pod["spec"].setdefault("volumes", [])
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            claim = f"{name_of(template)}-{name}"
            volumes.append({"name": name_of(template), "persistentVolumeClaim": {"claimName": claim}})
        body = {"apiVersion": "v1", "kind": "Pod", **pod}
        try:
            self.view.pods.remember(await self.client.create(PODS.path(namespace=namespace_of(stateful_set)), body))
        except ApiError as error:
            # The old object is still there: wait for the event that says it is gone.
            if not error.already_exists:
                raise

    async def _create_claim(self, stateful_set: JsonObject, template: JsonObject, name: str) -> None:
        namespace = namespace_of(stateful_set)
        labels = stateful_set["spec"]["selector"].get("matchLabels") or {}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": copy.deepcopy(template["spec"]),
        }
        try:
            self.view.claims.remember(await self.client.create(CLAIMS.path(namespace=namespace), body))
        except ApiError as error:
            if not error.already_exists:
                raise

    async def _report(self, stateful_set: JsonObject) -> None:
        members = [pod for pod in self._members(stateful_set).values() if not is_terminating(pod)]
        ready = sum(1 for pod in members if is_ready(pod))
        revision = f"{name_of(stateful_set)}-{template_hash(stateful_set)}"
        status = {
            "observedGeneration": stateful_set["metadata"].get("generation", 1),
            "replicas": len(members),
            "currentReplicas": len(members),
            "updatedReplicas": len(members),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentRevision": revision,
            "updateRevision": revision,
        }
        await self.report(self.view.stateful_sets, stateful_set, status)


def template_hash(owner: JsonObject) -> str:
    """Short and the same for the same pod template."""
    template = json.dumps(owner["spec"]["template"], sort_keys=True).encode()
    return hashlib.sha256(template).hexdigest()[:10]
