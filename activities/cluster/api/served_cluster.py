"""One cluster as the workers of its queue serve it: its name, where its objects are, the node they run on and the time. And what
all activities of such a cluster have in common: they know this, and they refuse what is for another cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime

from activities.clocks import Clock, utc_now
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.machine_paths import Connections
from activities.errors import ErrorType, failure
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.fence.credential_hosts import CredentialHosts
from policy.remediation.remediation_objects import REMEDIATORS, Remediator


async def _unknown() -> CredentialHosts:
    return {}


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """machines: where Cluster API's objects live, None where all others do. own_node: the node this worker runs on, "" where not
    known. source: of the fence policies, which say whether fencing is switched off.
    remediators: what the objects of other controllers say. credential_hosts: asked of the check of devices (S40)."""

    name: str
    connection: ClusterConnection
    _: KW_ONLY
    machines: ClusterConnection | None = None
    own_node: str = ""
    clock: Clock = utc_now
    source: PolicySource = DEFAULT_SOURCE
    remediators: tuple[Remediator, ...] = REMEDIATORS
    credential_hosts: Callable[[], Awaitable[CredentialHosts]] = _unknown

    @property
    def connections(self) -> Connections[ClusterConnection]:
        """By which objects are read and written."""
        return Connections(nodes=self.connection, machines=self.machines or self.connection)

    def judged_at(self) -> datetime:
        """Never later than either clock: a wrong one makes us wait, and never calls a node failed early."""
        return self.connection.now() if self.clock is utc_now else self.clock()


class ClusterActivities:
    """Activities that the workers of one cluster's queue serve."""

    def __init__(self, served: ServedCluster) -> None:
        self._served = served
        self._cluster = served.name
        self._connection = served.connection
        self._connections = served.connections
        self._clock = served.clock
        self._source = served.source

    def _require_other_node(self, node: str, why: str) -> None:
        """Refuse the node this worker runs on, for another worker to take over (S16). why: ends the sentence."""
        if self._served.own_node and node == self._served.own_node:
            raise failure(ErrorType.OWN_NODE, f"this worker runs on Node/{node}{why}")


def require_cluster(asked: str, served: str) -> None:
    """Refuse what was routed to the workers of another cluster: node names repeat from cluster to cluster."""
    if asked != served:
        raise failure(
            ErrorType.INVALID_CONFIG,
            f"a request for cluster {asked!r} reached the worker of cluster {served!r}: check the task queues",
        )
