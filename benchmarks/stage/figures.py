"""How figures are summed up and printed: percentiles, a table in columns, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Of some values the median, the 99th percentile, the largest and the mean; all None where there are no values."""

    count: int
    median: float | None
    p99: float | None
    largest: float | None
    mean: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Percentiles by nearest rank: each is a value that was measured."""
        ordered = sorted(values)
        if not ordered:
            return cls(count=0, median=None, p99=None, largest=None, mean=None)
        return cls(
            count=len(ordered),
            median=_rank(ordered, 50),
            p99=_rank(ordered, 99),
            largest=ordered[-1],
            mean=sum(ordered) / len(ordered),
        )

    def as_json(self) -> dict[str, Any]:
        """By the names that the tables use."""
        return {"count": self.count, "p50": self.median, "p99": self.p99, "max": self.largest, "mean": self.mean}


def printed(figures: Any, *, seed: int | None = None) -> str:
    """The figures as JSON, with what they are worth nothing without: of which version, on which machine, with which arguments.
    seed: of what is drawn, None where nothing is."""
    root = Path(__file__).parents[2]
    commit = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    cores, load = os.cpu_count(), os.getloadavg()
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": cores, "load": load}
    head = {"commit": commit.stdout.strip(), "at": datetime.now(UTC).isoformat(), "arguments": sys.argv[1:], "seed": seed}
    return json.dumps({**head, "machine": machine, "figures": figures}, indent=2)


def _rank(ordered: Sequence[float], percent: int) -> float:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def number(value: float | None, digits: int = 2) -> str:
    """A figure for a table; "-" for what was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be, the first one to the left and the others to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = []
    for row in [head, *rows]:
        first, *others = (
            cell.ljust(width) if not index else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
