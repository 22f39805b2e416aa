"""What the activities of one cluster have in common: its name, where its objects are, the node they run on and the time."""

from __future__ import annotations

from activities.clocks import Clock, utc_now
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.machine_paths import Connections
from activities.errors import ErrorType, failure
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource


class OfOneCluster:
    """Served by the workers of one cluster's queue.

    machines: where Cluster API's objects live, if elsewhere. own_node: the node this worker runs on, "" where not known.
    source: of the fence policies, which say whether fencing is switched off.
    """

    def __init__(
        self,
        cluster: str,
        connection: ClusterConnection,
        *,
        machines: ClusterConnection | None = None,
        own_node: str = "",
        clock: Clock = utc_now,
        source: PolicySource = DEFAULT_SOURCE,
    ) -> None:
        self._cluster = cluster
        self._connection = connection
        self._machines = machines or connection
        self._connections = Connections(nodes=connection, machines=self._machines)
        self._own_node = own_node
        self._clock = clock
        self._source = source

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
