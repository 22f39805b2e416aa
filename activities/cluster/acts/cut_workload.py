"""Which pods of a node use only volumes that lie behind a cut path: those, and no others, may be freed while the machine runs.

The rule is narrow on purpose (S1): a pod with one volume elsewhere, with a claim that can't be traced, or with storage written
into its own spec could still write. Deleting is `freeing.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import VOLUMES
from activities.cluster.api.refusals import unless_gone
from activities.cluster.objects.workload import Pod, volume_of_claim
from policy.fence.plan import CutStorage

HARMLESS = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}
)
"""Volume sources of the pod's own, or that are traced through their claim. Any other is a path not cut; a hostPath may be
a shared mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWorkload:
    """The pods whose every volume is cut, and the names of the cut PersistentVolumes among all that are in use."""

    pods: tuple[Pod, ...]
    volumes: frozenset[str]


async def behind_cut(connection: ClusterConnection, pods: Iterable[Pod], storage: CutStorage) -> CutWorkload:
    """Trace every claim of these pods to its volume (live)."""
    pods = tuple(pods)
    claims = sorted({(pod.metadata.namespace, claim) for pod in pods for claim in pod.claims})
    names = await asyncio.gather(*(volume_of_claim(connection, namespace, name) for namespace, name in claims))
    of_claim = dict(zip(claims, names, strict=True))
    wanted = sorted({name for name in names if name})
    covered = await asyncio.gather(*(_is_cut(connection, name, storage) for name in wanted))
    cut = frozenset(name for name, is_cut in zip(wanted, covered, strict=True) if is_cut)
    eligible = []
    for pod in pods:
        used = [of_claim[pod.metadata.namespace, claim] for claim in pod.claims]
        if used and all(name in cut for name in used) and set(pod.volume_sources) <= HARMLESS:
            eligible.append(pod)
    return CutWorkload(pods=tuple(eligible), volumes=cut)


async def _is_cut(connection: ClusterConnection, name: str, storage: CutStorage) -> bool:
    found = await unless_gone(connection.get(VOLUMES.path(name)))
    if found is None:
        return False
    spec = found.get("spec") or {}
    csi = spec.get("csi") or {}
    legacy = (spec.get("awsElasticBlockStore") or {}).get("volumeID") or (spec.get("gcePersistentDisk") or {}).get("pdName") or ""
    return storage.covers(
        storage_class=str(spec.get("storageClassName") or ""),
        driver=str(csi.get("driver") or ""),
        handle=str(csi.get("volumeHandle") or legacy),
    )
