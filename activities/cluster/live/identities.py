"""Who else says that he is the machine of a Node: asked before a machine is destroyed, or anything is freed of it (S39).

A kubelet writes its providerID and its system UUID itself when it registers. Whoever copies another's would have us switch that
one off; and a Machine that has the providerID and another Node claims the machine as well. All that can claim it is watched from
the first question on; until the watch has seen it, all Nodes and Machines are listed. It can only say no.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.machine_paths import MACHINES, Connections, as_served
from activities.cluster.api.paths import FENCE_CONFIGS, FENCING_TEMPLATES, NODES
from activities.cluster.live.plans import all_of
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.objects.object_reader import Readers, read_views
from policy.fence.kdump import normal_address
from policy.objects.belonging import claimed_otherwise, contested, identities_of
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT, MachineApi


class WatchedNodes(Protocol):
    """Watches all that can claim a machine of the cluster."""

    def follow_claims(self) -> bool:
        """Follow from now on what can claim a machine. Whether all Nodes and Machines are known, and nothing is in doubt."""

    def contested(self, node: NodeView) -> str:
        """Who else says that he is that Node's machine, in words; "" for nobody."""

    def nodes(self) -> Iterable[NodeView]:
        """All Nodes."""

    def fence_objects(self) -> list[JsonObject] | None:
        """All FencingTemplates and FenceConfigs, None where not all are known."""


class Identities:
    """Of one cluster. watched: None where nobody watches."""

    def __init__(self, connections: Connections[ClusterConnection], watched: WatchedNodes | None = None) -> None:
        self._connections = connections
        self._watched = watched

    async def contested(self, node: NodeView) -> str:
        """The same, as far as anybody can know. Raises what the API refuses."""
        if not identities_of(node):
            return ""
        if self._watched is not None and self._watched.follow_claims():
            return self._watched.contested(node)
        known = await self._listed()
        machines = [each for api in (OPENSHIFT, CLUSTER_API) for each in await self._machines(api)]
        return contested(node, lambda key: known.get(key, ())) or claimed_otherwise(node, machines)

    async def at_address(self, node: str, address: str) -> str:
        """Which other Node shows that address, "" for none."""
        watched = self._watched
        others = watched.nodes() if watched is not None and watched.follow_claims() else await self._nodes()
        return next((each.name for each in others if each.name != node and address in map(normal_address, each.addresses)), "")

    async def fence_objects(self, once: Readers | None = None) -> list[JsonObject]:
        """All objects that name nodes beside devices."""
        if self._watched is not None and self._watched.follow_claims() and (seen := self._watched.fence_objects()) is not None:
            return seen
        reader = (once or self._connections).nodes
        return [each for resource in (FENCING_TEMPLATES, FENCE_CONFIGS) for each in await all_of(reader, resource.path())]

    async def _nodes(self) -> list[NodeView]:
        return await read_views(self._connections.nodes, NODES, NODE_DECODING)

    async def _machines(self, api: MachineApi) -> list[MachineView]:
        connection = self._connections.of(api.api_version)
        return await as_served(MACHINES[api], lambda version: read_views(connection, version, machine_decoding(api))) or []

    async def _listed(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for view in await self._nodes():
            for key in identities_of(view):
                found[key].append(view.name)
        return found
