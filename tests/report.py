"""What tests want to have printed at the end of the run, whether or not output is captured (`conftest.py` prints it)."""

from __future__ import annotations

from collections.abc import Sequence

TABLES: dict[str, list[str]] = {}


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be; a table of the same title is replaced."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]
    TABLES[title] = [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def say(title: str, line: str) -> None:
    """One more line under that title."""
    TABLES.setdefault(title, []).append(line)
