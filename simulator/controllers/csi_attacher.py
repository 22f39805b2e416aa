"""The external attacher of the simulated storage driver: makes an attachment true, and takes it back when it is deleted.

A VolumeAttachment is only a wish until the driver sets `status.attached`, and it lives, held by the driver's
finalizer, until the driver has detached. So a program that deletes one, the attach/detach controller or a fencer, gets the
detach they asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simulator.client import ApiClient
from simulator.controllers.runtime import Controller, own_key
from simulator.disks import DiskBusyError, Disks
from simulator.informer import ClusterView
from simulator.objects import JsonObject, is_terminating, name_of
from simulator.resources import ATTACHMENTS

RETRY = 0.5
"""Seconds, while another machine has the disk."""


class CsiAttacher(Controller):
    """Works per VolumeAttachment of its driver."""

    workers = 8

    def __init__(
        self, client: ApiClient, view: ClusterView, *, driver: str, disks: Callable[[], Disks], seconds: float = 1.0
    ) -> None:
        super().__init__(client, view)
        self._driver = driver
        self._disks = disks
        self._seconds = seconds
        self._finalizer = f"external-attacher/{driver.replace('.', '-')}"
        self.look_on(view.attachments, own_key)

    async def reconcile(self, key: str) -> float | None:
        attachment = self.view.attachments.get(key)
        if attachment is None or attachment["spec"]["attacher"] != self._driver:
            return None
        finalizers = attachment["metadata"].get("finalizers") or []
        if is_terminating(attachment):
            if self._finalizer in finalizers:
                await asyncio.sleep(self._seconds)
                if disk := self._disk_of(attachment):
                    await self._disks().detach(disk, attachment["spec"]["nodeName"])
                others = [each for each in finalizers if each != self._finalizer]
                await self._set_finalizers(attachment, others)
            return None
        if self._finalizer not in finalizers:
            attachment = await self._set_finalizers(attachment, [*finalizers, self._finalizer])
        if not (attachment.get("status") or {}).get("attached"):
            await asyncio.sleep(self._seconds)
            if disk := self._disk_of(attachment):
                try:
                    await self._disks().attach(disk, attachment["spec"]["nodeName"])
                except DiskBusyError:
                    return RETRY
            path = ATTACHMENTS.path(key, subresource="status")
            self.view.attachments.remember(await self.client.patch(path, {"status": {"attached": True}}))
        return None

    def _disk_of(self, attachment: JsonObject) -> str:
        volume = self.view.volumes.get(attachment["spec"]["source"]["persistentVolumeName"])
        return str(volume["spec"]["csi"]["volumeHandle"]) if volume is not None else ""

    async def _set_finalizers(self, attachment: JsonObject, finalizers: list[str]) -> JsonObject:
        version = attachment["metadata"]["resourceVersion"]
        answer = await self.client.patch(
            ATTACHMENTS.path(name_of(attachment)),
            {"metadata": {"resourceVersion": version, "finalizers": finalizers}},
        )
        if not is_terminating(attachment):
            self.view.attachments.remember(answer)
        return answer
