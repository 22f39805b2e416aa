"""How far a program may go with a node: the mode."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Mode(StrEnum):
    """The most cautious first. Each allows what those before it allow, and what it is named after."""

    OBSERVE = "observe"
    """Only records what would have been done."""
    CORDON = "cordon"
    DRAIN = "drain"
    REPAIR = "repair"
    """All that health checks, templates and policies ask for."""

    def allows(self, needed: Mode) -> bool:
        """Whether an act that needs the mode `needed` may be done."""
        return _ORDER.index(self) >= _ORDER.index(needed)


_ORDER = tuple(Mode)


def most_cautious(modes: Iterable[Mode]) -> Mode:
    """The mode that allows least; `repair` where there is none."""
    return min(modes, key=_ORDER.index, default=Mode.REPAIR)
