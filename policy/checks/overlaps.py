"""What holds where several health checks cover one node: a choice of the user's."""

from __future__ import annotations

from enum import StrEnum


class Overlap(StrEnum):
    """strictest: of several checks that cover a node, every brake must be open. independent: each acts by its own brake."""

    STRICTEST = "strictest"
    INDEPENDENT = "independent"
