"""What is known of one Machine and of the Cluster API Cluster it belongs to: the fields that decisions use, and nothing else.

Snapshots, as `policy/objects/nodes.py` has them of Nodes. The Machines of OpenShift, Cluster API and machine-controller-manager
differ in spelling only (`policy/values/machine_apis.py`). How they are decoded is
`activities/cluster/objects/machines_decoding.py`, what their fields mean for health is `policy/checks/rules/`, and for whether a
machine is kept `policy/preservation/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from policy.objects.nodes import Condition
from policy.values.machine_apis import MCM, MachineApi
from policy.values.times import moment_of

PAUSED_ANNOTATION = "cluster.x-k8s.io/paused"
"""On a check, a Cluster or a Machine; any value pauses, also an empty one."""

CLUSTER_NAME_LABEL = "cluster.x-k8s.io/cluster-name"
UPGRADE_STEP_ANNOTATION = "topology.internal.cluster.x-k8s.io/upgrade-step"
"""On a Cluster: the step of a chained upgrade that is under way (Cluster API 3c7007896f)."""

SKIP_ANNOTATION = "cluster.x-k8s.io/skip-remediation"
REMEDIATE_ANNOTATION = "cluster.x-k8s.io/remediate-machine"
EXTERNAL_REMEDIATION_ANNOTATION = "host.metal3.io/external-remediation"

FAILED = "Failed"
"""The phase of a Machine that will never work again, in each of the APIs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One Machine as last seen: from the watch cache, a live read, or files. Empty strings mean that the object does not carry
    the field.

    node_name: whom it names as its Node. phase: in its API's own words. failure: reason and message of a terminal failure, in
    words. deletion_waits: what holds its deletion up, in words, "" while nothing says. last_updated: OpenShift's start-up clock.
    controller: kind and name of the owner that controls it, "" for a Machine that nobody would replace. expiry: until when it is
    preserved, None while it is not. preserve_timeout: for how long, as its own specification says, None where that says nothing.
    preservation_problem: why what it says of its preservation can't be read, "" where it can. unreadable: why hardly anything is
    known of a Machine that is there all the same, "" for all others.
    """

    api: MachineApi
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
    deleting_since: datetime | None = None
    deletion_waits: str = ""
    created: datetime | None = None
    last_updated: datetime | None = None
    node_name: str = ""
    provider_id: str = ""
    cluster_name: str = ""
    controller: str = ""
    control_plane: bool = False
    expiry: datetime | None = None
    preserve_timeout: timedelta | None = None
    preservation_problem: str = ""
    unreadable: str = ""

    @property
    def key(self) -> str:
        """Unique among all targets: no name of a Node contains a slash."""
        return machine_key(self.api, self.namespace, self.name)

    @property
    def kept_out_by(self) -> str:
        """The annotation by which people keep it out of remediation, "" where it carries none."""
        return next((each for each in (PAUSED_ANNOTATION, SKIP_ANNOTATION) if each in self.annotations), "")

    @property
    def failed(self) -> str:
        """Why it will never work, "" while it may."""
        if self.phase == FAILED:
            return f"its phase is {FAILED}{f' ({self.failure})' if self.failure else ''}"
        return f"it reports a failure that it can't recover from ({self.failure})" if self.failure else ""

    @property
    def goes_first(self) -> str:
        """What stands where somebody says that it goes first when its set is scaled down, "" where nobody does."""
        for annotation in self.api.goes_first:
            value = self.annotations.get(annotation)
            if self.api is MCM and moment_of(value) is None:
                continue  # there a mark that is no moment is none
            if value or (value is not None and self.api.empty_goes_first):
                return value or "marked"
        return ""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, or None where the Machine does not report it."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCluster:
    """A Cluster API `Cluster`. The moments are None while it is not so; `paused` says why, "" when it is not. version: of
    Kubernetes, as its topology wants it, "" where it has none. upgrade_step: the version that a chained upgrade wants for now.
    """

    namespace: str
    name: str
    paused: str = ""
    control_plane_initialized: bool = False
    control_plane_initialized_since: datetime | None = None
    infrastructure_ready: bool = False
    infrastructure_ready_since: datetime | None = None
    version: str = ""
    upgrade_step: str = ""

    @property
    def key(self) -> str:
        """Unique among Clusters."""
        return f"{self.namespace}/{self.name}"


def machine_key(api: MachineApi, namespace: str, name: str) -> str:
    """The key of a Machine among all targets."""
    return f"{api.name}/{namespace}/{name}"
