"""What a check of the installation has found: how bad it is, what it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """warning: it works, and is not as it should be, or can't be told. problem: something will not be done."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. what: a sentence about what is; do: what a person does about it, "" where nothing is to be done."""

    level: Level
    what: str
    do: str = ""


Check = Callable[[], Awaitable[list[Finding]]]
Checks = Mapping[str, Check]
"""By the name that people read."""


def ok(what: str) -> Finding:
    """All is well."""
    return Finding(level=Level.OK, what=what)


def warning(what: str, do: str) -> Finding:
    """See Level."""
    return Finding(level=Level.WARNING, what=what, do=do)


def problem(what: str, do: str) -> Finding:
    """See Level."""
    return Finding(level=Level.PROBLEM, what=what, do=do)
