"""The pod garbage collector: the one part of Kubernetes that force-deletes pods by itself.

It takes terminating pods of a node that is not Ready *and* carries the out-of-service taint (a person vouches that it
is off), pods of a node that no longer exists, and terminating pods that were never scheduled. It looks every so
often, like the real one; that period is part of every recovery time.
"""

from __future__ import annotations

import asyncio
import logging

from simulator.client import ApiClient, ApiError, ApiUnreachableError
from simulator.informer import ClusterView
from simulator.objects import (
    OUT_OF_SERVICE,
    JsonObject,
    has_taint,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    node_of,
    uid_of,
)
from simulator.resources import NODES, PODS

log = logging.getLogger(__name__)


class PodGarbage:
    """Looks at all pods once in a period."""

    def __init__(self, client: ApiClient, view: ClusterView, *, period: float = 20.0, quarantine: float = 40.0) -> None:
        self._client = client
        self._view = view
        self._period = period
        self._quarantine = quarantine
        self._missing_since: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            lost = await self._lost_nodes()
            for pod in self._view.pods:
                if self._is_garbage(pod, lost):
                    try:
                        await self._collect(pod)
                    except (ApiError, ApiUnreachableError) as error:
                        log.info("pod garbage: %s: %s", key_of(pod), error)

    def _is_garbage(self, pod: JsonObject, lost: set[str]) -> bool:
        if not node_of(pod):
            return is_terminating(pod)
        if node_of(pod) in lost:
            return True
        node = self._view.nodes.get(node_of(pod))
        return node is not None and is_terminating(pod) and not is_ready(node) and has_taint(node, OUT_OF_SERVICE)

    async def _lost_nodes(self) -> set[str]:
        """Nodes that pods are bound to and that have been gone for the whole quarantine, asked for live at its end."""
        now = asyncio.get_running_loop().time()
        missing = {node_of(pod) for pod in self._view.pods if node_of(pod)} - self._view.nodes.objects.keys()
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        lost = set()
        for name, since in self._missing_since.items():
            if now - since < self._quarantine:
                continue
            try:
                await self._client.get(NODES.path(name))
            except ApiError as error:
                if error.not_found:
                    lost.add(name)
            except ApiUnreachableError as error:
                log.info("pod garbage: node %s: %s", name, error)
        return lost

    async def _collect(self, pod: JsonObject) -> None:
        path = PODS.path_of_key(key_of(pod))
        try:
            if not is_finished(pod):
                await self._client.patch(f"{path}/status", {"metadata": {"uid": uid_of(pod)}, "status": {"phase": "Failed"}})
            await self._client.delete(path, grace_seconds=0, uid=uid_of(pod))
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
