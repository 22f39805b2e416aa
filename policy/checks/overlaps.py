"""Several health checks cover one node: which of them holds is the user's choice."""

from __future__ import annotations

from enum import StrEnum


class Overlap(StrEnum):
    """strictest: of several checks that cover a node, no circuit breaker may be open. independent: each acts by its own."""

    STRICTEST = "strictest"
    INDEPENDENT = "independent"
