"""Whether another controller acts on a dialect's health checks: then ours are only looked at, unless the user says to take over.

Two that act on one object undo each other's work, and two that remediate by one object take two victims. Evidence is whatever
shows a controller at work now: its leader Lease is being renewed, or somebody else has lately written the status of a health
check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from policy.healthcheck import Dialect
from policy.moments import later

LEADER_LEASES: dict[Dialect, str] = {
    Dialect.MEDIK8S: "e1f13584.medik8s.io",
    Dialect.OPENSHIFT: "cluster-api-provider-healthcheck-leader",
    Dialect.CLUSTER_API: "controller-leader-election-capi",
}
"""How each system's controller calls the Lease by which it elects its leader; the namespace is the installation's choice."""

LEASE_MARGIN = timedelta(seconds=15)
"""How long after its end a Lease still counts as renewed: leaders are restarted."""

WRITTEN_LATELY = timedelta(minutes=10)
"""How long a foreign write of a status counts: no controller is silent for longer about an object that changes."""

TAKEOVER = "set scan.takeover to true to act all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """A leader Lease as last seen. `renewed` None: it never was."""

    name: str
    holder: str
    renewed: datetime | None
    duration: timedelta

    def until(self) -> datetime | None:
        """Up to when its holder counts as at work, None where nobody holds it."""
        return later(self.renewed, self.duration, LEASE_MARGIN) if self.renewed is not None and self.holder else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """The newest write of a health check's status by somebody else."""

    check: str
    manager: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Who acts on the dialect, in words, and up to when that counts unless it is seen again. `why` "": nobody does."""

    why: str = ""
    until: datetime | None = None


def conflict(leases: Iterable[LeaderLease], writes: Iterable[StatusWrite], now: datetime) -> Conflict:
    """Whether another controller acts on a dialect now; the evidence that counts for longest is the one that is told."""
    found: list[tuple[datetime, str]] = []
    for lease in leases:
        until = lease.until()
        if until is not None and until > now:
            found.append((until, f"its leader Lease {lease.name} is renewed by {lease.holder}"))
    for write in writes:
        until = later(write.at, WRITTEN_LATELY)
        if until > now:
            found.append((until, f"{write.manager} writes the status of {write.check}"))
    if not found:
        return Conflict()
    # The words must not change with every renewal: a Lease, which is renewed every few seconds, goes before a write.
    until, why = min(found, key=lambda each: (not each[1].startswith("its leader"), each[1]))
    return Conflict(
        why=f"another controller acts on these health checks: {why}; {TAKEOVER}", until=max(each[0] for each in found)
    )
