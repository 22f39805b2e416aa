"""Whether another controller acts on a dialect's health checks: then ours are only looked at, unless the user says to take over.

Two that act on one object undo each other's work, and two that remediate by one object take two victims. Evidence is whatever
shows a controller at work now: its leader Lease is being renewed, or somebody else has lately written the status of a health
check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from policy.values.object_refs import Dialect
from policy.values.times import later

LEADER_LEASES: dict[Dialect, str] = {
    Dialect.MEDIK8S: "e1f13584.medik8s.io",
    Dialect.OPENSHIFT: "cluster-api-provider-healthcheck-leader",
    Dialect.CLUSTER_API: "controller-leader-election-capi",
}
"""How each system's controller calls the Lease by which it elects its leader; the namespace is the installation's choice."""

FENCE_AGENTS_REMEDIATION_LEASE = "cb305759.medik8s.io"
"""The same of fence-agents-remediation, whose objects are no health checks but ask for one node."""

LEASE_MARGIN = timedelta(seconds=15)
"""How long after its end a Lease still counts as renewed: leaders are restarted."""

WRITTEN_LATELY = timedelta(minutes=10)
"""How long a foreign write of a status counts: no controller is silent for longer about an object that changes."""

TAKEOVER = "set scan.takeover to true to act all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """A leader Lease as last seen. renewed: what its holder says, by a clock of its own; None: it never was.

    observed: when we saw it change, by our clock; None: we have seen it once. That is what counts, as it does between those who
    stand for election: a holder whose clock is wrong is as much at work as another.
    """

    name: str
    holder: str
    renewed: datetime | None
    duration: timedelta
    observed: datetime | None = None

    def seen(self, before: LeaderLease | None, now: datetime) -> LeaderLease:
        """This, after it was seen as `before`: another holder or another moment is a change that we have observed."""
        if before is None:
            return self
        unchanged = (self.holder, self.renewed) == (before.holder, before.renewed)
        return replace(self, observed=before.observed if unchanged else now)

    def until(self) -> datetime | None:
        """Up to when its holder counts as at work, None where nobody holds it."""
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
    """Who acts on the dialect, in words, "" for nobody. standing: health checks that say already that somebody does. upon: what
    is acted on, for people.

    A controller that was seen once may come back at any moment: what says so stands on the object until the user takes over.
    """
    for lease in leases:
        until = lease.until()
        if until is not None and until > now:
            return _said(upon, f"its leader Lease {lease.name} is renewed by {lease.holder}")
    for write in writes:
        if later(write.at, WRITTEN_LATELY) > now:
            return _said(upon, f"{write.manager} writes the status of {write.check}")
    for check in sorted(standing):
        return _said(upon, f"{check} says that it has been seen")
    return ""


def _said(upon: str, why: str) -> str:
    return f"another controller acts on {upon}: {why}; {TAKEOVER}"
