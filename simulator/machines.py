"""The Machines of a simulated cluster: a MachineSet for the workers of each zone, and the controllers that look after them.

At the start the workers that there are become Machines: `machine-3` is that of `node-3`, in the set `workers-zone-c`. What comes
later has a name from its set and a Node with the next free number. How Machines behave is `controllers/machine_set.py`,
`controllers/machine.py` and `machine_systems/`; here are their instances and the doors for tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.client import USER_AGENT, ApiError
from simulator.controllers.machine import Instance, MachineEvent, Machines
from simulator.controllers.machine_set import MachineSets
from simulator.informer import MachineView
from simulator.machine_systems import machine_system_named
from simulator.machine_systems.cluster_api import CLUSTER_NAME, CLUSTERS, ClusterApi
from simulator.machine_systems.contract import MachineSettings, MachineSystem
from simulator.node import NodeFault
from simulator.objects import JsonObject, name_of, uid_of
from simulator.resources import NAMESPACES
from simulator.tasks import Tasks

if TYPE_CHECKING:
    from simulator.cluster import SimulatedCluster

CRDS = Path(__file__).parent / "crds"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """system: `gardener`, `openshift` or `cluster-api`. deletes_failed: the sets of Gardener delete their Failed Machines."""

    system: str
    settings: MachineSettings = field(default_factory=MachineSettings)
    deletes_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDeletion:
    """One request to delete a Machine, whatever came of it.

    machine: its name, "" for all of a kind at once. uid, resource_version: what the Machine had to have, "" for anything. status:
    of the answer; 200 is a deletion, 409 a precondition that did not hold.
    """

    machine: str
    user_agent: str
    user: str
    uid: str
    resource_version: str
    status: int
    at: datetime

    @property
    def by_controllers(self) -> bool:
        """Its MachineSet wanted it."""
        return self.user_agent == MACHINE_CONTROLLERS


MACHINE_CONTROLLERS = f"{USER_AGENT} machine-controllers"


class Instances:
    """The provider of the instances: a worker of the simulated cluster is one.

    `refuses`: makes no more. `fault`: what every new one suffers from its first boot on, such as `never-boots`.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.refuses = False
        self.fault: NodeFault | None = None
        self._cluster = cluster
        self._of: dict[str, Instance] = {}

    def adopt(self, machine: str, node: str) -> Instance:
        """A node that there is becomes the instance of a Machine (its uid)."""
        self._of[machine] = Instance(node=node, provider_id=self._cluster.node(node).identity.provider_id)
        return self._of[machine]

    def of(self, machine: str) -> Instance | None:
        return self._of.get(machine)

    async def create(self, machine: str, *, zone: str) -> Instance:
        if machine in self._of:
            return self._of[machine]
        node = await self._cluster.add_node(zone=zone, fault=self.fault)
        return self.adopt(machine, node.name)

    async def switch_off(self, machine: str) -> None:
        if instance := self._of.get(machine):
            await self._cluster.switch_off(instance.node)

    async def destroy(self, machine: str) -> None:
        if instance := self._of.pop(machine, None):
            await self._cluster.remove_node(instance.node)


class Fleet:
    """All Machines of a cluster. `cluster.machines`."""

    def __init__(self, cluster: SimulatedCluster, options: MachineOptions) -> None:
        self.system: MachineSystem = machine_system_named(options.system)
        self.instances = Instances(cluster)
        self.view: MachineView
        self._cluster = cluster
        self._options = options

    @property
    def crds(self) -> Sequence[Path]:
        return [CRDS / self.system.crds]

    # Doors

    @property
    def names(self) -> list[str]:
        """Of all Machines that there are, also of those being deleted."""
        return sorted(name_of(machine) for machine in self.view.machines)

    def machine(self, name: str) -> JsonObject | None:
        """As last heard of; None when it is gone."""
        return self.view.machines.get(f"{self.system.namespace}/{name}")

    def phase(self, name: str) -> str:
        """Of one Machine; "" before it has one and when it is gone."""
        machine = self.machine(name)
        return self.system.phase(machine) if machine is not None else ""

    def node_of(self, name: str) -> str:
        """The name of the Node as the Machine has it, "" before it has one."""
        machine = self.machine(name)
        return self.system.node_named(machine) if machine is not None else ""

    def of_node(self, node: str) -> str:
        """The name of the Machine of a Node. Raises LookupError where it has none."""
        for machine in self.view.machines:
            if self.system.node_named(machine) == node:
                return name_of(machine)
        raise LookupError(f"no Machine has the node {node!r}")

    def in_phase(self, phase: str) -> list[str]:
        """The names of the Machines in this phase."""
        return sorted(name_of(machine) for machine in self.view.machines if self.system.phase(machine) == phase)

    @property
    def history(self) -> list[MachineEvent]:
        """What the machine controller did to instances, Nodes and Machines, in order."""
        return self._controller.history

    def deletions(self, machine: str = "") -> list[MachineDeletion]:
        """Who wanted to delete Machines, or this one, in order. Only the simulated API server keeps this."""
        api = self._cluster.api
        if api is None:
            raise LookupError("requests are logged by the simulated API server only")
        prefix = f"/apis/{self.system.machines.api_version}/"
        found = []
        for write in api.requests.deletions:
            if write.resource != self.system.machines.plural or not write.path.startswith(prefix):
                continue
            before, _, last = write.path.rpartition("/")
            found.append(
                MachineDeletion(
                    machine=last if before.endswith(f"/{self.system.machines.plural}") else "",
                    user_agent=write.user_agent,
                    user=write.user,
                    uid=write.preconditions.get("uid", ""),
                    resource_version=write.preconditions.get("resourceVersion", ""),
                    status=write.status,
                    at=write.time,
                )
            )
        return [each for each in found if machine in ("", each.machine)]

    async def scale(self, machine_set: str, replicas: int) -> None:
        """Change the size of a set, as an autoscaler or a person does."""
        path = self.system.machine_sets.path(machine_set, namespace=self.system.namespace)
        await self._cluster.client.patch(path, {"spec": {"replicas": replicas}})

    async def set_status(self, name: str, status: JsonObject) -> None:
        """Put something into a Machine's status, as a merge patch: what a test wants its controller to have found."""
        path = self.system.machines.path(name, namespace=self.system.namespace, subresource="status")
        self.view.machines.remember(await self._cluster.client.patch(path, {"status": status}))

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a Machine; None removes one."""
        path = self.system.machines.path(name, namespace=self.system.namespace)
        self.view.machines.remember(await self._cluster.client.patch(path, {"metadata": {"annotations": dict(annotations)}}))

    # Start, by the cluster

    def look_on(self) -> None:
        """Before the informers of the cluster run."""
        kinds = {"machines": self.system.machines, "machine_sets": self.system.machine_sets}
        self.view = MachineView(self._cluster.client, self._cluster.view, **kinds)

    async def start(self, tasks: Tasks) -> None:
        """Make the workers Machines and start the controllers; returns when all are Running."""
        cluster, system = self._cluster, self.system
        await self._ensure(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": system.namespace}})
        if isinstance(system, ClusterApi):
            await self._ensure(CLUSTERS.path(namespace=system.namespace), system.cluster())
            path = CLUSTERS.path(CLUSTER_NAME, namespace=system.namespace, subresource="status")
            await cluster.client.patch(path, {"status": system.cluster_status()})
        tasks.start(self.view.run(), name="informers of machines")
        async with asyncio.timeout(30):
            await self.view.wait_until_synced()
        client = cluster.client.named(MACHINE_CONTROLLERS)
        self._controller = Machines(
            client, cluster.view, self.view, system=system, provider=self.instances, settings=self._options.settings
        )
        sets = MachineSets(client, cluster.view, self.view, system=system)
        adopted = [name for zone, nodes in self._workers_by_zone().items() for name in await self._adopt(zone, nodes)]
        tasks.start(self._controller.run(), name="machine controller")
        tasks.start(sets.run(), name="machine set controller")
        await cluster.wait_until(lambda: all(map(self._has_joined, adopted)), seconds=60, what="all Machines Running")

    def _has_joined(self, name: str) -> bool:
        """It is Running, and its Node says whose it is."""
        machine = self.machine(name)
        node = self.view.node_of(machine) if machine is not None else None
        if machine is None or node is None:
            return False
        tied = self.system.ties(machine).items() <= (node["metadata"].get("annotations") or {}).items()
        return tied and self.system.phase(machine) == "Running"

    def _workers_by_zone(self) -> dict[str, list[str]]:
        zones: dict[str, list[str]] = {}
        for node in self._cluster.nodes.values():
            if node.identity.role == "worker":
                zones.setdefault(node.identity.zone, []).append(node.name)
        return zones

    async def _adopt(self, zone: str, nodes: Sequence[str]) -> list[str]:
        client, system = self._cluster.client, self.system
        body = system.machine_set(f"workers-{zone}", zone=zone, replicas=len(nodes), deletes_failed=self._options.deletes_failed)
        machine_set = await client.create(system.machine_sets.path(namespace=system.namespace), body)
        self.view.machine_sets.remember(machine_set)
        names = []
        for node in nodes:
            machine = system.machine_of(machine_set)
            metadata = machine["metadata"]
            del metadata["generateName"]
            metadata["name"] = node.replace("node-", "machine-")
            metadata["labels"] |= system.labels_with(node)
            machine["spec"]["providerID"] = self._cluster.node(node).identity.provider_id
            created = await client.create(system.machines.path(namespace=system.namespace), machine)
            self.instances.adopt(uid_of(created), node)
            self.view.machines.remember(created)
            names.append(name_of(created))
        return names

    async def _ensure(self, path: str, body: JsonObject) -> None:
        try:
            await self._cluster.client.create(path, body)
        except ApiError as error:
            if not error.already_exists:
                raise
