"""What the parts of a simulated cluster (its Machines, their control plane, the remediation operators) see of the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from simulator.api.control.request_log import Write
from simulator.bmc.chassis import Chassis
from simulator.client import ApiClient
from simulator.hardware import Hardware
from simulator.informer import ClusterView
from simulator.node import NodeFault, SimulatedNode


class Cluster(Protocol):
    """A `SimulatedCluster`, without the doors that are for tests alone."""

    @property
    def client(self) -> ApiClient: ...
    @property
    def view(self) -> ClusterView: ...
    @property
    def nodes(self) -> Mapping[str, SimulatedNode]: ...
    @property
    def hardware(self) -> Hardware | None: ...
    @property
    def chassis(self) -> Chassis: ...
    @property
    def deletions(self) -> Sequence[Write]: ...

    def node(self, name: str) -> SimulatedNode:
        """Raises LookupError where there is none of that name."""

    async def add_node(self, *, zone: str, fault: NodeFault | None = None, role: str = "worker") -> SimulatedNode: ...
    async def switch_off(self, name: str) -> None: ...
    async def remove_node(self, name: str) -> None: ...
    async def wait_until(self, condition: Callable[[], bool], *, seconds: float = 20.0, what: str = "") -> None:
        """Raises TimeoutError naming `what` never came."""
