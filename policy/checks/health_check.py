"""A health check after its dialect has been read: the typed object that everything downstream uses (`HealthCheck`), the storm
that it may be in (`Storm`), and what holds where several checks cover one node (`Overlap`).

The spellings (`NodeHealthCheck` of medik8s, `MachineHealthCheck` of OpenShift and of Cluster API, `fence-cluster-config` of the
node-fencing proposal) are read in `policy/dialects/`. `policy/checks/rules/` judges one target by a check;
`policy/checks/circuit_breakers.py` judges the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.checks.retries import AUTOSCALER_PATIENCE, RetryRules
from policy.objects.remediations import RemediationObject, kind_of
from policy.values.machine_apis import MachineApi, named
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import Selector
from policy.values.thresholds import Threshold
from policy.values.times import RESOLUTION, later

# The storm of a health check: after a breach of its threshold, how long all targets must have been well before we act again.
#
# This is medik8s' `stormCooldownDuration`. The state lives in two conditions of the object, `StormActive` and
# `StormCooldownActive`, so that it survives every process. Unlike the shipped operator, we also end a storm where all targets
# heal at once: every look at the sum advances it, not only a look that finds a target to remediate.

ACTIVE = "StormActive"
COOLING_DOWN = "StormCooldownActive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """active: since when the threshold has been breached, None where no storm is on. cooling: since when it is no more."""

    active: datetime | None = None
    cooling: datetime | None = None


def advance(storm: Storm, cooldown: timedelta | None, *, breached: bool, now: datetime) -> Storm:
    """The storm as it is now. A new breach during the cooldown starts it anew; without a cooldown there are no storms.

    Moments are kept in whole seconds, as the object's status will have them.
    """
    if cooldown is None:
        return Storm()
    moment = now.replace(microsecond=0)
    if breached:
        return storm if storm.active and not storm.cooling else Storm(active=storm.active or moment)
    if storm.active is None:
        return Storm()
    if storm.cooling is None:
        return Storm(active=storm.active, cooling=moment)
    end = over(storm, cooldown)
    return Storm() if end is not None and now >= end else storm


def stricter(one: Storm, other: Storm) -> Storm:
    """Of two accounts of one storm the one that holds back for longer: a storm before none, no cooldown before a cooldown, the
    later cooldown before the earlier one."""
    if one.active is None or other.active is None:
        return other if one.active is None else one
    cooling = max(one.cooling, other.cooling) if one.cooling is not None and other.cooling is not None else None
    return Storm(active=min(one.active, other.active), cooling=cooling)


def over(storm: Storm, cooldown: timedelta | None) -> datetime | None:
    """The moment at which a cooldown has certainly ended, None while none is running."""
    return later(storm.cooling, cooldown, RESOLUTION) if storm.cooling is not None and cooldown is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhealthyCondition:
    """A condition of the target that makes it unhealthy once it has held this status for strictly longer than `duration`."""

    type: str
    status: str
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhealthyRange:
    """Cluster API's `[3-5]`: remediate only while the number of unhealthy targets is in the range, both ends included."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"[{self.least}-{self.most}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalatingRemediation:
    """One way to remediate, in ascending `order`. `timeout` None: this rung never times out."""

    template: ObjectRef
    order: int = 0
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One policy object. `paused` says why, "" when it is not.

    Of min_healthy, max_unhealthy and unhealthy_range at most one limits a check; each dialect's reader says which fields it
    fills. startup_timeout: how long a Machine may be without a Node, None for no limit. cluster_name: only the Machines of that
    workload cluster (Cluster API). healthy_delay: how long a node must be well before its remediation is removed; negative
    waits for a person (medik8s). rungs: in their order. external_strategy: OpenShift's old way of annotating a Machine for its
    bare-metal operator. storm: the storm as the object's status last had it. escalation: strategies in their order, as the
    annotation of `policy/remediation/ladder.py` names them. retry: how often and how soon a replacement that fails is
    remediated in its turn; None where the check does not set it. max_in_flight: how many of its targets at once.
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
    rungs: tuple[EscalatingRemediation, ...] = ()
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
    """What was accepted although it is not written as the dialect wants it, and what is not carried out because that only
    delays the way back; shown in the check's report."""

    @property
    def of_machines(self) -> bool:
        """Whether its targets are Machines with their Nodes, or Nodes alone."""
        return self.machine_api is not None

    @property
    def machine_api(self) -> MachineApi | None:
        """The API of the Machines that it judges, None for a check of Nodes."""
        return named(self.dialect)

    @property
    def remembers(self) -> bool:
        """Whether it sets how a failed remediation is tried again."""
        return self.retry is not None

    def makes(self, remediation: RemediationObject) -> bool:
        """Whether the object is of a kind that one of its templates makes, and lies where they are made: a Machine's beside the
        Machine, a Node's beside the template. An object about a Node in another place means nothing, even if it names this
        check as its owner (S46)."""
        made = (remediation.ref.api_version.partition("/")[0], remediation.ref.kind)
        return any(
            kind_of(rung.template) == made and (self.of_machines or rung.template.namespace in {"", remediation.ref.namespace})
            for rung in self.rungs
        )

    def owns(self, remediation: RemediationObject) -> bool:
        """Whether it created the object. The uid decides where both have one, else the name."""
        return any(
            owner.kind == self.ref.kind
            and owner.name == self.ref.name
            and (not owner.uid or not self.uid or owner.uid == self.uid)
            for owner in remediation.owners
        )

    def machine_ref(self, namespace: str, name: str) -> ObjectRef:
        """A Machine that it covers, in the version that its group is read in."""
        return ObjectRef(api_version=self.ref.api_version, kind="Machine", name=name, namespace=namespace)

    @property
    def template(self) -> ObjectRef | None:
        """The template of the first rung: the remedy that a target gets first."""
        return self.rungs[0].template if self.rungs else None


# Where several health checks cover one node, the user chooses which of them holds (the setting `scan.overlap`).


class Overlap(StrEnum):
    """strictest: of several checks that cover a node, no circuit breaker may be open. independent: each acts by its own."""

    STRICTEST = "strictest"
    INDEPENDENT = "independent"
