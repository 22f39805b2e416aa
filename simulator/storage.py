"""The shared storage behind the single-writer volumes, and the judge of every fencing: who wrote to a volume, and when.

It is deliberately the worst storage there is: it never refuses a writer. Detaching a volume does not stop a container
that still runs on a machine that was not switched off, as with NFS, iSCSI without reservations, or a cached block device.
So two writers at once mean that a volume was released without proof, and that is recorded as a violation which
nothing takes back. It knows nothing of Kubernetes; `containers.py` tells it when a container begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class WriterState(StrEnum):
    WRITING = "writing"
    SUSPENDED = "suspended"
    """The kernel hangs: nothing is written now, but it may go on at any moment."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInterval:
    """One container's time as a writer of one volume. `end` is None while it lasts."""

    volume: str
    pod: str
    pod_uid: str
    node: str
    boot_id: str
    exclusive: bool
    begin: datetime
    end: datetime | None = None
    state: WriterState = WriterState.WRITING

    def as_json(self) -> dict[str, Any]:
        return {
            "volume": self.volume,
            "pod": self.pod,
            "podUID": self.pod_uid,
            "node": self.node,
            "bootID": self.boot_id,
            "begin": self.begin.isoformat(),
            "end": self.end.isoformat() if self.end else None,
            "state": self.state.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Two containers could write to one single-writer volume at the same moment."""

    volume: str
    at: datetime
    first: WriteInterval
    second: WriteInterval

    @property
    def certain(self) -> bool:
        """False if the older writer hung in its kernel at that moment: it could have gone on, and nothing had excluded it."""
        return self.first.state is WriterState.WRITING

    def __str__(self) -> str:
        verb = "wrote" if self.certain else "could have gone on writing"
        return (
            f"{self.at.isoformat()} volume {self.volume}: {self.second.pod} ({self.second.pod_uid}) on {self.second.node}"
            f" began to write while {self.first.pod} ({self.first.pod_uid}) on {self.first.node} {verb}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "volume": self.volume,
            "at": self.at.isoformat(),
            "certain": self.certain,
            "first": self.first.as_json(),
            "second": self.second.as_json(),
            "message": str(self),
        }


class SharedStorage:
    """Every write interval of every volume, and the overlaps among them."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._ended: list[WriteInterval] = []
        self._open: dict[tuple[str, str], WriteInterval] = {}
        self._listeners: list[Callable[[Violation], None]] = []

    @property
    def intervals(self) -> list[WriteInterval]:
        """All intervals, in the order in which they began."""
        return sorted([*self._ended, *self._open.values()], key=lambda interval: interval.begin)

    def on_violation(self, listener: Callable[[Violation], None]) -> None:
        self._listeners.append(listener)

    def writers(self, volume: str) -> list[WriteInterval]:
        return [interval for interval in self._open.values() if interval.volume == volume]

    def begin(self, *, volume: str, pod: str, pod_uid: str, node: str, boot_id: str, exclusive: bool) -> None:
        """`exclusive`: ReadWriteOncePod, one pod at a time; else ReadWriteOnce, which is one node at a time."""
        interval = WriteInterval(
            volume=volume,
            pod=pod,
            pod_uid=pod_uid,
            node=node,
            boot_id=boot_id,
            exclusive=exclusive,
            begin=datetime.now(UTC),
        )
        self._judge(interval)
        self._open[volume, pod_uid] = interval

    def end(self, *, volume: str, pod_uid: str) -> None:
        interval = self._open.pop((volume, pod_uid), None)
        if interval is not None:
            self._ended.append(replace(interval, end=datetime.now(UTC), state=WriterState.ENDED))

    def cut(self, *, volume: str, node: str) -> None:
        """The machine of that node has lost the volume: its writers there write no more."""
        for interval in self.writers(volume):
            if interval.node == node:
                self.end(volume=volume, pod_uid=interval.pod_uid)

    def suspend(self, *, volume: str, pod_uid: str) -> None:
        if interval := self._open.get((volume, pod_uid)):
            self._open[volume, pod_uid] = replace(interval, state=WriterState.SUSPENDED)

    def resume(self, *, volume: str, pod_uid: str) -> None:
        interval = self._open.get((volume, pod_uid))
        if interval and interval.state is WriterState.SUSPENDED:
            resumed = replace(interval, state=WriterState.WRITING)
            self._open[volume, pod_uid] = resumed
            self._judge(resumed)

    def _judge(self, second: WriteInterval) -> None:
        for first in self.writers(second.volume):
            if first.pod_uid == second.pod_uid:
                continue
            if first.node == second.node and not (first.exclusive or second.exclusive):
                continue
            violation = Violation(volume=second.volume, at=datetime.now(UTC), first=first, second=second)
            self.violations.append(violation)
            for listener in self._listeners:
                listener(violation)
