"""The volume controller with its provisioner: a PersistentVolume for every claim of the simulated storage class.

Binds at once (`volumeBindingMode: Immediate`), deletes a volume with its claim, and lifts the protection finalizers
that admission puts on claims and volumes once they are not in use, without which nothing could ever be deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.client import ApiClient, ApiError
from simulator.controllers.attach_detach import volume_of_attachment
from simulator.controllers.runtime import Controller, own_key
from simulator.disks import Disks
from simulator.informer import ClusterView
from simulator.objects import (
    JsonObject,
    claims_of,
    is_finished,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    phase_of,
    uid_of,
)
from simulator.resources import CLAIMS, VOLUMES

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"


class VolumeBinder(Controller):
    """Works per PersistentVolumeClaim; keys that are no claim belong to volumes that lost their claim."""

    workers = 4

    def __init__(self, client: ApiClient, view: ClusterView, *, driver: str, disks: Callable[[], Disks]) -> None:
        super().__init__(client, view)
        self._driver = driver
        self._disks = disks
        self.look_on(view.claims, lambda claim: [key_of(claim), claim["spec"].get("volumeName") or ""])
        self.look_on(view.storage_classes, lambda _: list(view.claims.objects))
        self.look_on(view.pods, claims_of)
        self.look_on(view.volumes, own_key)
        self.look_on(view.attachments, volume_of_attachment)

    async def reconcile(self, key: str) -> float | None:
        if "/" not in key:
            await self._release(key)
            return None
        claim = self.view.claims.get(key)
        if claim is None:
            return None
        if is_terminating(claim):
            await self._let_go(claim)
        elif self._is_ours(claim) and phase_of(claim) != "Bound":
            await self._bind(claim)
        return None

    def _is_ours(self, claim: JsonObject) -> bool:
        storage_class = self.view.storage_classes.get(claim["spec"].get("storageClassName") or "")
        return storage_class is not None and storage_class["provisioner"] == self._driver

    async def _bind(self, claim: JsonObject) -> None:
        volume_name = f"pvc-{uid_of(claim)}"
        capacity = {"storage": claim["spec"]["resources"]["requests"]["storage"]}
        volume = self.view.volumes.get(volume_name)
        if volume is None:
            try:
                disk = await self._disks().create(volume_name, node=next(iter(self.view.nodes.objects), ""))
                volume = await self.client.create(VOLUMES.path(), self._new_volume(claim, volume_name, capacity, disk))
            except ApiError as error:
                if not error.already_exists:
                    raise
                volume = await self.client.get(VOLUMES.path(volume_name))
            self.view.volumes.remember(volume)
        if phase_of(volume) != "Bound":
            path = VOLUMES.path(volume_name, subresource="status")
            self.view.volumes.remember(await self.client.patch(path, {"status": {"phase": "Bound"}}))
        if claim["spec"].get("volumeName") != volume_name:
            annotations = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
            patch = {
                "metadata": {"uid": uid_of(claim), "annotations": annotations},
                "spec": {"volumeName": volume_name},
            }
            await self.client.patch(CLAIMS.path_of_key(key_of(claim)), patch)
        status = {"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": capacity}
        path = CLAIMS.path_of_key(key_of(claim), subresource="status")
        self.view.claims.remember(await self.client.patch(path, {"status": status}))

    def _new_volume(self, claim: JsonObject, name: str, capacity: JsonObject, disk: str) -> JsonObject:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": self._driver}},
            "spec": {
                "accessModes": claim["spec"]["accessModes"],
                "capacity": capacity,
                "storageClassName": claim["spec"]["storageClassName"],
                "persistentVolumeReclaimPolicy": "Delete",
                "volumeMode": "Filesystem",
                "csi": {"driver": self._driver, "volumeHandle": disk, "fsType": "ext4"},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": namespace_of(claim),
                    "name": name_of(claim),
                    "uid": uid_of(claim),
                },
            },
        }

    async def _let_go(self, claim: JsonObject) -> None:
        finalizers = claim["metadata"].get("finalizers") or []
        used = any(not is_finished(pod) for pod in self.view.pods_by_claim[key_of(claim)])
        if CLAIM_PROTECTION in finalizers and not used:
            others = [each for each in finalizers if each != CLAIM_PROTECTION]
            version = claim["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "finalizers": others}}
            await self.client.patch(CLAIMS.path_of_key(key_of(claim)), patch)

    async def _release(self, name: str) -> None:
        """A volume of ours without its claim is deleted, once no node has it attached."""
        volume = self.view.volumes.get(name)
        if volume is None or (volume["spec"].get("csi") or {}).get("driver") != self._driver:
            return
        reference = volume["spec"]["claimRef"]
        claim = self.view.claims.get(f"{reference['namespace']}/{reference['name']}")
        if (claim is not None and uid_of(claim) == reference["uid"]) or self.view.attachments_by_volume[name]:
            return
        if not is_terminating(volume):
            volume = await self.client.delete(VOLUMES.path(name), uid=uid_of(volume))
        finalizers = (volume.get("metadata") or {}).get("finalizers") or []
        if VOLUME_PROTECTION in finalizers:
            others = [each for each in finalizers if each != VOLUME_PROTECTION]
            await self.client.patch(VOLUMES.path(name), {"metadata": {"finalizers": others}})
