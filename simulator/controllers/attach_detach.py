"""The attach/detach controller: a VolumeAttachment for every volume of every scheduled pod, and no other.

The rules that fencing lives by are kept as in kube-controller-manager: a single-writer volume is attached nowhere
else while any other attachment exists; a volume that a node still reports as in use is detached only if the node
carries the out-of-service taint, or if it is not Ready and the maximum wait is over, the force detach that happens
whether or not the machine is off. What an attachment means to the storage is `csi_attacher.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging

from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, own_key
from simulator.informer import ClusterView
from simulator.objects import (
    ATTACHED_BY_CONTROLLER,
    OUT_OF_SERVICE,
    JsonObject,
    attached_volume_name,
    claims_of,
    has_taint,
    is_finished,
    is_ready,
    is_single_writer,
    is_terminating,
    name_of,
    node_of,
    uid_of,
)
from simulator.resources import ATTACHMENTS, NODES

log = logging.getLogger(__name__)


class AttachDetach(Controller):
    """Works per PersistentVolume."""

    workers = 4

    def __init__(
        self, client: ApiClient, view: ClusterView, *, max_wait: float = 360.0, force_detach_on_timeout: bool = True
    ) -> None:
        super().__init__(client, view)
        self._max_wait = max_wait
        self._force_on_timeout = force_detach_on_timeout
        self._unwanted_since: dict[str, float] = {}
        """When each attachment (by uid) was first found to be wanted by no pod."""
        self._last_in_use: dict[str, set[str]] = {}
        """`volumesInUse` of nodes as last heard, also of nodes that are gone."""
        self.force_detached: list[str] = []
        """Volumes detached although the node still used them, for later questions."""
        view.nodes.subscribe(self._note_volumes_in_use)
        self.look_on(view.nodes, self._attached_to)
        self.look_on(view.pods, self._used_by)
        self.look_on(view.claims, lambda claim: [claim["spec"].get("volumeName") or ""])
        self.look_on(view.attachments, volume_of_attachment)

    async def reconcile(self, key: str) -> float | None:
        volume = self.view.volumes.get(key)
        attachments = self.view.attachments_by_volume[key]
        wanted = self._wanted_nodes(key)
        waits: list[float] = []
        for attachment in attachments:
            if attachment["spec"]["nodeName"] in wanted:
                self._unwanted_since.pop(uid_of(attachment), None)
            elif not is_terminating(attachment):
                wait = await self._detach(attachment, volume)
                waits += [] if wait is None else [wait]
        if volume is not None and not is_terminating(volume):
            await self._attach(volume, wanted, attachments)
        return min(waits, default=None)

    def _wanted_nodes(self, volume: str) -> list[str]:
        known = self.view.volumes.get(volume)
        claim = (known or {"spec": {}})["spec"].get("claimRef")
        if not claim:
            return []
        pods = self.view.pods_by_claim[f"{claim['namespace']}/{claim['name']}"]
        return sorted({node_of(pod) for pod in pods if node_of(pod) and not _is_over(pod)})

    async def _attach(self, volume: JsonObject, wanted: list[str], attachments: list[JsonObject]) -> None:
        taken = {attachment["spec"]["nodeName"] for attachment in attachments}
        for node in wanted:
            known = self.view.nodes.get(node)
            if node in taken or known is None or ATTACHED_BY_CONTROLLER not in (known["metadata"].get("annotations") or {}):
                continue
            if taken and is_single_writer(volume):
                log.info("volume %s cannot go to %s: attached to %s", name_of(volume), node, ", ".join(sorted(taken)))
                continue
            source = volume["spec"]["csi"]
            name = hashlib.sha256(f"{source['volumeHandle']}{source['driver']}{node}".encode()).hexdigest()
            try:
                attachment = await self.client.create(
                    ATTACHMENTS.path(),
                    {
                        "apiVersion": "storage.k8s.io/v1",
                        "kind": "VolumeAttachment",
                        "metadata": {"name": f"csi-{name}"},
                        "spec": {
                            "attacher": source["driver"],
                            "nodeName": node,
                            "source": {"persistentVolumeName": name_of(volume)},
                        },
                    },
                )
            except ApiError as error:
                if not error.already_exists:
                    raise
            else:
                self.view.attachments.remember(attachment)
            taken.add(node)

    async def _detach(self, attachment: JsonObject, volume: JsonObject | None) -> float | None:
        """Detach if that is allowed now, else say after how long it may be."""
        node_name = attachment["spec"]["nodeName"]
        node = self.view.nodes.get(node_name)
        now = asyncio.get_running_loop().time()
        waited = now - self._unwanted_since.setdefault(uid_of(attachment), now)
        vouched_for = node is not None and has_taint(node, OUT_OF_SERVICE, "NoExecute")
        in_use = volume is not None and attached_volume_name(volume) in self._last_in_use.get(node_name, set())
        healthy = node is not None and is_ready(node)
        timed_out = self._force_on_timeout and not healthy and waited >= self._max_wait
        if in_use and not vouched_for and not timed_out:
            # While the node is healthy its own unmount brings the next event.
            return None if healthy or not self._force_on_timeout else self._max_wait - waited + 0.005
        if in_use:
            reason = "out-of-service" if vouched_for else "timeout"
            name = attachment["spec"]["source"]["persistentVolumeName"]
            log.warning("force detach (%s) of %s from %s", reason, name, node_name)
            self.force_detached.append(name)
        try:
            await self.client.delete(ATTACHMENTS.path(name_of(attachment)), uid=uid_of(attachment))
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
        self._unwanted_since.pop(uid_of(attachment), None)
        return None

    # Where to look -----------------------------------------------------------------------------------------------------------

    def _used_by(self, pod: JsonObject) -> list[str]:
        claims = [self.view.claims.get(key) for key in claims_of(pod)]
        return [claim["spec"].get("volumeName") or "" for claim in claims if claim is not None]

    def _attached_to(self, node: JsonObject) -> list[str]:
        return [key for each in self.view.attachments_by_node[name_of(node)] for key in volume_of_attachment(each)]

    def _note_volumes_in_use(self, _before: JsonObject | None, after: JsonObject | None) -> None:
        # Kept when the node goes: what it used it may still use.
        if after is not None:
            self._last_in_use[name_of(after)] = set((after.get("status") or {}).get("volumesInUse") or ())


class NodeVolumesAttached(Controller):
    """Writes what is attached to a node into its status, where kubelets and people look for it."""

    workers = 2

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self.look_on(view.attachments, lambda attachment: [attachment["spec"]["nodeName"]])
        self.look_on(view.nodes, own_key)

    async def reconcile(self, key: str) -> float | None:
        node = self.view.nodes.get(key)
        if node is None:
            return None
        attached = []
        for attachment in self.view.attachments_by_node[key]:
            volume = self.view.volumes.get(attachment["spec"]["source"].get("persistentVolumeName") or "")
            if volume is not None and (attachment.get("status") or {}).get("attached"):
                attached.append({"name": attached_volume_name(volume), "devicePath": ""})
        attached.sort(key=lambda each: each["name"])
        if attached != (node["status"].get("volumesAttached") or []):
            patch = {"status": {"volumesAttached": attached}}
            self.view.nodes.remember(await self.client.patch(NODES.path(key, subresource="status"), patch))
        return None


def volume_of_attachment(attachment: JsonObject) -> list[str]:
    return [attachment["spec"]["source"].get("persistentVolumeName") or ""]


def _is_over(pod: JsonObject) -> bool:
    """Finished, or terminating with no container running any more: the pod no longer needs its volumes."""
    if is_finished(pod):
        return True
    states = [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]
    return is_terminating(pod) and not any("running" in state for state in states)
