"""The remediation operators of a simulated cluster: their instances, and their way to the machines.

What each of them does is `remediators/`. `SimulatedCluster(remediators=("self-node-remediation", ...))` asks for some; only then
are their kinds there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from simulator.bmc.machine import Power, RefusedError
from simulator.client import USER_AGENT
from simulator.contract import Cluster
from simulator.machines import Fleet
from simulator.node import SimulatedNode
from simulator.remediators import remediator_named
from simulator.remediators.bare_metal_hosts import BareMetalHosts, with_hosts
from simulator.remediators.contract import Remediator, RemediatorTimings, Surroundings
from simulator.tasks import Tasks

CRDS = Path(__file__).parent / "crds"
Operator = TypeVar("Operator", bound=Remediator)
OPERATORS = f"{USER_AGENT} remediation-operators"


class Operators:
    """All remediation operators of a cluster."""

    def __init__(self, cluster: Cluster, fleet: Fleet | None, names: Sequence[str], timings: RemediatorTimings) -> None:
        self._kinds = [remediator_named(name) for name in names]
        for kind in self._kinds:
            kind.refuse_elsewhere(fleet.system.name if fleet is not None else "")
        self._cluster, self._fleet = cluster, fleet
        self._timings = timings
        self._running: list[Remediator] = []
        self._hosts: BareMetalHosts | None = None

    @property
    def crds(self) -> Sequence[Path]:
        return [CRDS / folder for folder in sorted({folder for kind in self._kinds for folder in kind.crds})]

    @property
    def hosts(self) -> BareMetalHosts:
        if self._hosts is None:
            raise LookupError("this simulated cluster was started without a remediator that works on BareMetalHosts")
        return self._hosts

    def one(self, kind: type[Operator]) -> Operator:
        """The running one of this kind. Raises LookupError where it was not asked for."""
        for each in self._running:
            if isinstance(each, kind):
                return each
        raise LookupError(f"this simulated cluster was started without {kind.name_to_ask_for}")

    def start(self, tasks: Tasks) -> None:
        """Once the nodes and their Machines are there."""
        cluster, fleet = self._cluster, self._fleet
        around = Surroundings(
            client=cluster.client.named(OPERATORS),
            view=cluster.view,
            hands=_ClusterHands(cluster),
            timings=self._timings,
            machines=fleet.view if fleet is not None else None,
            system=fleet.system if fleet is not None else None,
        )
        if any(BareMetalHosts.crds in kind.crds for kind in self._kinds):
            self._hosts = BareMetalHosts(around)
            tasks.start(self._hosts.run(), name="baremetal operator")
        for kind in self._kinds:
            operator = kind(with_hosts(around, self._hosts) if self._hosts is not None else around)
            self._running.append(operator)
            tasks.start(operator.run(), name=kind.name_to_ask_for)


class _ClusterHands:
    """Through the chassis where the machines have one, so that its log and the faults of devices count."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def machine(self, name: str) -> SimulatedNode | None:
        return self._cluster.nodes.get(name)

    async def reboot(self, name: str) -> None:
        if self._cluster.hardware is not None:
            await self._cluster.chassis.machine(name).reset()
        else:
            self._present(name).reset()

    async def switch(self, name: str, power: Power, *, device: str) -> None:
        machine = self._present(name)
        if self._cluster.hardware is not None:
            await self._cluster.chassis.machine(name).set_power(power, device)
        elif power == "on":
            machine.power_on()
        else:
            machine.power_off()

    async def read(self, name: str, *, device: str) -> Power:
        machine = self._present(name)
        if self._cluster.hardware is not None:
            return await self._cluster.chassis.machine(name).read(device)
        return "on" if machine.is_on else "off"

    def _present(self, name: str) -> SimulatedNode:
        """A machine that has been taken away meanwhile has no device any more."""
        machine = self.machine(name)
        if machine is None:
            raise RefusedError(f"{name} has been taken away")
        return machine
