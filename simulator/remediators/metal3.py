"""Metal3Remediation: a bare-metal host is switched off and on again, as often as its strategy says.

For Machines of Cluster API and of OpenShift; owned by the Machine and named as it is, or owned by a NodeHealthCheck and about
the node of its name. It does not look whether the node is well again: the creator of the object deletes it then. Where that does
not come, it tries again until the limit, and then gives the Machine to its owner (Cluster API), or deletes it (OpenShift).
Unlike there a limit that is lowered below what has been tried is reached, and the owner is asked in the conditions that owners
read, not in the older generation. Left out: clusters that may not read Nodes, v1beta1's `timeout`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

from simulator.machine_systems.cluster_api import ClusterApi
from simulator.objects import OUT_OF_SERVICE, JsonObject, has_taint, name_of, timestamp, uid_of
from simulator.remediators.bare_metal_hosts import POWER_OFF, BareMetalHosts, is_powered_on
from simulator.remediators.contract import FALSE, OUT_OF_SERVICE_TAINT, Surroundings, with_conditions
from simulator.remediators.node_backup import ReusesHosts, backup_of, is_kept
from simulator.resources import Resource

FINALIZER = "metal3remediation.infrastructure.cluster.x-k8s.io"
UNHEALTHY = "capm3.metal3.io/unhealthy"
"""On a host that could not be helped: it is not to be chosen for another Machine."""
OWNER_REMEDIATED = "OwnerRemediated"
DEFAULT_TIMEOUT = 600.0


class Phase(StrEnum):
    RUNNING = "Running"
    WAITING = "Waiting"
    DELETING = "Deleting machine"
    FAILED = "Failed"


def time_to_remediate(*, age: float | None, timeout: float) -> tuple[bool, float | None]:
    """Whether the next try is due, else in how many seconds one looks again. age: of the last try, None where there was none."""
    if age is None:
        return False, timeout
    return (True, None) if age > timeout else (False, timeout - age + 1)


def limit_is_reached(limit: int, count: int) -> bool:
    """Where there is a limit; compared so that one lowered in the meantime is reached, too."""
    return count >= limit


class Metal3Remediations(ReusesHosts):
    """Doors: `frees_by_taint` (False: it deletes the Node instead, as before Kubernetes knew the taint); `cluster.hosts`."""

    name_to_ask_for = "metal3"
    crds = ("metal3", BareMetalHosts.crds)
    needs = ("cluster-api", "cluster-api-v1beta1", "openshift")
    remediations: ClassVar[Resource] = Resource(
        api_version="infrastructure.cluster.x-k8s.io/v1beta2", kind="Metal3Remediation", plural="metal3remediations"
    )

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.frees_by_taint = True
        self._tried_at: dict[str, datetime] = {}

    async def reconcile(self, key: str) -> float | None:
        remediation = self.objects.get(key)
        if remediation is None:
            return None
        machine = self.machine_of(remediation) or self._machine_of_node(remediation)
        host = self.hosts.of_machine(machine) if machine is not None else None
        if machine is None or host is None:
            return self.timings.poll
        if not host["spec"].get("online"):
            await self._status(remediation, phase=Phase.FAILED)
            return None
        if _strategy(remediation).get("type") != "Reboot":
            return None
        node = self.view.nodes.get(self.system.node_named(machine))
        match (remediation.get("status") or {}).get("phase", ""):
            case "":
                await self._begin(remediation)
            case Phase.RUNNING:
                await self._power_off(remediation, host, node)
            case Phase.WAITING:
                await self._power_on(remediation, machine, host, node)
            case _:
                return None
        return self.timings.poll

    def _machine_of_node(self, remediation: JsonObject) -> JsonObject | None:
        node = self.node_name_of(remediation)
        return next((each for each in self.machines.machines if node and self.system.node_named(each) == node), None)

    async def _begin(self, remediation: JsonObject, **count: int) -> None:
        self._tried_at[uid_of(remediation)] = datetime.now(UTC)
        await self._status(remediation, phase=Phase.RUNNING, lastRemediated=timestamp(), **count)

    async def _power_off(self, remediation: JsonObject, host: JsonObject, node: JsonObject | None) -> None:
        if FINALIZER not in (remediation["metadata"].get("finalizers") or ()):
            await self.hold(remediation, FINALIZER)
        elif _key(remediation) not in (host["metadata"].get("annotations") or {}):
            await self.hosts.annotate(host, _key(remediation), json.dumps({"mode": "hard"}))
        elif is_powered_on(host):
            return
        elif node is None:
            await self._status(remediation, phase=Phase.WAITING)
        elif not self.frees_by_taint:
            # A Node that is gone frees its pods as well, so what stood on it is kept first.
            backup = backup_of(node)
            if is_kept(remediation, backup):
                await self.delete_node(node)
            else:
                await self.patch(remediation, {"metadata": {"annotations": backup}})
        elif not has_taint(node, OUT_OF_SERVICE):
            await self.taint(node, OUT_OF_SERVICE_TAINT)
        elif self.is_drained(name_of(node)):
            await self._status(remediation, phase=Phase.WAITING)

    async def _power_on(self, remediation: JsonObject, machine: JsonObject, host: JsonObject, node: JsonObject | None) -> None:
        if _key(remediation) in (host["metadata"].get("annotations") or {}):
            await self.hosts.annotate(host, _key(remediation), None)
        if not is_powered_on(host):
            return
        if node is not None and FINALIZER in (remediation["metadata"].get("finalizers") or ()):
            if self.frees_by_taint:
                await self.remove_taint(node, OUT_OF_SERVICE_TAINT)
            else:
                await self.give_back(remediation, node)
            await self.let_go(remediation, FINALIZER)
            return
        strategy = _strategy(remediation)
        timeout = float(strategy.get("timeoutSeconds") or DEFAULT_TIMEOUT) * self.timings.metal3_second
        tried_at = self._tried_at.setdefault(uid_of(remediation), datetime.now(UTC))
        due, _ = time_to_remediate(age=(datetime.now(UTC) - tried_at).total_seconds(), timeout=timeout)
        if not due:
            return
        limit, count = int(strategy.get("retryLimit", 1)), int((remediation.get("status") or {}).get("retryCount", 0))
        if limit > 0 and not limit_is_reached(limit, count):
            await self._begin(remediation, retryCount=count + 1)
        else:
            await self._give_up(remediation, machine, host)

    async def _give_up(self, remediation: JsonObject, machine: JsonObject, host: JsonObject) -> None:
        machines = self.machines.machines
        if isinstance(self.system, ClusterApi):
            said = (FALSE, "WaitingForRemediation", "its host has been switched off and on as often as was allowed")
            if (conditions := with_conditions(machine, {OWNER_REMEDIATED: said})) is not None:
                await self.patch(machine, {"status": {"conditions": conditions}}, informer=machines, subresource="status")
        else:
            await self._delete(machines.resource.path_of_key(f"{self.system.namespace}/{name_of(machine)}"), machine)
        await self.hosts.annotate(host, UNHEALTHY, "capm3/UnhealthyNode")
        await self._status(remediation, phase=Phase.DELETING)

    async def _status(self, remediation: JsonObject, **fields: str | int) -> None:
        known: Mapping[str, object] = remediation.get("status") or {}
        if any(known.get(field) != value for field, value in fields.items()):
            await self.patch(remediation, {"status": fields}, subresource="status")


def _strategy(remediation: JsonObject) -> JsonObject:
    strategy: JsonObject = (remediation.get("spec") or {}).get("strategy") or {}
    return strategy


def _key(remediation: JsonObject) -> str:
    """Of the annotation by which this remediation keeps the host off."""
    return f"{POWER_OFF}metal3-remediation-{uid_of(remediation)}"
