"""What is known of one Machine and of the Cluster API Cluster it belongs to: the fields that decisions use, and nothing else.

Snapshots, as `policy/objects/nodes.py` has them of Nodes. OpenShift's and Cluster API's Machines differ in spelling only; how
they are decoded is `activities/cluster/objects/machines_decoding.py`, what their fields mean for health is
`policy/checks/rules/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from policy.objects.nodes import Condition
from policy.values.object_refs import Dialect

PAUSED_ANNOTATION = "cluster.x-k8s.io/paused"
"""On a check, a Cluster or a Machine; any value pauses, also an empty one."""

CLUSTER_NAME_LABEL = "cluster.x-k8s.io/cluster-name"
SKIP_ANNOTATION = "cluster.x-k8s.io/skip-remediation"
REMEDIATE_ANNOTATION = "cluster.x-k8s.io/remediate-machine"
EXTERNAL_REMEDIATION_ANNOTATION = "host.metal3.io/external-remediation"

FAILED = "Failed"
"""The phase of an OpenShift Machine that will never work again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One Machine as last seen. Empty strings mean that the object does not carry the field.

    node_name: of `status.nodeRef`. failure: reason and message of a terminal failure, in words. last_updated: OpenShift's
    start-up clock. controller: kind and name of the owner that controls it, "" for a Machine that nobody would replace.
    unreadable: why hardly anything is known of a Machine that is there all the same, "" for all others.
    """

    dialect: Dialect
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    phase: str = ""
    failure: str = ""
    deleting: bool = False
    created: datetime | None = None
    last_updated: datetime | None = None
    node_name: str = ""
    provider_id: str = ""
    cluster_name: str = ""
    controller: str = ""
    control_plane: bool = False
    unreadable: str = ""

    @property
    def key(self) -> str:
        """Unique among all targets: no name of a Node contains a slash."""
        return machine_key(self.dialect, self.namespace, self.name)

    @property
    def kept_out(self) -> str:
        """A person's word that keeps a Machine of Cluster API out of remediation, "" where there is none."""
        if self.dialect is Dialect.CLUSTER_API:
            for annotation in (SKIP_ANNOTATION, PAUSED_ANNOTATION):
                if annotation in self.annotations:
                    return f"the annotation {annotation} keeps the Machine {self.name} out of remediation"
        return ""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, or None where the Machine does not report it."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCluster:
    """A Cluster API `Cluster`. The moments are None while it is not so; `paused` says why, "" when it is not. version: of
    Kubernetes, as its topology wants it, "" where it has none.
    """

    namespace: str
    name: str
    paused: str = ""
    control_plane_initialized: bool = False
    control_plane_initialized_since: datetime | None = None
    infrastructure_ready: bool = False
    infrastructure_ready_since: datetime | None = None
    version: str = ""

    @property
    def key(self) -> str:
        """Unique among Clusters."""
        return f"{self.namespace}/{self.name}"


def machine_key(dialect: Dialect, namespace: str, name: str) -> str:
    """The key of a Machine among all targets."""
    return f"{dialect}/{namespace}/{name}"
