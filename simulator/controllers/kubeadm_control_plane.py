"""The controller of a KubeadmControlPlane: it says how its Machines are, remediates one at a time, and replaces what has gone.

The rules are `machine_systems/control_plane.py`'s; etcd is a list of members (`simulator/etcd.py`) which a node joins once it is
Ready and leaves with the deletion of its Machine. As in Cluster API the Machine is deleted first and the mark on the control
plane written after that. Left out, knowingly: roll-outs, scaling down, and the hook by which the deletion of a Machine waits for
its member to have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from simulator.client import ApiClient
from simulator.controllers.machine_owner import MachineOwner
from simulator.controllers.runtime import own_key
from simulator.etcd import Etcd
from simulator.informer import ClusterView, Informer, MachineView
from simulator.machine_systems.cluster_api import ClusterApi
from simulator.machine_systems.contract import annotation, with_conditions
from simulator.machine_systems.control_plane import (
    IN_PROGRESS,
    KUBEADM_CONTROL_PLANES,
    REMEDIATION_FOR,
    Attempt,
    decide,
    health,
    in_progress,
    is_whole,
    machine_of,
    may_grow,
    node_named,
    zone_for,
)
from simulator.machine_systems.remediation import is_spared, released, told
from simulator.objects import (
    JsonObject,
    controller_of,
    is_ready,
    is_terminating,
    key_of,
    namespace_of,
    timestamp,
    uid_of,
)


class KubeadmControlPlanes(MachineOwner):
    """Works per KubeadmControlPlane; there is one."""

    def __init__(
        self,
        client: ApiClient,
        view: ClusterView,
        machines: MachineView,
        control_planes: Informer,
        *,
        system: ClusterApi,
        etcd: Etcd,
        zones: Sequence[str],
    ) -> None:
        super().__init__(client, view, machines, machine=system.machines, owner=KUBEADM_CONTROL_PLANES.kind)
        self._control_planes = control_planes
        self._system = system
        self._etcd = etcd
        self._zones = zones
        self._joined: set[str] = set()
        """Uids of the Machines with members that have come: one that a test has removed does not come back by itself."""
        self.look_on(control_planes, own_key)
        etcd.subscribe(self._look_at_all)

    def _look_at_all(self) -> None:
        for key in self._control_planes.objects:
            self.queue.add(key)

    async def reconcile(self, key: str) -> float | None:
        control_plane = self._control_planes.get(key)
        if control_plane is None or is_terminating(control_plane):
            return None
        self._follow_members(control_plane)
        await self._say_how_they_are(control_plane)
        control_plane = await self._take_back(control_plane)
        look_again = await self._remediate(control_plane)
        control_plane = self._control_planes.get(key) or control_plane
        await self._grow(control_plane)
        await self._report(self._control_planes.get(key) or control_plane)
        return look_again

    def _of(self, control_plane: JsonObject) -> list[JsonObject]:
        """Its Machines, also those being deleted."""
        machines = self._machines.machines
        return [machine for machine in machines if (controller_of(machine) or {}).get("uid") == uid_of(control_plane)]

    def _follow_members(self, control_plane: JsonObject) -> None:
        for machine in self._of(control_plane):
            name, node = node_named(machine), self._machines.node_of(machine)
            if not name:
                continue
            if is_terminating(machine):
                self._etcd.remove(name)
            elif uid_of(machine) not in self._joined and node is not None and is_ready(node):
                self._joined.add(uid_of(machine))
                if self._etcd.member(name) is None:
                    self._etcd.add(name)

    async def _say_how_they_are(self, control_plane: JsonObject) -> None:
        for machine in self._of(control_plane):
            conditions = with_conditions(machine, health(machine, self._machines.node_of(machine), self._etcd.members))
            if conditions is not None:
                await self._set_status(machine, {"conditions": conditions})

    # Remediation

    async def _take_back(self, control_plane: JsonObject) -> JsonObject:
        """Requests of Machines that are well again, and a mark with its replacement there."""
        for machine in self._of(control_plane):
            if is_spared(machine) and not is_terminating(machine):
                await self._set_status(machine, released(machine))
        if annotation(control_plane, IN_PROGRESS) and in_progress(control_plane, self._of(control_plane)) is None:
            return await self._mark(control_plane, None)
        return control_plane

    async def _remediate(self, control_plane: JsonObject) -> float | None:
        decision = decide(control_plane, self._of(control_plane), self._etcd.members, datetime.now(UTC))
        if decision is None:
            return None
        machine = decision.machine
        if decision.reason is not None:
            await self._set_status(machine, told(machine, decision.reason, decision.message))
        elif decision.attempt is not None:
            await self._delete(machine)
            await self._mark(control_plane, decision.attempt)
        return decision.look_again

    async def _mark(self, control_plane: JsonObject, attempt: Attempt | None) -> JsonObject:
        change = {"metadata": {"annotations": {IN_PROGRESS: attempt.written() if attempt is not None else None}}}
        answer = await self.client.patch(KUBEADM_CONTROL_PLANES.path_of_key(key_of(control_plane)), change)
        self._control_planes.remember(answer)
        return answer

    async def _grow(self, control_plane: JsonObject) -> None:
        machines = self._of(control_plane)
        if len(machines) >= control_plane["spec"].get("replicas", 1) or not may_grow(control_plane, machines, self._etcd.members):
            return
        mark = annotation(control_plane, IN_PROGRESS)
        body = machine_of(self._system, control_plane, zone=zone_for(machines, self._zones), remediation_for=mark)
        path = self._system.machines.path(namespace=namespace_of(control_plane))
        self._machines.machines.remember(await self.client.create(path, body))
        if mark:
            await self._mark(control_plane, None)

    # Writing

    async def _report(self, control_plane: JsonObject) -> None:
        machines = self._of(control_plane)
        well = sum(map(is_whole, machines))
        status: JsonObject = {
            "observedGeneration": control_plane["metadata"].get("generation", 1),
            "replicas": len(machines),
            "readyReplicas": well,
            "availableReplicas": well,
            "upToDateReplicas": len(machines),
        }
        attempts = [Attempt.read(annotation(each, REMEDIATION_FOR)) for each in machines]
        latest = Attempt.read(annotation(control_plane, IN_PROGRESS)) or max(
            (each for each in attempts if each is not None), key=lambda each: each.at, default=None
        )
        if latest is not None:
            status["lastRemediation"] = {"machine": latest.machine, "time": timestamp(latest.at), "retryCount": latest.retries}
        await self.report(self._control_planes, control_plane, status)
