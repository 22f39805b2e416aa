"""What tests want to have printed at the end of the run, whether or not output is captured (`conftest.py` prints it)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

TABLES: dict[str, list[str]] = {}


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be; a table of the same title is replaced."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]
    TABLES[title] = [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def say(title: str, line: str) -> None:
    """One more line under that title."""
    TABLES.setdefault(title, []).append(line)


def not_run(outcomes: Mapping[str, Sequence[Any]]) -> list[str]:
    """A line for each file and reason of tests that were skipped: which of its tests, or that it is all of them, and why.

    outcomes: reports of tests by outcome, as pytest keeps them.
    """
    run = {each.nodeid.partition("::")[0] for name in ("passed", "failed", "error") for each in outcomes.get(name, ())}
    found: dict[tuple[str, str], Counter[str]] = {}
    for each in outcomes.get("skipped", ()):
        file, _, test = each.nodeid.partition("::")
        reason = each.longrepr[2] if isinstance(each.longrepr, tuple) else str(each.longrepr)
        found.setdefault((file, reason.removeprefix("Skipped: ")), Counter())[test.partition("[")[0]] += 1
    reasons = Counter(file for file, _ in found)
    lines = []
    for (file, reason), tests in sorted(found.items()):
        named = ", ".join(name if number == 1 else f"{name} ({number})" for name, number in sorted(tests.items()) if name)
        whole = file not in run and reasons[file] == 1
        lines += [f"{file}: {f'all {tests.total()}' if whole else named or 'all'}", f"    {reason}"]
    total = sum(tests.total() for tests in found.values())
    return [*lines, f"{total} in all"]
