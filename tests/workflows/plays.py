"""What plays of every kind have in common: moves, where a play is a list of them, and how one that fails is cut down."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Move:
    """One of a play. number: what it draws from; wait: seconds after it. So a list of them may be shortened: what is left does
    what it did."""

    name: str
    number: int
    wait: float

    def __str__(self) -> str:
        return f"{self.name}({self.number}), then {self.wait:g} s"


def read(printed: str) -> list[Move]:
    """Moves as a play that failed has printed them."""
    return [
        Move(name, int(number), float(wait)) for name, number, wait in re.findall(r"(\w+)\((\d+)\), then ([\d.]+) s", printed)
    ]


def least(parts: list[Part], fails: Callable[[list[Part]], object]) -> list[Part]:
    """So few of the parts of a play that each is needed for it to fail: halves are left out first, then ever smaller pieces."""
    size = max(len(parts) // 2, 1)
    while size:
        for first in range(0, len(parts), size):
            fewer = parts[:first] + parts[first + size :]
            if fewer != parts and fails(fewer):
                parts = fewer
                break
        else:
            size //= 2
    return parts
