"""The MachineSet controller: so many Machines, a new one for each that is being deleted, and a choice of which go when there are
too many.

One for all systems (`machine_systems/`). It deletes as they do: without preconditions, on what its cache says. Left out,
knowingly: rolling updates, adoption of Machines without an owner, slow starts. A MachineDeployment is only asked how many
Machines may be remediated at once, and whether preflight checks fail is for a test to say. A set that is deleted leaves its
Machines to the garbage collector.
"""

from __future__ import annotations

from simulator.client import ApiClient
from simulator.controllers.machine_owner import MachineOwner
from simulator.controllers.runtime import own_key
from simulator.informer import ClusterView, Informer, MachineView
from simulator.machine_systems.contract import MachineSettings, MachineSystem, SetSighting
from simulator.objects import (
    JsonObject,
    controller_of,
    is_ready,
    is_terminating,
    key_of,
    namespace_of,
    selector_matches,
    uid_of,
)


class MachineSets(MachineOwner):
    """Works per MachineSet."""

    def __init__(
        self,
        client: ApiClient,
        view: ClusterView,
        machines: MachineView,
        *,
        system: MachineSystem,
        settings: MachineSettings,
        deployments: Informer | None = None,
    ) -> None:
        super().__init__(client, view, machines, machine=system.machines, owner=system.machine_sets.kind)
        self.preflight = ""
        """Why sets make and remediate nothing now; "" where they may."""
        self._system = system
        self._settings = settings
        self._deployments = deployments
        if deployments is not None:
            self.look_on(deployments, self._sets_of_deployment)
        self.look_on(machines.machine_sets, own_key)

    def _sets_of_deployment(self, deployment: JsonObject) -> list[str]:
        return [
            key_of(each) for each in self._machines.machine_sets if (controller_of(each) or {}).get("uid") == uid_of(deployment)
        ]

    async def reconcile(self, key: str) -> float | None:
        machine_set = self._machines.machine_sets.get(key)
        if machine_set is None or is_terminating(machine_set):
            return None
        waits: list[float] = []
        for machine, act in self._system.owners_acts(self._sighting(machine_set)):
            if act.status:
                await self._set_status(machine, act.status)
            if act.delete:
                await self._delete(machine)
            elif act.look_again is not None:
                waits.append(act.look_again)
        active = self._active(machine_set)
        surplus = len(active) - machine_set["spec"].get("replicas", 1)
        if surplus < 0 and self.preflight:
            return min([*waits, self._settings.preflight_retry])
        for _ in range(-surplus):
            path = self._system.machines.path(namespace=namespace_of(machine_set))
            self._machines.machines.remember(await self.client.create(path, self._system.machine_of(machine_set)))
        if surplus > 0:
            active.sort(key=lambda machine: self._system.deletion_rank(machine, machine_set))
            for machine in active[:surplus]:
                await self._delete(machine)
        await self._report(machine_set)
        return min(waits, default=None)

    def _sighting(self, machine_set: JsonObject) -> SetSighting:
        owner, deployment = controller_of(machine_set), None
        if self._deployments is not None and owner is not None:
            deployment = self._deployments.get(f"{namespace_of(machine_set)}/{owner['name']}")
        return SetSighting(
            machine_set=machine_set,
            machines=self._of(machine_set),
            node_of=self._machines.node_of,
            settings=self._settings,
            deployment=deployment,
            preflight=self.preflight,
        )

    def _of(self, machine_set: JsonObject) -> list[JsonObject]:
        """Its Machines. One that has lost the labels of its set is no longer of it."""
        return [
            machine
            for machine in self._machines.machines
            if (controller_of(machine) or {}).get("uid") == uid_of(machine_set)
            and selector_matches(machine_set["spec"]["selector"], machine["metadata"].get("labels") or {})
        ]

    def _active(self, machine_set: JsonObject) -> list[JsonObject]:
        """Its Machines that are not being deleted."""
        return [machine for machine in self._of(machine_set) if not is_terminating(machine)]

    async def _report(self, machine_set: JsonObject) -> None:
        active = self._active(machine_set)
        nodes = [self._machines.node_of(machine) for machine in active]
        ready = sum(1 for node in nodes if node is not None and is_ready(node))
        counts = {
            "observedGeneration": machine_set["metadata"].get("generation", 1),
            "replicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        await self.report(self._machines.machine_sets, machine_set, self._system.set_status(counts, active))
