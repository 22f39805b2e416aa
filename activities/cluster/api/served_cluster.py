"""One cluster as the workers of its queue serve it: its name, its connections, the node they run on and the time; and what all
activities of such a cluster have in common. What is for another cluster is refused before any of them begins (`ClusterGuard`).

Cluster API's objects may live behind another connection than the nodes (a management cluster). Which versions and kinds a server
has is asked of it here; where the kinds that we know live is `paths.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Generic, TypeVar
from urllib.parse import quote

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import Resource, in_management_cluster, versions_of
from activities.cluster.api.refusals import unless_gone
from activities.decision_stream import RecordDecisions
from activities.errors import ErrorType, failure
from activities.worker_clock import Clock, utc_now
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import RetryRules
from policy.fence.credential_hosts import CredentialHosts
from policy.history.offenders import NO_REPAIRS, FoundRepairs
from policy.remediation.memory import DEFAULT_RETRIES
from policy.remediation.remediation_objects import REMEDIATORS, Remediator

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections(Generic[C_co]):
    """Where nodes live, and where Cluster API's objects do. machine_namespaces: in which Machines and their health checks count
    (`policy.objects.machines.uncounted`)."""

    nodes: C_co
    machines: C_co
    machine_namespaces: tuple[str, ...] = ()

    def of(self, api_version: str) -> C_co:
        """The connection over which objects of that version are read and written."""
        return self.machines if in_management_cluster(api_version) else self.nodes


async def as_served(resource: Resource, read: Callable[[Resource], Awaitable[T]]) -> T | None:
    """What is read of it in the first version that is served; None where none is, or no such object is there."""
    for version in versions_of(resource):
        if (found := await unless_gone(read(version))) is not None:
            return found
    return None


class Discovery:
    """Which resource a kind is on one API server, for kinds that users name and that we do not know.

    By the server's own discovery, which every authenticated client may read. What was found stays found, what was not is asked
    for again, since an operator may be installed at any time.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], Resource] = {}

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """The resource, None where the server does not know such a kind."""
        if (api_version, kind) not in self._known:
            root = "/apis" if "/" in api_version else "/api"
            answer = await unless_gone(self._connection.get(f"{root}/{quote(api_version, safe='/')}")) or {}
            for each in answer.get("resources") or ():
                if "/" not in each["name"]:  # else it is a subresource
                    found = Resource(
                        api_version=api_version, kind=each["kind"], plural=each["name"], namespaced=bool(each["namespaced"])
                    )
                    self._known[api_version, each["kind"]] = found
        return self._known.get((api_version, kind))


async def _unknown() -> CredentialHosts:
    return {}


async def _not_counted(node: str, system_uuid: str) -> FoundRepairs:  # noqa: ARG001 - of any
    return NO_REPAIRS


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """machines: where Cluster API's objects live, None where all others do. own_node: the node this worker runs on, "" where not
    known. source: of the fence policies, which say whether fencing is switched off.
    remediators: what the objects of other controllers say. credential_hosts: asked of the check of devices (S40).
    repairs: of a machine, by the name of its Node and its system UUID; answers in a moment, whatever fails.
    record: writes the decision stream, None where none is configured. takeover: what another controller has taken up is acted on
    all the same. only_verified: a person's wish, or word for off, counts only where it was verified that it is theirs. retries:
    of checks that set none."""

    name: str
    connection: ClusterConnection
    _: KW_ONLY
    machines: ClusterConnection | None = None
    own_node: str = ""
    clock: Clock = utc_now
    source: PolicySource = DEFAULT_SOURCE
    remediators: tuple[Remediator, ...] = REMEDIATORS
    credential_hosts: Callable[[], Awaitable[CredentialHosts]] = _unknown
    repairs: Callable[[str, str], Awaitable[FoundRepairs]] = _not_counted
    record: RecordDecisions | None = None
    takeover: bool = False
    only_verified: bool = False
    retries: RetryRules = DEFAULT_RETRIES

    @property
    def connections(self) -> Connections[ClusterConnection]:
        """By which objects are read and written."""
        machines = self.machines or self.connection
        return Connections(nodes=self.connection, machines=machines, machine_namespaces=self.source.machines)

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
