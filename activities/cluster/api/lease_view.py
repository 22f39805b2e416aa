"""What a coordination.k8s.io Lease says: who holds it, until when, and whether that can be relied on.

Reading only. The node lease that medik8s operators and we share is taken in `live/node_leases.py`; the cluster Lease
that makes one scanner the only one is renewed in `acts/cluster_lease.py`, and asked for in `live/cluster_lease.py` (S38).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from activities.cluster.api.paths import LEASES
from policy.values.times import later

if TYPE_CHECKING:
    from activities.cluster.api.connection import JsonObject

CLUSTER_LEASE_NAMESPACE = "kube-system"
CLUSTER_LEASE_NAME = "nodewarden"
CLUSTER_LEASE = LEASES.path(CLUSTER_LEASE_NAME, namespace=CLUSTER_LEASE_NAMESPACE)

NODE_LEASE_NAMESPACE = "medik8s-leases"
IDENTITY = "nodewarden"
"""Our name in node leases, before that of the deployment. Clients of medik8s' lease package compare whole names: any other one is
another holder."""

LONGEST_SECONDS = 2**31 - 1
"""What the API takes."""
LONGEST_HOLDER = 1024
"""Characters; the API takes any number, and ours is the address and the namespace of a Temporal."""


def node_lease_holder(holder: str) -> str:
    """How a node's lease names the deployment that the cluster Lease names so."""
    return f"{IDENTITY}/{holder}"


def is_nodewarden(holder: str) -> bool:
    """Whether a node's lease is of any deployment of nodewarden; earlier builds did not say which."""
    return holder.partition("/")[0] == IDENTITY


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A Lease as it stands. `renewed` and `duration` are None where it does not say, or not readably."""

    holder: str
    renewed: datetime | None
    duration: timedelta | None
    acquired: datetime | None = None
    transitions: int = 0

    @property
    def until(self) -> datetime | None:
        """When it lapses unless renewed."""
        return None if self.renewed is None or self.duration is None else later(self.renewed, self.duration)

    def live(self, now: datetime) -> bool:
        """Whether it is held. One that names a holder but no end counts as held: its owner meant something by it."""
        return bool(self.holder) and (self.until is None or now <= self.until)


def read_lease(document: JsonObject) -> LeaseView:
    spec = document.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    return LeaseView(
        holder=str(spec.get("holderIdentity") or "")[:LONGEST_HOLDER],
        renewed=_moment(spec.get("renewTime")),
        duration=timedelta(seconds=min(seconds, LONGEST_SECONDS)) if isinstance(seconds, int) and seconds > 0 else None,
        acquired=_moment(spec.get("acquireTime")),
        transitions=transitions if isinstance(transitions, int) else 0,
    )


def micro_time(moment: datetime) -> str:
    """A moment as Leases and Events write it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
