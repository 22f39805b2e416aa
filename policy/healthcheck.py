"""A health check after its dialect has been read: the one typed object that everything downstream knows.

The spellings (`NodeHealthCheck` of medik8s, `MachineHealthCheck` of OpenShift and of Cluster API, `fence-cluster-config` of the
node-fencing proposal) end in `policy/dialects/`; how a target is judged by it is `policy/rules/`, whether we may act on the sum
`policy/brakes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from policy.remediation.memory import AUTOSCALER_PATIENCE, RetryRules
from policy.selectors import Selector
from policy.storms import Storm


class Dialect(StrEnum):
    """Whose rules hold for a check: rounding, empty selectors, what counts as healthy."""

    MEDIK8S = "medik8s"
    OPENSHIFT = "openshift"
    CLUSTER_API = "cluster-api"
    NODE_FENCING = "node-fencing"


_SECOND = "cluster.x-k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A reference to a Kubernetes object. `namespace` is empty for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """Readable and unique in a cluster: `NodeHealthCheck/workers`, `MachineHealthCheck/openshift-machine-api/w`. Two groups
        have a kind MachineHealthCheck; Cluster API's is called as kubectl would call it,
        `MachineHealthCheck.cluster.x-k8s.io/default/w`.
        """
        kind = f"{self.kind}.{_SECOND}" if self.api_version.startswith(f"{_SECOND}/") else self.kind
        return f"{kind}/{self.namespace}/{self.name}" if self.namespace else f"{kind}/{self.name}"


_GROUPS = {
    "remediation.medik8s.io": Dialect.MEDIK8S,
    "machine.openshift.io": Dialect.OPENSHIFT,
    "cluster.x-k8s.io": Dialect.CLUSTER_API,
    "v1": Dialect.NODE_FENCING,  # a ConfigMap, of the core group
}


def dialect_of(ref: ObjectRef) -> Dialect:
    """Whose rules hold for a health check of that group, also for one that can't be read."""
    return _GROUPS.get(ref.api_version.partition("/")[0], Dialect.MEDIK8S)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhealthyCondition:
    """A condition of the target that makes it unhealthy once it has held this status for strictly longer than `duration`."""

    type: str
    status: str
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """An int-or-percentage as Kubernetes objects write it: `3` or `"40%"`. Rounding is the dialect's (`policy/brakes.py`)."""

    value: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhealthyRange:
    """Cluster API's `[3-5]`: remediate only while so many are unhealthy, both ends included."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"[{self.least}-{self.most}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to remediate, in ascending `order`. `timeout` None: this rung never times out."""

    template: ObjectRef
    order: int = 0
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One policy object. `paused` says why, "" when it is not.

    Of min_healthy, max_unhealthy and unhealthy_range at most one holds a check back; which fields a dialect fills is said in its
    reader. startup_timeout: how long a Machine may be without a Node, None where that is never too long. cluster_name: only the
    Machines of that workload cluster (Cluster API). healthy_delay: how long a node must be well before its remediation is taken
    back; negative waits for a person (medik8s). external_strategy: OpenShift's old way of annotating a Machine for its
    bare-metal operator. storm: how far the storm was when the object's status was last written. escalation: strategies in their
    order, as the annotation of `policy/remediation/ladder.py` names them. retry: how often and how soon a replacement that fails
    is remediated in its turn; None where the check says nothing of that. max_in_flight: how many of its targets at once.
    autoscaler_patience: how old a Machine that never had a Node must be before it is replaced again.
    """

    ref: ObjectRef
    dialect: Dialect
    uid: str
    generation: int
    selector: Selector
    conditions: tuple[UnhealthyCondition, ...]
    machine_conditions: tuple[UnhealthyCondition, ...] = ()
    min_healthy: Threshold | None = None
    max_unhealthy: Threshold | None = None
    unhealthy_range: UnhealthyRange | None = None
    rungs: tuple[Rung, ...] = ()
    paused: str = ""
    startup_timeout: timedelta | None = None
    cluster_name: str = ""
    healthy_delay: timedelta = timedelta(0)
    external_strategy: bool = False
    storm_cooldown: timedelta | None = None
    storm: Storm = Storm()
    escalation: str = ""
    retry: RetryRules | None = None
    max_in_flight: Threshold | None = None
    autoscaler_patience: timedelta = AUTOSCALER_PATIENCE
    warnings: tuple[str, ...] = ()
    """What was understood although it is not written as the dialect wants it, and what is not carried out where that only delays
    the way back; shown in the check's report."""

    @property
    def of_machines(self) -> bool:
        """Whether its targets are Machines with their Nodes, or Nodes alone."""
        return self.dialect in {Dialect.OPENSHIFT, Dialect.CLUSTER_API}

    @property
    def remembers(self) -> bool:
        """Whether it says how a failed remediation is to be tried again."""
        return self.retry is not None

    def machine_ref(self, namespace: str, name: str) -> ObjectRef:
        """A Machine that it covers, in the version in which its group is spoken."""
        return ObjectRef(api_version=self.ref.api_version, kind="Machine", name=name, namespace=namespace)

    @property
    def template(self) -> ObjectRef | None:
        """The template of the first rung: the remedy that a target gets first."""
        return self.rungs[0].template if self.rungs else None
