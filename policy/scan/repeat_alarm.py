"""Nodes that are fenced for the same reason again and again: no fencing removes the cause, such as a pod that crashes machines.

The scanner keeps the memory, fed by each episode's release (`policy.episode.permits.Release`) and bounded here. An episode
counts once, by its incident, whether it parked first or not. A fencing that a person asked for does not count, and neither does
an episode that was given up before it had done anything: while a veto stands there may be one a minute.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from policy.episode.messages import Outcome
from policy.episode.permits import Release

MAXIMUM_INCIDENTS = 200
"""The most incidents in memory; the oldest go first. A cluster with more fencings in a window has other alarms by then."""

NOT_COUNTED = frozenset({Outcome.REFUSED.value, Outcome.RELEASED.value})

MAXIMUM_WORKLOADS = 20
"""The most workloads of one incident: the node may run a hundred pods, and all of this travels in the scanner's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatAlarm:
    """`repeatAlarm: {count, window}`: the count-th fencing of a node for one reason within the window raises it."""

    count: int = 3
    window: timedelta = timedelta(hours=24)


DEFAULT_ALARM = RepeatAlarm()


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """One fencing. workloads: the pods on the node when it was to be freed, if they were seen."""

    node: str
    cause: str
    incident: str
    at: datetime
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """The alarm. incidents: all of them within the window, the oldest first. workloads: those that were on the node each time."""

    node: str
    cause: str
    count: int
    window: timedelta
    incidents: tuple[str, ...]
    workloads: tuple[str, ...] = ()
    node_uid: str = ""

    @property
    def message(self) -> str:
        hours = self.window.total_seconds() / 3600
        sentence = f"fenced {self.count} times for {self.cause} within {hours:g} h (incidents {', '.join(self.incidents)})"
        if not self.workloads:
            return f"{sentence}; no workload was seen there each time"
        return f"{sentence}; there each time: {', '.join(self.workloads)}"


def record_release(
    memory: tuple[PastIncident, ...], release: Release, now: datetime, alarm: RepeatAlarm
) -> tuple[tuple[PastIncident, ...], Repetition | None]:
    """The memory after an episode gave its permit back, and the alarm that this raises.

    An incident that is in memory already raises none: it was counted when it parked.
    """
    kept = tuple(past for past in memory if now - past.at < alarm.window)
    if not release.cause or release.outcome in NOT_COUNTED:
        return kept, None
    known = next((past for past in kept if past.incident == release.incident), None)
    if known is not None:
        more = tuple(dict.fromkeys((*known.workloads, *release.workloads)))[:MAXIMUM_WORKLOADS]
        return tuple(replace(past, workloads=more) if past is known else past for past in kept), None
    new = PastIncident(
        node=release.node,
        cause=release.cause,
        incident=release.incident,
        at=now,
        workloads=release.workloads[:MAXIMUM_WORKLOADS],
    )
    kept = (*kept, new)[-MAXIMUM_INCIDENTS:]
    same = [past for past in kept if (past.node, past.cause) == (release.node, release.cause)]
    if len(same) < alarm.count:
        return kept, None
    repetition = Repetition(
        node=release.node,
        cause=release.cause,
        count=len(same),
        window=alarm.window,
        incidents=tuple(past.incident for past in same)[-alarm.count :],
        workloads=_common(same),
        node_uid=release.node_uid,
    )
    return kept, repetition


def _common(incidents: list[PastIncident]) -> tuple[str, ...]:
    """The workloads that were on the node each time that any were seen; empty unless they were seen at least twice."""
    seen = [past.workloads for past in incidents if past.workloads]
    if len(seen) < 2:
        return ()
    counts = Counter(name for names in seen for name in set(names))
    return tuple(sorted(name for name, count in counts.items() if count == len(seen)))
