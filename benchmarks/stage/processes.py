"""CPU seconds of processes, as the kernel counts them in /proc; no cgroups and no rights are needed.

A process's time is its own, that of everything below it that still runs, and that of the children which it has waited for: so a
process per operation counts wherever it has ended by now. Linux only; the kernel counts in hundredths of a second.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Seconds since each process began. `itself`: of the named processes; `children`: of all that they started, dead or alive."""

    itself: float = 0.0
    children: float = 0.0

    def __add__(self, other: CpuTime) -> CpuTime:
        return CpuTime(itself=self.itself + other.itself, children=self.children + other.children)

    def __sub__(self, other: CpuTime) -> CpuTime:
        return CpuTime(itself=self.itself - other.itself, children=self.children - other.children)

    @property
    def total(self) -> float:
        """Both, in seconds."""
        return self.itself + self.children


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    own: float
    reaped: float


def cpu_time(*pids: int, without: tuple[int, ...] = ()) -> CpuTime:
    """CPU time of these processes and of everything below them. without: roots of trees that are left out."""
    table = dict(_processes())
    children: dict[int, list[int]] = defaultdict(list)
    for pid, stat in table.items():
        children[stat.parent].append(pid)
    total = CpuTime()
    for root in pids:
        if root not in table:
            raise ProcessLookupError(f"process {root} has ended: its CPU time can no longer be read")
        total += CpuTime(itself=table[root].own, children=table[root].reaped)
        below = [pid for pid in children[root] if pid not in without]
        while below:
            pid = below.pop()
            total += CpuTime(children=table[pid].own + table[pid].reaped)
            below += [each for each in children[pid] if each not in without]
    return total


def resident_megabytes(pid: int) -> float:
    """Memory that a process holds now, without its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _processes() -> Iterator[tuple[int, _Stat]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since the folder was listed
        fields = text.rpartition(")")[2].split()  # a program's name may contain anything
        user, system, reaped_user, reaped_system = (int(each) / _TICKS for each in fields[11:15])
        yield int(folder.name), _Stat(int(fields[1]), user + system, reaped_user + reaped_system)
