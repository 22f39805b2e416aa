"""The circuit breaker of one health check: open while so many targets are unwell that acting would make matters worse (S17).

Only the counts and the cluster are judged here. Single targets are judged in `policy/checks/rules/`; `policy/scan/admission.py`
decides which node is acted on. Every target that is not plainly healthy counts against the group: its timeout runs, it starts,
is deleted or excluded, or an episode still holds it. Each dialect compares and rounds as its own system does, and an open circuit
breaker says why in that system's terms.

`CircuitBreaker` and `circuit_breaker` come first, then `Tally`, which keeps the counts while verdicts change; last, what shows
that another controller acts on the same checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from policy.checks.health_check import HealthCheck, Storm, over
from policy.checks.verdict import JudgedTarget, Standing, Verdict
from policy.objects.machines import WorkloadCluster
from policy.objects.nodes import Surroundings
from policy.values.fields import Rounding, scaled
from policy.values.object_refs import Dialect
from policy.values.times import later, written


class OpenReason(StrEnum):
    """Why a circuit breaker is open, for programs; the sentence for people is `CircuitBreaker.message`."""

    NO = ""
    PAUSED = "Paused"
    ELSEWHERE = "AnotherCluster"
    OBSERVE_ONLY = "ConflictingController"
    STALE_MACHINES = "StaleView"
    UPGRADE = "UpgradeInProgress"
    NO_CLUSTER = "ClusterNotFound"
    TOO_MANY_UNHEALTHY = "TooManyUnhealthy"
    INVALID_THRESHOLD = "InvalidThreshold"
    STORM = "StormActive"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingCounts:
    """How many targets a check selects, by how they stand (`policy.checks.verdict.Standing`).

    left_out ones are not in the total. recovering: healthy by their conditions, but still marked by an episode: not counted as
    healthy until that has ended.
    """

    healthy: int = 0
    soon: int = 0
    starting: int = 0
    unhealthy: int = 0
    deleting: int = 0
    excluded: int = 0
    recovering: int = 0
    left_out: int = 0

    def others(self, *, shown: Collection[str] = ()) -> str:
        """How many stand otherwise than healthy, in words; "" for none. shown: standings of which each target is shown beside
        it."""
        names = ("unhealthy", "soon", "starting", "recovering", "deleting", "excluded", "left_out")
        found = [(getattr(self, name), name.replace("_", " ")) for name in names if name not in shown]
        return ", ".join(f"{number} {name}" for number, name in found if number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(StandingCounts):
    """The counts that a circuit breaker judges. updating: how many of the unhealthy ones are on their way to another machine
    config. control_plane: how many of all are of the control plane."""

    updating: int = 0
    control_plane: int = 0

    @property
    def total(self) -> int:
        known = self.healthy + self.soon + self.starting + self.unhealthy + self.deleting
        return known + self.excluded + self.recovering

    @property
    def unwell(self) -> int:
        """How many targets count against the group."""
        return self.total - self.healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What holds a check back besides its own numbers. held: why the whole check is held, with the sentence for people."""

    surroundings: Surroundings = Surroundings()
    cluster: WorkloadCluster | None = None
    storm: Storm = Storm()
    held: tuple[OpenReason, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Closed where the check lets us act (`allowed`), else open; `message` is a sentence with the numbers. `remaining` is
    explained at `scan_report.CheckReport`.

    breached: the threshold alone opens it; only that begins a storm.
    """

    allowed: bool
    remaining: int
    reason: OpenReason
    message: str
    breached: bool = False


def circuit_breaker(check: HealthCheck, counts: Counts, circumstances: Circumstances | None = None) -> CircuitBreaker:
    """The circuit breaker by the rules of the check's dialect. First a pause by people, then what makes the numbers doubtful,
    then the numbers."""
    around = circumstances or Circumstances()
    limit = _limit(check, counts)
    held = _held(check, counts, around)
    if held is not None:
        reason, message = held
        return CircuitBreaker(allowed=False, remaining=0, reason=reason, message=message, breached=limit.breached)
    if not limit.allowed:
        return limit
    if around.storm.active is not None and check.storm_cooldown is not None:
        end, cooling = over(around.storm, check.storm_cooldown), around.storm.cooling
        until = "everything must be well first"
        if cooling is not None and end is not None:
            until = f"well since {written(cooling)}, acting again from {written(end)}"
        return _open(OpenReason.STORM, f"a storm since {written(around.storm.active)}; {until}")
    return limit


def threshold_breached(check: HealthCheck, counts: Counts) -> bool:
    """Whether too many are unwell, whatever else holds the check back."""
    return _limit(check, counts).breached


def _held(check: HealthCheck, counts: Counts, around: Circumstances) -> tuple[OpenReason, str] | None:
    if around.held is not None and around.held[0] is OpenReason.ELSEWHERE:
        return around.held
    if check.paused:
        return OpenReason.PAUSED, f"paused: {check.paused}"
    if around.cluster is not None and around.cluster.paused:
        return OpenReason.PAUSED, f"paused: {around.cluster.paused}"
    if around.held is not None:
        return around.held
    if around.surroundings.upgrade:
        return OpenReason.UPGRADE, f"postponed while an upgrade is in progress: {around.surroundings.upgrade}"
    if counts.updating:
        nodes = "1 unhealthy node is" if counts.updating == 1 else f"{counts.updating} unhealthy nodes are"
        return OpenReason.UPGRADE, f"postponed while {nodes} on the way to another machine config"
    if check.dialect is Dialect.CLUSTER_API and around.cluster is None:
        return OpenReason.NO_CLUSTER, f"there is no Cluster {check.cluster_name} in the namespace {check.ref.namespace}"
    return None


def _limit(check: HealthCheck, counts: Counts) -> CircuitBreaker:
    if check.dialect is Dialect.NODE_FENCING:
        # Its percentages are fence policies, which hold for all fencing in the cluster (`policy/scan/permit_rules.py`).
        numbers = f"{counts.healthy} of {counts.total} nodes are healthy; fence policies limit how many may be unresponsive"
        return CircuitBreaker(allowed=True, remaining=counts.total, reason=OpenReason.NO, message=numbers)
    if check.dialect is Dialect.MEDIK8S:
        return _of_nodes(check, counts)
    return _of_range(check, counts) if check.unhealthy_range is not None else _of_machines(check, counts)


def _of_nodes(check: HealthCheck, counts: Counts) -> CircuitBreaker:
    """NodeHealthCheck: so many must be healthy; percentages of either knob are rounded up."""
    total = counts.total
    if check.min_healthy is not None:
        needed = scaled(check.min_healthy, total, Rounding.UP)
        stated = f"minHealthy {check.min_healthy} needs {needed}"
    elif check.max_unhealthy is not None:
        most = scaled(check.max_unhealthy, total, Rounding.UP)
        if most > total:
            problem = f"maxUnhealthy is greater than the number of selected nodes: {most} of {total}"
            return _open(OpenReason.INVALID_THRESHOLD, problem)
        needed = total - most
        stated = f"maxUnhealthy {check.max_unhealthy} needs {needed}"
    else:
        # No dialect hands over a check without a threshold; without one nothing may be assumed to be harmless.
        return _open(OpenReason.INVALID_THRESHOLD, "no threshold is set")
    numbers = f"{counts.healthy} of {total} nodes are healthy, {stated}"
    if counts.healthy < needed:
        return _open(OpenReason.TOO_MANY_UNHEALTHY, numbers, breached=True)
    return CircuitBreaker(allowed=True, remaining=counts.healthy - needed, reason=OpenReason.NO, message=numbers)


def _of_machines(check: HealthCheck, counts: Counts) -> CircuitBreaker:
    """MachineHealthCheck: at most so many may be unhealthy; percentages are rounded down, without a knob all may."""
    threshold, total = check.max_unhealthy, counts.total
    most = total if threshold is None else scaled(threshold, total, Rounding.DOWN)
    if check.dialect is Dialect.OPENSHIFT:
        most = max(most, 0)
    written = "100%" if threshold is None else str(threshold)
    if counts.unwell > most:
        numbers = f"(total: {total}, unhealthy: {counts.unwell}, maxUnhealthy: {written})"
        message = f"Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy {numbers}"
        return _open(OpenReason.TOO_MANY_UNHEALTHY, message, breached=True)
    message = f"{counts.unwell} of {total} machines are not started or unhealthy, maxUnhealthy {written} allows {most}"
    return CircuitBreaker(allowed=True, remaining=most - counts.unwell, reason=OpenReason.NO, message=message)


def _of_range(check: HealthCheck, counts: Counts) -> CircuitBreaker:
    """Cluster API's range: both ends included; it replaces maxUnhealthy."""
    limits = check.unhealthy_range
    assert limits is not None
    if limits.least <= counts.unwell <= limits.most:
        message = f"{counts.unwell} of {counts.total} machines are not started or unhealthy, unhealthyRange {limits} allows that"
        return CircuitBreaker(allowed=True, remaining=limits.most - counts.unwell, reason=OpenReason.NO, message=message)
    numbers = f"(total: {counts.total}, unhealthy: {counts.unwell}, unhealthyRange: {limits})"
    message = (
        f"Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range {numbers}"
    )
    return _open(OpenReason.TOO_MANY_UNHEALTHY, message, breached=True)


def _open(reason: OpenReason, message: str, *, breached: bool = False) -> CircuitBreaker:
    return CircuitBreaker(allowed=False, remaining=0, reason=reason, message=message, breached=breached)


# The counts of one health check, kept up to date while its verdicts change one by one.


class Tally:
    """How many targets have each standing.

    Control-plane targets, and unhealthy ones on their way to another machine config, are kept by name: a node may become either
    while its verdict stays the same.
    """

    __slots__ = ("_control_plane", "_standings", "_updating")

    def __init__(self) -> None:
        self._standings = dict.fromkeys(Standing, 0)
        self._updating: set[str] = set()
        self._control_plane: set[str] = set()

    def add(self, target: JudgedTarget, verdict: Verdict) -> None:
        self._standings[verdict.standing] += 1
        if _of_control_plane(target, verdict):
            self._control_plane.add(target.key)
        if target.updating and verdict.standing is Standing.UNHEALTHY:
            self._updating.add(target.key)

    def remove(self, target: JudgedTarget, verdict: Verdict) -> None:
        """Count a verdict no more, even if the target has changed since it was counted."""
        self._standings[verdict.standing] -= 1
        self._control_plane.discard(target.key)
        self._updating.discard(target.key)

    def restates(self, target: JudgedTarget, verdict: Verdict) -> bool:
        """Whether the same verdict is counted differently now."""
        updating = target.updating and verdict.standing is Standing.UNHEALTHY
        counted_as_member = target.key in self._control_plane
        return updating != (target.key in self._updating) or _of_control_plane(target, verdict) != counted_as_member

    def counts(self) -> Counts:
        standings = self._standings
        return Counts(
            healthy=standings[Standing.HEALTHY],
            soon=standings[Standing.SOON],
            starting=standings[Standing.STARTING],
            unhealthy=standings[Standing.UNHEALTHY],
            deleting=standings[Standing.DELETING],
            excluded=standings[Standing.EXCLUDED],
            recovering=standings[Standing.RECOVERING],
            left_out=standings[Standing.LEFT_OUT],
            updating=len(self._updating),
            control_plane=len(self._control_plane),
        )


def _of_control_plane(target: JudgedTarget, verdict: Verdict) -> bool:
    """Whether it counts among the check's control-plane members. A target outside the total is in no group either."""
    return target.control_plane and verdict.standing is not Standing.LEFT_OUT


# Whether another controller acts on a dialect's health checks: then ours are only observed, unless the user takes over.
#
# Two controllers that act on one object undo each other's work, and two that remediate by one object take two victims. Evidence
# is a sign that a controller works now: its leader Lease is being renewed, or another writer has lately written the status of a
# health check.

LEADER_LEASES: dict[Dialect, str] = {
    Dialect.MEDIK8S: "e1f13584.medik8s.io",
    Dialect.OPENSHIFT: "cluster-api-provider-healthcheck-leader",
    Dialect.CLUSTER_API: "controller-leader-election-capi",
}
"""The name of the Lease by which each system's controller elects its leader; the namespace is the installation's choice."""

FENCE_AGENTS_REMEDIATION_LEASE = "cb305759.medik8s.io"
"""The leader Lease of fence-agents-remediation. Its objects are no health checks but requests for one node."""

LEASE_MARGIN = timedelta(seconds=15)
"""How long after its end a Lease still counts as renewed: leaders are restarted."""

WRITTEN_LATELY = timedelta(minutes=10)
"""How long another controller's write of a status counts: a controller that works writes a changing object more often."""

TAKEOVER = "set scan.takeover to true to act all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """A leader Lease as last seen. renewed: by its holder's own clock; None: never.

    observed: when we saw it change, by our clock; None: we have seen it once. Only that counts, as it does among the candidates
    of the election: a holder with a wrong clock works as well as another.
    """

    name: str
    holder: str
    renewed: datetime | None
    duration: timedelta
    observed: datetime | None = None

    def seen(self, before: LeaderLease | None, now: datetime) -> LeaderLease:
        """The Lease, after it was seen as `before`: another holder or another moment is a change that we have observed."""
        if before is None:
            return self
        unchanged = (self.holder, self.renewed) == (before.holder, before.renewed)
        return replace(self, observed=before.observed if unchanged else now)

    def until(self) -> datetime | None:
        """The moment up to which its holder counts as working, None without a holder."""
        renewed = self.observed or self.renewed
        return later(renewed, self.duration, LEASE_MARGIN) if renewed is not None and self.holder else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """The newest write of a health check's status by another controller."""

    check: str
    manager: str
    at: datetime


def conflict(
    leases: Iterable[LeaderLease],
    writes: Iterable[StatusWrite],
    standing: Iterable[str],
    now: datetime,
    *,
    upon: str = "these health checks",
) -> str:
    """Which controller acts on the dialect, in words, "" for none. standing: health checks that report one in their status
    already. upon: what is acted on, for people.

    A controller that was seen once may come back at any moment: the report stays on the object until the user takes over.
    """
    for lease in leases:
        until = lease.until()
        if until is not None and until > now:
            return _conflict_message(upon, f"its leader Lease {lease.name} is renewed by {lease.holder}")
    for write in writes:
        if later(write.at, WRITTEN_LATELY) > now:
            return _conflict_message(upon, f"{write.manager} writes the status of {write.check}")
    for check in sorted(standing):
        return _conflict_message(upon, f"{check} says that it has been seen")
    return ""


def _conflict_message(upon: str, why: str) -> str:
    return f"another controller acts on {upon}: {why}; {TAKEOVER}"
