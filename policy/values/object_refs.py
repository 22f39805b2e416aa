"""References to objects of the API, and whose rules hold for a health check, which its group says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policy.values.machine_apis import CLUSTER_API, OPENSHIFT


class Dialect(StrEnum):
    """Whose rules hold for a check: rounding, empty selectors, what counts as healthy."""

    MEDIK8S = "medik8s"
    OPENSHIFT = "openshift"
    CLUSTER_API = "cluster-api"
    NODE_FENCING = "node-fencing"


_SECOND = CLUSTER_API.group


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
    OPENSHIFT.group: Dialect.OPENSHIFT,
    CLUSTER_API.group: Dialect.CLUSTER_API,
    "v1": Dialect.NODE_FENCING,  # a ConfigMap, of the core group
}


def dialect_of(ref: ObjectRef) -> Dialect:
    """Whose rules hold for a health check of that group, also for one that can't be read."""
    return _GROUPS.get(ref.api_version.partition("/")[0], Dialect.MEDIK8S)
