"""What the controllers have in common that own Machines: where they look, and how they write."""

from __future__ import annotations

from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, owner_key
from simulator.informer import ClusterView, MachineView
from simulator.objects import JsonObject, key_of
from simulator.resources import Resource


class MachineOwner(Controller):
    """Works per owner, and looks at its Machines and their Nodes, too."""

    def __init__(self, client: ApiClient, view: ClusterView, machines: MachineView, *, machine: Resource, owner: str) -> None:
        """machine: the resource of its Machines. owner: the kind of what owns them."""
        super().__init__(client, view)
        self._machines = machines
        self._machine = machine
        self._owner_of = owner_key(owner)
        self.look_on(machines.machines, self._owner_of)
        self.look_on(view.nodes, self._owners_of_node)

    def _owners_of_node(self, node: JsonObject) -> list[str]:
        """Readiness matters, and what stands on a Node about preserving it."""
        provider_id = (node.get("spec") or {}).get("providerID") or ""
        return [key for each in self._machines.machines_by_provider_id[provider_id] for key in self._owner_of(each)]

    async def _set_status(self, machine: JsonObject, status: JsonObject) -> None:
        """Unless the Machine was written since it was read."""
        if not status:
            return
        path = self._machine.path_of_key(key_of(machine), subresource="status")
        version = machine["metadata"]["resourceVersion"]
        answer = await self.client.patch(path, {"metadata": {"resourceVersion": version}, "status": status})
        self._machines.machines.remember(answer)

    async def _delete(self, machine: JsonObject) -> None:
        """One that is gone already is no mistake."""
        try:
            answer = await self.client.delete(self._machine.path_of_key(key_of(machine)))
        except ApiError as error:
            if not error.not_found:
                raise
            return
        if answer.get("kind") == self._machine.kind:
            self._machines.machines.remember(answer)
