"""Several health checks cover one node: which of them holds is the user's choice."""

from __future__ import annotations

from enum import StrEnum


class Overlap(StrEnum):
    """strictest: of several checks that cover a node, every brake must be open. independent: each acts by its own brake."""

    STRICTEST = "strictest"
    INDEPENDENT = "independent"
