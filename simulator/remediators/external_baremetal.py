"""OpenShift's older way on bare metal: because of an annotation on a Machine its host is switched off and on, the Node deleted.

There the machine controller for bare metal does it. A MachineHealthCheck of the strategy `external-baremetal` only writes the
annotation and takes it away once the machine is well; this takes it away itself when the Node is there again, of whatever
health. An annotation that is taken away in between leaves the host off, as there: nothing is left that would switch it on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from simulator.machine_systems.openshift import OpenShift
from simulator.objects import JsonObject, controller_of, is_terminating, key_of, timestamp
from simulator.remediators.bare_metal_hosts import POWER_OFF, BareMetalHosts, is_powered_on
from simulator.remediators.contract import Surroundings
from simulator.remediators.node_backup import ANNOTATIONS_BACKUP, LABELS_BACKUP, ReusesHosts, backup_of, is_kept
from simulator.resources import Resource

EXTERNAL_REMEDIATION = "host.metal3.io/external-remediation"
POWERED_OFF = "remediation.metal3.io/powered-off-for-remediation"
POWER_ON_TIMES_OUT = "remediation.metal3.io/power-on-will-timeout-at"
REQUEST = f"{POWER_OFF}capbm-requested-power-off"
ROLE = "machine.openshift.io/cluster-api-machine-role"


class ExternalBaremetal(ReusesHosts):
    """Works per annotated Machine. Doors: `cluster.hosts`."""

    name_to_ask_for = "external-baremetal"
    crds = (BareMetalHosts.crds,)
    needs = ("openshift",)
    remediations: ClassVar[Resource] = OpenShift.machines

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._gives_up_at: dict[str, datetime] = {}

    async def reconcile(self, key: str) -> float | None:
        machine = self.objects.get(key)
        if machine is None or EXTERNAL_REMEDIATION not in (machine["metadata"].get("annotations") or {}):
            return None
        host = self.hosts.of_machine(machine)
        if host is not None and not is_terminating(machine):
            await self._remediate(machine, host, self.view.nodes.get(self.system.node_named(machine)))
        return self.timings.poll

    async def _remediate(self, machine: JsonObject, host: JsonObject, node: JsonObject | None) -> None:
        annotations: Mapping[str, str] = machine["metadata"]["annotations"]
        requested = REQUEST in (host["metadata"].get("annotations") or {})
        if POWERED_OFF not in annotations:
            if not requested:
                await self.hosts.annotate(host, REQUEST, json.dumps({"mode": "hard"}))
            elif is_powered_on(host):
                return
            elif node is not None:
                backup = backup_of(node)
                if is_kept(machine, backup):
                    await self.delete_node(node)
                else:
                    await self._annotate(machine, backup)
            else:
                await self._annotate(machine, {POWERED_OFF: ""})
        elif requested:
            power_on_until = datetime.now(UTC) + timedelta(seconds=self.timings.power_on)
            self._gives_up_at[key_of(machine)] = power_on_until
            await self._annotate(machine, {POWER_ON_TIMES_OUT: timestamp(power_on_until)})
            await self.hosts.annotate(host, REQUEST, None)
        elif node is None:
            gives_up_at = self._gives_up_at.get(key_of(machine))
            if gives_up_at is not None and datetime.now(UTC) > gives_up_at and _may_be_replaced(machine):
                await self._delete(self.objects.resource.path_of_key(key_of(machine)), machine)
        elif ANNOTATIONS_BACKUP in annotations:
            await self.give_back(machine, node)
            await self._annotate(machine, {ANNOTATIONS_BACKUP: None, LABELS_BACKUP: None})
        else:
            await self._annotate(machine, {EXTERNAL_REMEDIATION: None, POWERED_OFF: None, POWER_ON_TIMES_OUT: None})

    async def _annotate(self, machine: JsonObject, annotations: Mapping[str, str | None]) -> None:
        await self.patch(machine, {"metadata": {"annotations": dict(annotations)}})


def _may_be_replaced(machine: JsonObject) -> bool:
    return controller_of(machine) is not None and (machine["metadata"].get("labels") or {}).get(ROLE) != "master"
