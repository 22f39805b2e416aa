"""How far a program may go with a node: the mode."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from policy.values.display_text import in_a_line

MODE_KEY = "nodewarden.io/mode"
"""An annotation on a health check, and a label on a Node."""
MODE_LABELS = (MODE_KEY, "node-restriction.kubernetes.io/nodewarden-mode")
"""The labels on a Node. A kubelet may write and remove the first one on its own Node; the second one Kubernetes'
NodeRestriction keeps from it."""


class Mode(StrEnum):
    """The most cautious first. Each allows what those before it allow, and what it is named after."""

    OBSERVE = "observe"
    """Only records what would have been done."""
    CORDON = "cordon"
    DRAIN = "drain"
    REPAIR = "repair"
    """All that health checks, templates and policies ask for."""

    def allows(self, needed: Mode) -> bool:
        return _ORDER.index(self) >= _ORDER.index(needed)


_ORDER = tuple(Mode)


def most_cautious(modes: Iterable[Mode]) -> Mode:
    """The mode that allows least; `repair` where there is none."""
    return min(modes, key=_ORDER.index, default=Mode.REPAIR)


def read_mode(value: str) -> tuple[Mode, str]:
    """The mode that a label, an annotation or a command names, and what is wrong with the value, "" for nothing. A value that
    can't be read means `observe`: it was meant to change something."""
    try:
        return Mode(value), ""
    except ValueError:
        return Mode.OBSERVE, f"expected {', '.join(_ORDER[:-1])} or {_ORDER[-1]}, got {in_a_line(value, 40)!r}"
