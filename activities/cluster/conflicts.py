"""What shows another controller at work on the health checks: its leader Lease, and who has written their status.

Only gathered here; what it means is `policy/conflicts.py`, that the checks are then held is the ledger's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from activities.cluster.connection import JsonObject
from policy.brakes import Closed
from policy.conflicts import LeaderLease, StatusWrite, conflict
from policy.healthcheck import Dialect, ObjectRef
from policy.ledger import Ledger
from policy.moments import moment_of

OUR_MANAGER = "nodewarden"
"""As API servers name the manager of a field: the user agent up to its slash."""


class Conflicts:
    """Keeps one ledger's holds for other controllers. takeover: the user knows, and wants us to act."""

    def __init__(self, ledger: Ledger, *, takeover: bool) -> None:
        self._ledger = ledger
        self._takeover = takeover
        self._leases: dict[Dialect, dict[str, LeaderLease]] = {dialect: {} for dialect in Dialect}
        self._writes: dict[Dialect, dict[str, StatusWrite]] = {dialect: {} for dialect in Dialect}

    def lease_changed(self, dialect: Dialect, key: str, lease: JsonObject | None) -> None:
        """A leader Lease as it is now, None for one that is gone."""
        if lease is None:
            self._leases[dialect].pop(key, None)
            return
        spec = lease.get("spec") or {}
        self._leases[dialect][key] = LeaderLease(
            name=key,
            holder=str(spec.get("holderIdentity") or ""),
            renewed=moment_of(spec.get("renewTime")),
            duration=timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0)),
        )

    def check_changed(self, dialect: Dialect, ref: ObjectRef, check: JsonObject | None) -> None:
        """A health check as it is now, None for one that is gone."""
        write = _newest_foreign_write(ref, check) if check is not None else None
        if write is None:
            self._writes[dialect].pop(ref.key, None)
        else:
            self._writes[dialect][ref.key] = write

    def hold(self, now: datetime) -> datetime | None:
        """Hold what is to be held now, and let go of the rest. When that may change by time alone, None: not."""
        moments = []
        for dialect in Dialect:
            found = conflict(self._leases[dialect].values(), self._writes[dialect].values(), now)
            self._ledger.hold(dialect, Closed.OBSERVE_ONLY, "" if self._takeover else found.why)
            if found.until is not None:
                moments.append(found.until)
        return min(moments, default=None)


def _newest_foreign_write(ref: ObjectRef, check: Mapping[str, Any]) -> StatusWrite | None:
    newest: StatusWrite | None = None
    for entry in check["metadata"].get("managedFields") or ():
        manager, at = str(entry.get("manager") or ""), moment_of(entry.get("time"))
        if entry.get("subresource") != "status" or at is None or manager.startswith(OUR_MANAGER):
            continue
        if newest is None or at > newest.at:
            newest = StatusWrite(check=ref.key, manager=manager or "somebody", at=at)
    return newest
