"""Whether another controller acts on a dialect's health checks: then ours are only observed, unless the user takes over.

Two controllers that act on one object undo each other's work, and two that remediate by one object take two victims. Evidence
is a sign that a controller works now: its leader Lease is being renewed, or another writer has lately written the status of a
health check.
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
