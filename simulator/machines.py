"""The Machines of a simulated cluster: a MachineSet for the workers of each zone, and the controllers that look after them.

At the start the workers that there are become Machines: `machine-3` is that of `node-3`, in the set `workers-zone-c`. What comes
later has a name from its set and a Node with the next free number. The same for the nodes of the control plane, where they are
Machines too: `control-plane-machine-2` is that of `control-plane-2`. How Machines behave is `controllers/machine_set.py`,
`controllers/machine.py` and `machine_systems/`; here are their instances and the doors for tests.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from simulator.client import USER_AGENT, ApiError
from simulator.contract import Cluster
from simulator.control_plane import ControlPlane
from simulator.controllers.autoscaler import Autoscaler, AutoscalerSettings
from simulator.controllers.machine import Instance, MachineEvent, Machines
from simulator.controllers.machine_set import MachineSets
from simulator.informer import Informer, MachineView
from simulator.machine_systems import machine_system_named
from simulator.machine_systems.cluster_api import CLUSTER_NAME, MACHINE_DEPLOYMENTS, ClusterApi
from simulator.machine_systems.contract import MachineSettings, MachineSystem
from simulator.machine_systems.control_plane import machine_of
from simulator.node import NodeFault
from simulator.objects import JsonObject, name_of, uid_of
from simulator.resources import NAMESPACES
from simulator.tasks import Tasks

CRDS = Path(__file__).parent / "crds"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """system: `gardener`, `openshift`, `cluster-api` or `cluster-api-v1beta1`. deletes_failed: the sets of Gardener delete their
    Failed Machines.

    max_in_flight: the sets of Cluster API belong to MachineDeployments, which let them remediate so many at once (`2`, `"40%"`).
    control_plane: the control-plane nodes are Machines of Cluster API, too, of a KubeadmControlPlane; remediation: its maxRetry,
    retryPeriodSeconds and minHealthyPeriodSeconds. autoscaler: there is one (OpenShift, Cluster API).
    """

    system: str
    settings: MachineSettings = field(default_factory=MachineSettings)
    deletes_failed: bool = False
    max_in_flight: int | str | None = None
    control_plane: bool = False
    remediation: Mapping[str, int] = field(default_factory=dict)
    autoscaler: AutoscalerSettings | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What a provider has with new instances.

    refuses: it makes none. terminates: it accepts them, gives them an id, and cannot start them; they are gone a little later.
    fault: what each suffers from its first boot on, such as `never-boots`.
    """

    refuses: bool = False
    terminates: bool = False
    fault: NodeFault | None = None


class Instances:
    """The provider of the instances: a node of the simulated cluster is one.

    `refuses`: makes no more. `fault`: what every new one suffers from its first boot on, such as `never-boots`. `troubles`: the
    same and more for the Machines of one owner, a MachineSet by its name or `control-plane`.
    """

    def __init__(self, cluster: Cluster, *, terminates_after: float = 1.0) -> None:
        self.refuses = False
        self.fault: NodeFault | None = None
        self.troubles: dict[str, Trouble] = {}
        self._cluster = cluster
        self._terminates_after = terminates_after
        self._of: dict[str, Instance] = {}
        self._never_started = 0

    def adopt(self, machine: str, node: str) -> Instance:
        """A node that there is becomes the instance of a Machine (its uid)."""
        self._of[machine] = Instance(node=node, provider_id=self._cluster.node(node).identity.provider_id)
        return self._of[machine]

    def of(self, machine: str) -> Instance | None:
        return self._of.get(machine)

    def refuses_to(self, owner: str) -> bool:
        return self.refuses or self._trouble_of(owner).refuses

    def _trouble_of(self, owner: str) -> Trouble:
        return self.troubles.get(owner, Trouble())

    async def create(self, machine: str, *, zone: str, role: str, owner: str) -> Instance:
        if machine in self._of:
            return self._of[machine]
        trouble = self._trouble_of(owner)
        if trouble.terminates:
            self._never_started += 1
            name = f"never-started-{self._never_started}"
            self._of[machine] = Instance(node="", provider_id=f"simulated:///{zone}/{name}")
            asyncio.get_running_loop().call_later(self._terminates_after, self._of.pop, machine, None)
            return self._of[machine]
        node = await self._cluster.add_node(zone=zone, fault=trouble.fault or self.fault, role=role)
        return self.adopt(machine, node.name)

    async def switch_off(self, machine: str) -> None:
        if (instance := self._of.get(machine)) and instance.node:
            await self._cluster.switch_off(instance.node)

    async def destroy(self, machine: str) -> None:
        if (instance := self._of.pop(machine, None)) and instance.node:
            await self._cluster.remove_node(instance.node)


class Fleet:
    """All Machines of a cluster. `cluster.machines`."""

    def __init__(self, cluster: Cluster, options: MachineOptions) -> None:
        self.system: MachineSystem = machine_system_named(options.system)
        self.instances = Instances(cluster, terminates_after=options.settings.terminates_after)
        self.view: MachineView
        self._cluster = cluster
        self._options = options
        self._deployments: Informer | None = None
        self._control_plane: ControlPlane | None = None
        self._autoscaler: Autoscaler | None = None
        if (options.control_plane or options.max_in_flight is not None) and type(self.system) is not ClusterApi:
            raise ValueError(f"control planes and limits of remediation are those of cluster-api, not of {options.system}")
        if options.autoscaler is not None and not self.system.node_group:
            raise ValueError(f"there is no autoscaler for the Machines of {options.system} here")

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
        """Who wanted to delete Machines, or this one, in order."""
        prefix = f"/apis/{self.system.machines.api_version}/"
        found = []
        for write in self._cluster.deletions:
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

    @property
    def autoscaler(self) -> Autoscaler:
        if self._autoscaler is None:
            raise LookupError("the Machines of this simulated cluster were started without an autoscaler")
        return self._autoscaler

    @property
    def control_plane(self) -> ControlPlane:
        """The Machines of the control plane, and their etcd."""
        if self._control_plane is None:
            raise LookupError("the control plane of this simulated cluster was started without Machines")
        return self._control_plane

    def fail_preflight(self, problem: str) -> None:
        """MachineSets make and remediate nothing from now on, and say this; "" ends it."""
        self._sets.preflight = problem

    async def scale(self, machine_set: str, replicas: int) -> None:
        """Change the size of a set, as an autoscaler or a person does."""
        change, namespace = {"spec": {"replicas": replicas}}, self.system.namespace
        if self._deployments is not None:
            await self._cluster.client.patch(MACHINE_DEPLOYMENTS.path(machine_set, namespace=namespace), change)
        await self._cluster.client.patch(self.system.machine_sets.path(machine_set, namespace=namespace), change)

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
            await self._ensure(system.clusters.path(namespace=system.namespace), system.cluster())
            path = system.clusters.path(CLUSTER_NAME, namespace=system.namespace, subresource="status")
            await cluster.client.patch(path, {"status": system.cluster_status()})
        if self._options.max_in_flight is not None:
            self._deployments = Informer(cluster.client, MACHINE_DEPLOYMENTS)
            tasks.start(self._deployments.run(), name="informer machine deployments")
        tasks.start(self.view.run(), name="informers of machines")
        async with asyncio.timeout(30):
            await self.view.wait_until_synced()
            if self._deployments is not None:
                await self._deployments.synced.wait()
        client, settings = cluster.client.named(MACHINE_CONTROLLERS), self._options.settings
        self._controller = Machines(client, cluster.view, self.view, system=system, provider=self.instances, settings=settings)
        self._sets = MachineSets(client, cluster.view, self.view, system=system, settings=settings, deployments=self._deployments)
        adopted = [name for zone, nodes in self._zones("worker").items() for name in await self._adopt(zone, nodes)]
        if self._options.control_plane:
            assert isinstance(system, ClusterApi)
            zones = self._zones("control-plane")
            self._control_plane = ControlPlane(cluster, self.view, system=system, zones=sorted(zones))
            body = await self._control_plane.create(tasks, client, sum(map(len, zones.values())), self._options.remediation)
            for zone, nodes in zones.items():
                adopted += await self._adopt_all(nodes, machine_of(system, body, zone=zone), "control-plane-machine-")
        tasks.start(self._controller.run(), name="machine controller")
        tasks.start(self._sets.run(), name="machine set controller")
        await cluster.wait_until(lambda: all(map(self._has_joined, adopted)), seconds=60, what="all Machines Running")
        if self._control_plane is not None:
            await self._control_plane.start(tasks)
        if self._options.autoscaler is not None:
            self._autoscaler = Autoscaler(
                cluster.client.named(f"{USER_AGENT} autoscaler"),
                self.view,
                system=system,
                settings=self._options.autoscaler,
            )
            tasks.start(self._autoscaler.run(), name="autoscaler")

    def _has_joined(self, name: str) -> bool:
        """It is Running, and its Node names it."""
        machine = self.machine(name)
        node = self.view.node_of(machine) if machine is not None else None
        if machine is None or node is None:
            return False
        tied = self.system.ties(machine).items() <= (node["metadata"].get("annotations") or {}).items()
        return tied and self.system.phase(machine) == "Running"

    def _zones(self, role: str) -> dict[str, list[str]]:
        """The names of the nodes of a role by their zone."""
        zones: dict[str, list[str]] = {}
        for node in self._cluster.nodes.values():
            if node.identity.role == role:
                zones.setdefault(node.identity.zone, []).append(node.name)
        return zones

    async def _adopt(self, zone: str, nodes: Sequence[str]) -> list[str]:
        client, system, name = self._cluster.client, self.system, f"workers-{zone}"
        body = system.machine_set(name, zone=zone, replicas=len(nodes), deletes_failed=self._options.deletes_failed)
        if (sizes := self._options.autoscaler) is not None:
            bounds = {"min-size": sizes.min_size, "max-size": sizes.max_size}
            body["metadata"]["annotations"] |= {f"{system.node_group}{bound}": str(size) for bound, size in bounds.items()}
        if self._options.max_in_flight is not None and self._deployments is not None:
            assert isinstance(system, ClusterApi)
            deployment = system.machine_deployment(name, replicas=len(nodes), max_in_flight=self._options.max_in_flight)
            created = await client.create(MACHINE_DEPLOYMENTS.path(namespace=system.namespace), deployment)
            self._deployments.remember(created)
            body = system.belonging(body, created)
        machine_set = await client.create(system.machine_sets.path(namespace=system.namespace), body)
        self.view.machine_sets.remember(machine_set)
        return await self._adopt_all(nodes, system.machine_of(machine_set), "machine-")

    async def _adopt_all(self, nodes: Sequence[str], template: JsonObject, prefix: str) -> list[str]:
        """A Machine for each of these nodes, named after it."""
        names = []
        for node in nodes:
            machine = copy.deepcopy(template)
            metadata = machine["metadata"]
            del metadata["generateName"]
            metadata["name"] = prefix + node.rpartition("-")[2]
            metadata["labels"] |= self.system.labels_with(node)
            machine["spec"]["providerID"] = self._cluster.node(node).identity.provider_id
            created = await self._cluster.client.create(self.system.machines.path(namespace=self.system.namespace), machine)
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
