"""Who else says that he is the machine of a Node: asked before a machine is destroyed, or anything is freed of it (S39).

A kubelet writes its providerID and its system UUID itself when it registers. Whoever copies another's would have us switch that
one off. Everybody who is there was seen by the watch; where that is not whole, all Nodes are listed. It can only say no.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import NODES
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.reading import read_views
from policy.objects.belonging import contested, identities_of
from policy.objects.nodes import NodeView


class WatchedNodes(Protocol):
    """Whoever watches all Nodes of the cluster."""

    @property
    def whole(self) -> bool:
        """Whether nothing speaks against what it has seen."""

    def contested(self, node: NodeView) -> str:
        """Who else says that he is that Node's machine, in words; "" for nobody."""


class Identities:
    """Of one cluster. watched: None where nobody watches."""

    def __init__(self, connection: ClusterConnection, watched: WatchedNodes | None = None) -> None:
        self._connection = connection
        self._watched = watched

    async def contested(self, node: NodeView) -> str:
        """The same, as far as anybody can know. Raises what the API refuses."""
        if not identities_of(node):
            return ""
        if self._watched is not None and self._watched.whole:
            return self._watched.contested(node)
        known = await self._listed()
        return contested(node, lambda key: known.get(key, ()))

    async def _listed(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for view in await read_views(self._connection, NODES, NODE_DECODING):
            for key in identities_of(view):
                found[key].append(view.name)
        return found
