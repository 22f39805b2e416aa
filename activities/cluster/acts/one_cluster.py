"""What the activities of one cluster have in common: what they know of it, and what they refuse."""

from __future__ import annotations

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.errors import ErrorType, failure


class OfOneCluster:
    """Served by the workers of one cluster's queue."""

    def __init__(self, served: ServedCluster) -> None:
        self._served = served
        self._cluster = served.name
        self._connection = served.connection
        self._connections = served.connections
        self._own_node = served.own_node
        self._clock = served.clock
        self._source = served.source

    def _connection_of(self, api_version: str) -> ClusterConnection:
        """By which objects of that version are read and written."""
        return self._connections.of(api_version)

    def _require_other_node(self, node: str, why: str) -> None:
        """Refuse the node this worker runs on, for another worker to take over (S16). why: ends the sentence."""
        if self._own_node and node == self._own_node:
            raise failure(ErrorType.OWN_NODE, f"this worker runs on Node/{node}{why}")


def require_cluster(asked: str, served: str) -> None:
    """Refuse what was routed to the workers of another cluster: node names repeat from cluster to cluster."""
    if asked != served:
        raise failure(
            ErrorType.INVALID_CONFIG,
            f"a request for cluster {asked!r} reached the worker of cluster {served!r}: check the task queues",
        )
