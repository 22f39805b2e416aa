"""The taint eviction controller: pods that do not tolerate a NoExecute taint of their node are deleted.

A plain API delete with the pod's own grace: on a dead node nothing finishes it, and the pod stays Terminating. That is
the state from which fencing has to lead out.
"""

from __future__ import annotations

import asyncio

from simulator.client import ApiClient, ApiError, PatchType
from simulator.controllers.runtime import Controller
from simulator.informer import ClusterView
from simulator.objects import (
    NOT_READY,
    UNREACHABLE,
    JsonObject,
    is_terminating,
    key_of,
    name_of,
    node_of,
    taints_of,
    timestamp,
    tolerations_for,
    uid_of,
)
from simulator.resources import PODS


class TaintEviction(Controller):
    """Deletes a pod when the shortest of its tolerations has run out."""

    workers = 4

    def __init__(self, client: ApiClient, view: ClusterView, *, default_toleration_seconds: float = 300.0) -> None:
        super().__init__(client, view)
        self._default = default_toleration_seconds
        self._since: dict[str, float] = {}
        """When each pod (by uid) began to stand under a NoExecute taint."""
        view.pods.subscribe(self._pod_changed)
        view.nodes.subscribe(self._node_changed)

    async def reconcile(self, key: str) -> float | None:
        pod = self.view.pods.get(key)
        if pod is None or is_terminating(pod):
            return None
        node = self.view.nodes.get(node_of(pod))
        taints = taints_of(node, "NoExecute") if node else []
        patience = self._patience(pod, taints)
        if patience is None:
            self._since.pop(uid_of(pod), None)
            return None
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault(uid_of(pod), now) + patience - now
        if left > 0:
            return left
        await self._evict(pod)
        return None

    def _patience(self, pod: JsonObject, taints: list[JsonObject]) -> float | None:
        """Seconds the pod may stay under these taints; None: for ever."""
        shortest: float | None = None
        for taint in taints:
            tolerations = tolerations_for(pod, taint)
            if not tolerations and taint["key"] in {NOT_READY, UNREACHABLE}:
                # Admission gives every pod these two tolerations; a server without that plugin must not evict faster.
                seconds: float | None = self._default
            elif not tolerations:
                return 0.0
            else:
                limits = [float(each["tolerationSeconds"]) for each in tolerations if "tolerationSeconds" in each]
                seconds = max(0.0, min(limits)) if limits else None
            if seconds is not None:
                shortest = seconds if shortest is None else min(shortest, seconds)
        return shortest

    async def _evict(self, pod: JsonObject) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "the pod does not tolerate a NoExecute taint of its node",
            "lastTransitionTime": timestamp(),
        }
        try:
            await self.client.patch(
                PODS.path_of_key(key_of(pod), subresource="status"),
                {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [condition]}},
                patch_type=PatchType.STRATEGIC_MERGE,
            )
            await self.client.delete(PODS.path_of_key(key_of(pod)), uid=uid_of(pod))
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    def _pod_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is None:
            assert before is not None
            self._since.pop(uid_of(before), None)
        elif node_of(after):
            self.queue.add(key_of(after))

    def _node_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is not None and (before is None or taints_of(before, "NoExecute") != taints_of(after, "NoExecute")):
            for pod in self.view.pods_by_node[name_of(after)]:
                self.queue.add(key_of(pod))
