"""What a simulated kubelet does with the pods bound to its node.

Starts them once their volumes are attached here, reports them Running, stops and finally deletes them when they
terminate, and kills containers of pods that have vanished from the API. One short task per pod at a time, as the real
kubelet has pod workers. It decides nothing about where pods belong; that is `controllers/`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from simulator.client import ApiClient, ApiError, ApiUnreachableError, PatchType
from simulator.containers import Container, Containers, MountedVolume
from simulator.informer import ClusterView
from simulator.objects import (
    JsonObject,
    attached_volume_name,
    condition_of,
    is_finished,
    is_ready,
    is_single_writer,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    timestamp,
    uid_of,
)
from simulator.resources import NODES, PODS

log = logging.getLogger(__name__)


class PodWorkers:
    """The pods of one kubelet process."""

    def __init__(
        self,
        *,
        node: str,
        address: str,
        timings: tuple[float, float],
        can_run: Callable[[], bool],
        client: ApiClient,
        view: ClusterView,
        containers: Containers,
    ) -> None:
        self._node = node
        self._address = address
        self._start_seconds, self._stop_seconds = timings
        self._can_run = can_run
        self._client = client
        self._view = view
        self._containers = containers
        self._awake = asyncio.Event()
        self._busy: set[str] = set()
        self._deleted: set[str] = set()
        """Pods with their final deletion sent: the cache may show them a little longer."""
        self._reported_volumes: set[str] | None = None

    def wake(self) -> None:
        self._awake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._awake.clear()
                if self._can_run():
                    await self._report_volumes()
                    self._give_work(group)
                await self._awake.wait()

    def _give_work(self, group: asyncio.TaskGroup) -> None:
        pods = {uid_of(pod): pod for pod in self._view.pods_by_node[self._node]}
        self._deleted &= pods.keys()
        for container in self._containers:
            if container.pod_uid not in pods:
                self._work(group, container.pod_uid, self._kill(container))
        for uid, pod in pods.items():
            if uid not in self._busy and uid not in self._deleted and (work := self._next(pod)) is not None:
                self._work(group, uid, work)

    def _work(self, group: asyncio.TaskGroup, uid: str, work: Coroutine[Any, Any, None]) -> None:
        if uid in self._busy:
            work.close()
            return
        self._busy.add(uid)
        group.create_task(self._supervise(uid, work), name=f"pod {uid} on {self._node}")

    async def _supervise(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ApiError, ApiUnreachableError) as error:
            log.info("pod %s on %s: %s", uid, self._node, error)
            await asyncio.sleep(random.uniform(0.1, 0.3))
        finally:
            self._busy.discard(uid)
            self.wake()

    def _next(self, pod: JsonObject) -> Coroutine[Any, Any, None] | None:
        container = self._containers.get(uid_of(pod))
        if is_terminating(pod):
            return self._terminate(pod)
        if is_finished(pod):
            return self._kill(container) if container else None
        if container is None:
            volumes = self._mountable(pod)
            return None if volumes is None else self._start(pod, volumes)
        if phase_of(pod) != "Running" or not is_ready(pod):
            return self._report_running(pod, container)
        return None

    # Volumes -----------------------------------------------------------------------------------------------------------------

    async def _report_volumes(self) -> None:
        """`volumesInUse` before the mount and until after the unmount: the attach/detach controller relies on it."""
        wanted = set(self._containers.mounted)
        for pod in self._view.pods_by_node[self._node]:
            if not is_finished(pod) and not is_terminating(pod):
                wanted |= {attached_volume_name(volume) for volume in self._view.volumes_of(pod) or ()}
        if wanted == self._reported_volumes:
            return
        path = NODES.path(self._node, subresource="status")
        try:
            self._view.nodes.remember(await self._client.patch(path, {"status": {"volumesInUse": sorted(wanted)}}))
            self._reported_volumes = wanted
        except (ApiError, ApiUnreachableError) as error:
            log.info("volumes in use of %s: %s", self._node, error)
            asyncio.get_running_loop().call_later(random.uniform(0.2, 0.4), self.wake)

    def _mountable(self, pod: JsonObject) -> tuple[MountedVolume, ...] | None:
        """The pod's volumes if every one of them is attached to this node and free here, else None: it must wait."""
        volumes = self._view.volumes_of(pod)
        if volumes is None:
            return None
        attached = {
            attachment["spec"]["source"].get("persistentVolumeName")
            for attachment in self._view.attachments_by_node[self._node]
            if (attachment.get("status") or {}).get("attached") and not is_terminating(attachment)
        }
        mounted = tuple(
            MountedVolume(
                name=name_of(volume),
                attached_name=attached_volume_name(volume),
                single_writer=is_single_writer(volume),
                exclusive=volume["spec"].get("accessModes") == ["ReadWriteOncePod"],
            )
            for volume in volumes
        )
        for volume in mounted:
            if volume.name not in attached or volume.attached_name not in (self._reported_volumes or ()):
                return None
            if volume.exclusive and volume.attached_name in self._containers.mounted:
                return None
        return mounted

    # The life of a pod -------------------------------------------------------------------------------------------------------

    async def _start(self, pod: JsonObject, volumes: tuple[MountedVolume, ...]) -> None:
        await asyncio.sleep(self._start_seconds * random.uniform(0.5, 1.0))
        # Live, not from the cache: a pod deleted while this node was away must never come back to life.
        try:
            live = await self._client.get(PODS.path_of_key(key_of(pod)))
        except ApiError as error:
            if error.not_found:
                return
            raise
        if uid_of(live) != uid_of(pod) or is_terminating(live) or is_finished(live) or node_of(live) != self._node:
            return
        if self._mountable(pod) != volumes:
            return
        container = self._containers.start(pod=key_of(pod), pod_uid=uid_of(pod), volumes=volumes)
        await self._report_running(live, container, started=True)

    async def _report_running(self, pod: JsonObject, container: Container, *, started: bool = False) -> None:
        now = timestamp()
        ran_before = bool((pod.get("status") or {}).get("containerStatuses"))
        statuses = [
            self._container_status(pod, each, {"running": {"startedAt": timestamp(container.started)}}, started, ran_before)
            for each in pod["spec"]["containers"]
        ]
        conditions = []
        for condition_type in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled"):
            before = condition_of(pod, condition_type)
            unchanged = before is not None and before["status"] == "True"
            since = before["lastTransitionTime"] if before and unchanged else now
            conditions.append({"type": condition_type, "status": "True", "lastTransitionTime": since})
        await self._patch_status(
            pod,
            {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": statuses,
                "hostIP": self._address,
                "podIP": _pod_address(uid_of(pod)),
                "podIPs": [{"ip": _pod_address(uid_of(pod))}],
                "startTime": (pod.get("status") or {}).get("startTime") or now,
            },
        )

    async def _terminate(self, pod: JsonObject) -> None:
        container = self._containers.get(uid_of(pod))
        if container is not None:
            grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
            await asyncio.sleep(min(self._stop_seconds * random.uniform(0.5, 1.0), float(grace)))
            await self._kill(container)
            ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": timestamp()}}
            statuses = [
                self._container_status(pod, each, ended, started=False, ran_before=True) for each in pod["spec"]["containers"]
            ]
            conditions = [
                {"type": condition_type, "status": "False", "lastTransitionTime": timestamp()}
                for condition_type in ("Ready", "ContainersReady")
            ]
            await self._patch_status(pod, {"conditions": conditions, "containerStatuses": statuses})
        try:
            await self._client.delete(PODS.path_of_key(key_of(pod)), grace_seconds=0, uid=uid_of(pod))
        except ApiError as error:
            # Gone, or already another pod of that name: in both cases ours is deleted.
            if not error.not_found and not error.conflict:
                raise
        self._deleted.add(uid_of(pod))

    async def _kill(self, container: Container) -> None:
        self._containers.kill(container.pod_uid)

    async def _patch_status(self, pod: JsonObject, status: JsonObject) -> None:
        path = PODS.path(name_of(pod), namespace=namespace_of(pod), subresource="status")
        patch = {"metadata": {"uid": uid_of(pod)}, "status": status}
        self._view.pods.remember(await self._client.patch(path, patch, patch_type=PatchType.STRATEGIC_MERGE))

    def _container_status(
        self, pod: JsonObject, container: JsonObject, state: JsonObject, started: bool, ran_before: bool
    ) -> JsonObject:
        known = {each["name"]: each for each in (pod.get("status") or {}).get("containerStatuses") or ()}
        restarts = int(known.get(container["name"], {}).get("restartCount", 0)) + (1 if started and ran_before else 0)
        running = "running" in state
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "containerID": f"containerd://{uid_of(pod)}",
            "ready": running,
            "started": running,
            "restartCount": restarts,
            "state": state,
        }


def _pod_address(uid: str) -> str:
    number = int(uid.replace("-", "")[:6], 16)
    return f"10.{128 + (number >> 16) % 64}.{(number >> 8) % 256}.{number % 256}"
