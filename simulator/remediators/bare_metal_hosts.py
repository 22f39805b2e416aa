"""BareMetalHosts and the baremetal operator: one host for each Machine's server; it keeps the power as the object says.

A host is on while `spec.online` is true and has no annotation `reboot.metal3.io/<who>`; so a remediation
switches it off, and on again by taking its annotation away. Whatever else switched it off is undone, too. The Machine is
annotated with the host's name, also in Cluster API, where there the Metal3Machine would be. Left out: provisioning, and
`reboot.metal3.io` alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import ClassVar

from simulator.bmc.machine import Power, RefusedError
from simulator.client import ApiError
from simulator.controllers.runtime import Controller, own_key
from simulator.informer import Informer
from simulator.objects import JsonObject, is_terminating, key_of, name_of, uid_of
from simulator.remediators.contract import Surroundings, annotation
from simulator.resources import Resource

HOST = "metal3.io/BareMetalHost"
POWER_OFF = "reboot.metal3.io/"
DEVICE = "baremetal-operator"
NO_ANSWER_SECONDS = 5.0


class BareMetalHosts(Controller):
    """Works per node that has a Machine. The host of `node-3` is `host-3`, in the namespace of the Machines."""

    resource: ClassVar[Resource] = Resource(api_version="metal3.io/v1alpha1", kind="BareMetalHost", plural="baremetalhosts")
    crds: ClassVar[str] = "baremetal-operator"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.client, around.view)
        assert around.machines is not None
        assert around.system is not None
        self.hosts = Informer(around.client, self.resource)
        self._machines, self._system = around.machines.machines, around.system
        self._hands, self._timings = around.hands, around.timings
        self._switch_due: dict[str, float] = {}
        self.look_on(self.hosts, lambda host: [_node_of(host)])
        self.look_on(self._machines, lambda machine: [node] if (node := around_node(around, machine)) else [])
        self.look_on(around.view.nodes, own_key)
        for machine in self._machines:
            if node := self._system.node_named(machine):
                self.queue.add(node)

    # Doors

    def of_node(self, node: str) -> JsonObject | None:
        return self.hosts.get(f"{self._system.namespace}/{_host_of(node)}")

    async def set_online(self, node: str, online: bool) -> None:
        """A person switches the host of a node off for good, or on."""
        await self.client.patch(self._path(node), {"spec": {"online": online}})

    # For those that remediate

    def of_machine(self, machine: JsonObject) -> JsonObject | None:
        """None while it has none."""
        return self.hosts.get(annotation(machine, HOST))

    async def annotate(self, host: JsonObject, key: str, value: str | None) -> None:
        """None takes the annotation away."""
        path = self.resource.path_of_key(key_of(host))
        self.hosts.remember(await self.client.patch(path, {"metadata": {"annotations": {key: value}}}))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hosts.run(), name="informer baremetalhosts")
            await self.hosts.synced.wait()
            group.create_task(super().run(), name=self.name)

    # The operator

    async def reconcile(self, key: str) -> float | None:
        host, machine = self.of_node(key), self._machine_on(key)
        if host is None:
            if machine is None:
                return None
            host = await self._create(key, machine)
        consumer = _consumer(machine) if machine is not None else None
        if (host["spec"].get("consumerRef") or None) != consumer:
            self.hosts.remember(await self.client.patch(self._path(key), {"spec": {"consumerRef": consumer}}))
        if machine is not None and annotation(machine, HOST) != key_of(host):
            path = self._machines.resource.path_of_key(key_of(machine))
            self._machines.remember(await self.client.patch(path, {"metadata": {"annotations": {HOST: key_of(host)}}}))
        return await self._keep_power(key, self.of_node(key) or host)

    async def _keep_power(self, node: str, host: JsonObject) -> float:
        error = ""
        try:
            async with asyncio.timeout(NO_ANSWER_SECONDS):
                power = await self._power_of(node)
                if (wait := await self._switch(node, power, _wanted(host))) > 0:
                    await self._report(host, power, error)
                    return wait
                power = await self._power_of(node)
        except (RefusedError, TimeoutError) as refusal:
            power, error = _reported(host), f"the BMC does not do it: {refusal}"
        await self._report(host, power, error)
        return self._timings.poll

    async def _power_of(self, node: str) -> Power:
        if self._hands.machine(node) is None:
            return "off"
        return await self._hands.read(node, device=DEVICE)

    async def _switch(self, node: str, power: Power, wanted: Power) -> float:
        """Bring it there once it has had its time; how long that still is."""
        if power == wanted or self._hands.machine(node) is None:
            self._switch_due.pop(node, None)
            return 0.0
        now = asyncio.get_running_loop().time()
        due = self._switch_due.setdefault(node, now + self._timings.power)
        if now >= due:
            del self._switch_due[node]
            await self._hands.switch(node, wanted, device=DEVICE)
            return 0.0
        return due - now

    async def _report(self, host: JsonObject, power: Power, error: str) -> None:
        status = {"poweredOn": power == "on", "errorMessage": error, "provisioning": {"state": "provisioned"}}
        known = host.get("status") or {}
        if any(known.get(field) != value for field, value in status.items()):
            path = self.resource.path_of_key(key_of(host), subresource="status")
            self.hosts.remember(await self.client.patch(path, {"status": status}))

    async def _create(self, node: str, machine: JsonObject) -> JsonObject:
        body = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": _host_of(node), "namespace": self._system.namespace},
            "spec": {"online": True, "consumerRef": _consumer(machine)},
        }
        try:
            host = await self.client.create(self.resource.path(namespace=self._system.namespace), body)
        except ApiError as error:
            if not error.already_exists:
                raise
            return await self.client.get(self._path(node))
        self.hosts.remember(host)
        return host

    def _machine_on(self, node: str) -> JsonObject | None:
        found = (each for each in self._machines if self._system.node_named(each) == node and not is_terminating(each))
        return next(found, None)

    def _path(self, node: str) -> str:
        return self.resource.path(_host_of(node), namespace=self._system.namespace)


def around_node(around: Surroundings, machine: JsonObject) -> str:
    """The name of the node of a Machine, "" before it has one."""
    return around.system.node_named(machine) if around.system is not None else ""


def _host_of(node: str) -> str:
    return node.replace("node-", "host-")


def _node_of(host: JsonObject) -> str:
    return name_of(host).replace("host-", "node-")


def _consumer(machine: JsonObject) -> JsonObject:
    metadata = machine["metadata"]
    return {
        "apiVersion": machine["apiVersion"],
        "kind": machine["kind"],
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": uid_of(machine),
    }


def _wanted(host: JsonObject) -> Power:
    asked_off = any(key.startswith(POWER_OFF) for key in host["metadata"].get("annotations") or {})
    return "on" if host["spec"].get("online") and not asked_off else "off"


def _reported(host: JsonObject) -> Power:
    return "on" if is_powered_on(host) else "off"


def is_powered_on(host: JsonObject) -> bool:
    """As the operator has last seen it."""
    return bool((host.get("status") or {}).get("poweredOn"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SurroundingsWithHosts(Surroundings):
    """Where operators work on the servers of the Machines."""

    hosts: BareMetalHosts


def with_hosts(around: Surroundings, hosts: BareMetalHosts) -> SurroundingsWithHosts:
    """The same, with the servers of the Machines."""
    return SurroundingsWithHosts(**{field.name: getattr(around, field.name) for field in fields(around)}, hosts=hosts)
