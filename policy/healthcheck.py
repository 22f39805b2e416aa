"""A health check after its dialect has been read: the one typed object that everything downstream knows.

The spellings (`NodeHealthCheck` of medik8s, `MachineHealthCheck` of OpenShift and of Cluster API) end in
`policy/dialects/`; how a target is judged by it is `policy/verdicts.py`, whether we may act on the sum `policy/brakes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from policy.selectors import Selector


class Dialect(StrEnum):
    """Whose rules hold for a check: rounding, empty selectors, what counts as healthy."""

    MEDIK8S = "medik8s"
    OPENSHIFT = "openshift"
    CLUSTER_API = "cluster-api"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A reference to a Kubernetes object. `namespace` is empty for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """Readable and unique in a cluster: `NodeHealthCheck/workers`, `MachineHealthCheck/openshift-machine-api/w`."""
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


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
class Rung:
    """One way to remediate, in ascending `order`. `timeout` None: this rung never times out."""

    template: ObjectRef
    order: int = 0
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One policy object. Exactly one of min_healthy and max_unhealthy is set; `paused` says why, "" when it is not."""

    ref: ObjectRef
    dialect: Dialect
    uid: str
    generation: int
    selector: Selector
    conditions: tuple[UnhealthyCondition, ...]
    min_healthy: Threshold | None = None
    max_unhealthy: Threshold | None = None
    rungs: tuple[Rung, ...] = ()
    paused: str = ""
    warnings: tuple[str, ...] = ()
    """What was asked for and is not carried out, where that only delays the way back; shown in the check's report."""
