"""What was on a Node that is deleted while its host is off, and comes back as a new object when the host boots."""

from __future__ import annotations

import json

from simulator.objects import JsonObject
from simulator.remediators.bare_metal_hosts import SurroundingsWithHosts
from simulator.remediators.contract import Remediator, Surroundings, annotation

ANNOTATIONS_BACKUP = "remediation.metal3.io/node-annotations-backup"
LABELS_BACKUP = "remediation.metal3.io/node-labels-backup"
_FIELDS = {"annotations": ANNOTATIONS_BACKUP, "labels": LABELS_BACKUP}


def backup_of(node: JsonObject) -> dict[str, str]:
    """Annotations for whatever keeps it meanwhile."""
    return {key: json.dumps(node["metadata"].get(field) or {}, sort_keys=True) for field, key in _FIELDS.items()}


def is_kept(holder: JsonObject, backup: dict[str, str]) -> bool:
    return all(annotation(holder, key) == value for key, value in backup.items())


class ReusesHosts(Remediator):
    """An operator that switches the hosts of Machines (`bare_metal_hosts.py`)."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        assert isinstance(around, SurroundingsWithHosts)
        self.hosts = around.hosts

    async def give_back(self, holder: JsonObject, node: JsonObject) -> None:
        """What the Node had before, as `holder` keeps it; what it has now stays as it is."""
        change = {}
        for field, key in _FIELDS.items():
            kept, known = json.loads(annotation(holder, key) or "{}"), node["metadata"].get(field) or {}
            change[field] = {each: value for each, value in kept.items() if each not in known}
        if any(change.values()):
            await self.patch(node, {"metadata": change}, informer=self.view.nodes)
