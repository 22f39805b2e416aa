"""A health check after its dialect has been read: the typed object that everything downstream uses.

In this order: how a remediation that did not last is tried again (`RetryRules`), the storm that a check may be in (`Storm`), the
check itself (`HealthCheck`), and what holds where several checks cover one node (`Overlap`).

The spellings (`NodeHealthCheck` of medik8s, `MachineHealthCheck` of OpenShift and of Cluster API, `fence-cluster-config` of the
node-fencing proposal) are read in `policy/dialects/`. `policy/checks/rules/` judges one target by a check;
`policy/checks/circuit_breakers.py` judges the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from policy.objects.remediations import RemediationObject, kind_of
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields, Threshold
from policy.values.machine_apis import MachineApi, named
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import Selector
from policy.values.times import RESOLUTION, later

# How often and how soon a remediation that did not last is tried again: the settings of a health check.
#
# `maxRetry`, `retryPeriod` and `minHealthyPeriod` mean what they mean for KubeadmControlPlane, here for all machines; the
# exponential pause is the one that the node health check's proposal only suggests. The schema of a health check has hardly any of
# them, and an API server prunes unknown fields: so there is an annotation for each. `policy/remediation/memory.py` applies them
# to a machine that was remediated before.

MAX_RETRY_ANNOTATION = "nodewarden.io/max-retry"
RETRY_PERIOD_ANNOTATION = "nodewarden.io/retry-period"
MIN_HEALTHY_PERIOD_ANNOTATION = "nodewarden.io/min-healthy-period"
BACKOFF_ANNOTATION = "nodewarden.io/backoff"
BACKOFF_LIMIT_ANNOTATION = "nodewarden.io/backoff-limit"
"""On a health check."""

EXPONENTIAL, NONE = "exponential", "none"

DEFAULT_MIN_HEALTHY_PERIOD = timedelta(hours=1)

MAX_NODE_PROVISION_TIME = timedelta(minutes=15)
"""The cluster autoscaler's default: how long it waits for the Node of a machine before it calls the set unhealthy, scales it
back and tries another one. A machine that is replaced earlier starts its clock again, for ever."""

AUTOSCALER_MARGIN = timedelta(minutes=1)
"""Its clock starts when it first *sees* the machine, some scans after the creation; then it still has to act."""

AUTOSCALER_PATIENCE = MAX_NODE_PROVISION_TIME + AUTOSCALER_MARGIN

LONGEST_PERIOD = timedelta(days=365)
MOST_RETRIES = 1_000_000

_SECOND = timedelta(seconds=1)
_MOST_DOUBLINGS = 40
"""Of a pause; more would change nothing: the limit has long been reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBackoff:
    """The pause after a remediation that did not last, doubled with each retry up to the limit."""

    base: timedelta = timedelta(seconds=30)
    limit: timedelta = timedelta(minutes=10)

    def before(self, retry: int) -> timedelta:
        """The pause between the remediation before and that retry (1 is the first)."""
        doublings = min(max(retry - 1, 0), _MOST_DOUBLINGS)
        # First the limit is divided: doubling would leave what a timedelta holds.
        return self.limit if self.base > self.limit / 2**doublings else min(self.limit, self.base * 2**doublings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """max_retry None: without limit. retry_period: between two remediations of a sequence. min_healthy_period: a failure that
    long after the last remediation begins a new sequence. backoff None: no pause besides the retry_period."""

    max_retry: int | None = None
    retry_period: timedelta = timedelta(0)
    min_healthy_period: timedelta = DEFAULT_MIN_HEALTHY_PERIOD
    backoff: RetryBackoff | None = None


def strictest(rules: Iterable[RetryRules]) -> RetryRules:
    """For overlapping checks: the longest wait and the smallest limit win, from whichever check."""
    found = tuple(rules)
    if not found:
        return RetryRules()
    limits = [each.max_retry for each in found if each.max_retry is not None]
    backoffs = [each.backoff for each in found if each.backoff is not None]
    return RetryRules(
        max_retry=min(limits, default=None),
        retry_period=max(each.retry_period for each in found),
        min_healthy_period=max(each.min_healthy_period for each in found),
        backoff=RetryBackoff(base=max(each.base for each in backoffs), limit=max(each.limit for each in backoffs))
        if backoffs
        else None,
    )


def read_rules(annotations: Mapping[str, str], subject: str, defaults: RetryRules) -> RetryRules:
    """The rules of a health check's annotations; what none sets is as in the defaults. Raises PolicyError."""
    fields = Fields(annotations, subject=subject, path="metadata.annotations")
    return RetryRules(
        max_retry=_whole(fields, MAX_RETRY_ANNOTATION, defaults.max_retry),
        retry_period=fields.duration(RETRY_PERIOD_ANNOTATION, defaults.retry_period, maximum=LONGEST_PERIOD),
        min_healthy_period=fields.duration(MIN_HEALTHY_PERIOD_ANNOTATION, defaults.min_healthy_period, maximum=LONGEST_PERIOD),
        backoff=_backoff(fields, BACKOFF_ANNOTATION, BACKOFF_LIMIT_ANNOTATION, defaults.backoff),
    )


def read_backoff(value: object, subject: str) -> RetryBackoff | None:
    """`spec.backoff` of a health check as its proposal has it: `{type: exponential, limit: 10m}`. Raises PolicyError."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise PolicyError(subject, "spec.backoff", f"expected an object, got {shown(value)}")
    fields = Fields(value, subject=subject, path="spec.backoff")
    fields.only("limit", "type")
    return _backoff(fields, "type", "limit", RetryBackoff())


def _whole(fields: Fields, name: str, default: int | None) -> int | None:
    """As text, which annotations are."""
    text = fields.value(name)
    if text is None:
        return default
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < len(str(MOST_RETRIES))):
        raise fields.refuse(name, f'expected a whole number of at least 0, such as "5", got {shown(text)}')
    return int(text)


def _backoff(fields: Fields, kind: str, limit: str, default: RetryBackoff | None) -> RetryBackoff | None:
    wanted = fields.value(kind)
    if wanted is None:
        wanted = NONE if default is None else EXPONENTIAL
    if wanted not in (EXPONENTIAL, NONE):  # a list in its place is no member of a set
        raise fields.refuse(kind, f"expected {EXPONENTIAL} or {NONE}, got {shown(wanted)}")
    if wanted == NONE:
        if fields.has(limit):
            raise fields.refuse(limit, f"expected none without a backoff; set {kind} to {EXPONENTIAL}")
        return None
    found = default or RetryBackoff()
    return replace(found, limit=fields.duration(limit, found.limit, minimum=_SECOND, maximum=LONGEST_PERIOD))


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
    autoscaler_patience: how old a Machine that never had a Node must be before it is replaced again. mode: its annotation as it
    is written, None without one (`policy/episode/modes.py`).
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
    mode: str | None = None
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
