"""Who else says that he is the machine of a Node: asked before a machine is destroyed, or anything is freed of it (S39).

A kubelet writes its providerID and its system UUID itself when it registers. Whoever copies another's would have us switch that
one off; and a Machine that has the providerID and another Node claims the machine as well. Everybody who is there was seen by the
watch; where that is not whole, all Nodes and Machines are listed. It can only say no.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.machine_paths import MACHINES, Connections, as_served
from activities.cluster.api.paths import NODES
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.livenode import addresses_of
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.objects.reading import read_views
from policy.fence.kdump import normal_address
from policy.objects.belonging import claimed_otherwise, contested, identities_of
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT, MachineApi


class WatchedNodes(Protocol):
    """Whoever watches all Nodes of the cluster."""

    @property
    def whole(self) -> bool:
        """Whether it has seen all Nodes and Machines, and nothing speaks against it."""

    def contested(self, node: NodeView) -> str:
        """Who else says that he is that Node's machine, in words; "" for nobody."""


class Identities:
    """Of one cluster. watched: None where nobody watches."""

    def __init__(self, connections: Connections[ClusterConnection], watched: WatchedNodes | None = None) -> None:
        self._connections = connections
        self._watched = watched

    async def contested(self, node: NodeView) -> str:
        """The same, as far as anybody can know. Raises what the API refuses."""
        if not identities_of(node):
            return ""
        if self._watched is not None and self._watched.whole:
            return self._watched.contested(node)
        known = await self._listed()
        machines = [each for api in (OPENSHIFT, CLUSTER_API) for each in await self._machines(api)]
        return contested(node, lambda key: known.get(key, ())) or claimed_otherwise(node, machines)

    async def at_address(self, node: str, address: str) -> str:
        """Which other Node shows that address, "" for none. Read from the server, as a watch keeps no addresses."""
        for other in await self._connections.nodes.list_objects(NODES.path()):
            if address in map(normal_address, addresses_of(other)) and other["metadata"]["name"] != node:
                return str(other["metadata"]["name"])
        return ""

    async def _machines(self, api: MachineApi) -> list[MachineView]:
        connection = self._connections.of(api.api_version)
        return await as_served(MACHINES[api], lambda version: read_views(connection, version, machine_decoding(api))) or []

    async def _listed(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for view in await read_views(self._connections.nodes, NODES, NODE_DECODING):
            for key in identities_of(view):
                found[key].append(view.name)
        return found
