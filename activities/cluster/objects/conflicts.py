"""What shows another controller at work on the health checks: its leader Lease, and who has written their status.

Only gathered here; what it means is `policy/checks/circuit_breakers.py`, that the checks are then held is the ledger's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.leases import read_lease
from activities.cluster.objects.check_statuses import CONFLICTING, condition_of, status_of
from policy.checks.circuit_breakers import LeaderLease, OpenReason, StatusWrite, conflict
from policy.scan.ledger import Ledger
from policy.values.fields import mappings
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.times import moment_of

NO_CONTROLLERS = ("nodewarden", "kubectl")
"""How API servers name the managers of fields that we or people write: the user agent up to its slash."""


class Conflicts:
    """Keeps one ledger's holds for other controllers. takeover: the user knows, and wants us to act.

    A controller that was seen once counts until then, also in another process: the condition on the health check says so.
    """

    def __init__(self, ledger: Ledger, *, takeover: bool) -> None:
        self._ledger = ledger
        self._takeover = takeover
        self._leases: dict[Dialect, dict[str, LeaderLease]] = {dialect: {} for dialect in Dialect}
        self._writes: dict[Dialect, dict[str, StatusWrite]] = {dialect: {} for dialect in Dialect}
        self._standing: dict[Dialect, set[str]] = {dialect: set() for dialect in Dialect}
        self._seen: dict[Dialect, str] = {}

    def lease_changed(self, dialect: Dialect, key: str, lease: JsonObject | None, now: datetime) -> None:
        """A leader Lease as it is since this moment, None for one that is gone."""
        if lease is None:
            self._leases[dialect].pop(key, None)
            return
        self._leases[dialect][key] = leader_lease(key, lease).seen(self._leases[dialect].get(key), now)

    def check_changed(self, dialect: Dialect, ref: ObjectRef, check: JsonObject | None) -> None:
        """A health check as it is now, None for one that is gone."""
        write = newest_foreign_write(ref, check) if check is not None else None
        if write is None:
            self._writes[dialect].pop(ref.key, None)
        else:
            self._writes[dialect][ref.key] = write
        if check is not None and condition_of(status_of(check), CONFLICTING).get("status") == "True":
            self._standing[dialect].add(ref.key)
        else:
            self._standing[dialect].discard(ref.key)

    def hold(self, now: datetime) -> None:
        """Hold what is to be held."""
        for dialect in Dialect:
            if dialect not in self._seen and (
                why := conflict(self._leases[dialect].values(), self._writes[dialect].values(), self._standing[dialect], now)
            ):
                self._seen[dialect] = why
            self._ledger.hold(dialect, OpenReason.OBSERVE_ONLY, "" if self._takeover else self._seen.get(dialect, ""))


def leader_lease(key: str, lease: JsonObject) -> LeaderLease:
    """A leader Lease as it says of itself."""
    found = read_lease(lease)
    return LeaderLease(name=key, holder=found.holder, renewed=found.renewed, duration=found.duration or timedelta(0))


def newest_foreign_write(ref: ObjectRef, check: Mapping[str, Any]) -> StatusWrite | None:
    """The newest write of the object's status by another controller, None where there is none."""
    newest: StatusWrite | None = None
    for entry in mappings(check["metadata"].get("managedFields")):
        manager, at = str(entry.get("manager") or ""), moment_of(entry.get("time"))
        if entry.get("subresource") != "status" or at is None or manager.startswith(NO_CONTROLLERS):
            continue
        if newest is None or at > newest.at:
            newest = StatusWrite(check=ref.key, manager=manager or "unknown", at=at)
    return newest
