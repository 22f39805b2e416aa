"""Whether our view of a cluster may be acted on (S18), and when two views are the same.

A watch can break silently, and an API server that lost its store answers with an empty list: both look like a healthy or a
vanished fleet. `activities/cluster/` keeps the cache; `policy/scan/ledger.py` holds its content. What people are shown of a view
that is not live is `obstacles.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from policy.scan.report_builder import is_sick
from policy.scan.scan_report import ClusterLease, ReportParts, ViewState
from policy.values.times import format_duration, written

_DIGEST_LENGTH = 16

_SIZES_KEPT = 10_000


def view_fault(previous_size: int, size: int, *, shrunk_since: datetime | None, now: datetime, accept_after: timedelta) -> str:
    """Why the inventory can't be believed, "" when it can. An empty or halved one is a fault of the view, not of the nodes.

    previous_size: the last size that was believed (keep reporting that one while there is a fault). shrunk_since: since when
    the smaller size has been seen without a break, None where it is seen for the first time. After `accept_after` of that, it
    is the new truth.
    """
    if size * 2 > previous_size or previous_size == 0:
        return ""
    if shrunk_since is not None and now - shrunk_since >= accept_after:
        return ""
    return (
        f"the inventory fell from {previous_size} nodes to {size}, which is taken for a fault of the view "
        f"until it has been so for {format_duration(accept_after)}"
    )


class LargestLately:
    """The largest inventory of a recent period. An inventory that shrinks object by object shrinks in small steps, which
    `view_fault` alone would accept."""

    def __init__(self) -> None:
        self._sizes: deque[tuple[timedelta, int]] = deque()
        """Falling sizes, each with the last moment at which there were so many."""

    def note(self, size: int, at: timedelta, *, within: timedelta) -> int:
        """The largest size within that time, this one included. at: by a clock that only goes forward."""
        while self._sizes and (self._sizes[-1][1] <= size or len(self._sizes) > _SIZES_KEPT):
            self._sizes.pop()
        self._sizes.append((at, size))
        while self._sizes[0][0] < at - within:
            self._sizes.popleft()
        return self._sizes[0][1]

    def forget(self) -> None:
        """Accept the present size as the truth."""
        self._sizes.clear()


def view_state(
    *,
    synced_at: datetime | None,
    confirmed_until: datetime | None,
    now: datetime,
    silence_limit: timedelta,
    grace: timedelta,
    fault: str = "",
) -> ViewState:
    """The view's state. synced_at: since when every watch has been complete, None while one is not. confirmed_until: the moment
    up to which the quietest watch is known to be current (an event, a bookmark, a list). fault: what is known to be wrong."""
    if synced_at is None or confirmed_until is None:
        return ViewState(synced=False, stale="the watch cache is not complete yet")
    if not fault and now - confirmed_until > silence_limit:
        fault = f"a watch has been silent since {written(confirmed_until)}"
    if not fault and now - synced_at < grace:
        fault = f"the cluster has been watched for less than {format_duration(grace)}"
    return ViewState(synced=True, stale=fault)


def digest(parts: ReportParts, *, view: ViewState, lease: ClusterLease, cluster_uid: str = "") -> str:
    """A fingerprint of all that decisions depend on: equal for equal worlds, on any worker.

    Left out: times of the scan, resource versions, the next deadline, the text of a Lease's problem, the rows of healthy nodes,
    which are for people only, and when the data of a node is at risk, which rests on what one worker has read.
    """
    sick = tuple(row for row in parts.rows if is_sick(row))
    content = (
        parts.inventory,
        parts.checks,
        parts.candidates,
        parts.candidates_left_out,
        parts.seen_nodes,
        parts.control_plane,
        parts.policies,
        parts.groups,
        parts.preservations,
        parts.preservations_left_out,
        sick,
        (parts.at_risk.nodes, parts.at_risk.unread),
        [(each.node, each.standing, each.uid, each.boot_id, each.code) for each in parts.watched],
        view,
        (lease.held, lease.needed, lease.holder),
        cluster_uid,
    )
    canonical = json.dumps(content, default=_plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"a report holds no {type(value).__name__}")
