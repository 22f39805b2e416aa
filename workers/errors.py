"""Why a process has no Temporal to work with, does not begin, or uses no value. The text is for people, and says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from policy.values.errors import shown

OLD_MOMENT = "these events have the moment of the task before them: ask again"
"""Why a worker has refused a query (`workers/plugin.py::TimeGuard`): the next one finds the moment of its own, and none does once
the workflow has ended."""


class SettingsError(Exception):
    """A setting or an option that cannot be used: which key, what was expected, where it came from. The CLI exits with 2."""


class TemporalUnreachableError(Exception):
    """Nothing usable answered at that address within the time given."""


class NamespaceMissingError(Exception):
    """The service answers, but does not know the namespace."""


class EmbeddedServerError(Exception):
    """The embedded server cannot be had; the text says why and what to do."""


class StoppedError(Exception):
    """Told to stop before anything had begun."""


class SearchAttributesError(Exception):
    """Search attributes are missing and cannot be created by us, or exist with another type. The text says what to do."""


def expectations(problems: Iterable[Mapping[str, Any]], whole: str) -> str:
    """What pydantic found, each field with what was expected. whole: the name of a value that has no fields."""
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or whole}: {expectation(each)}" for each in problems)


def expectation(problem: Mapping[str, Any], *, shows_value: bool = True) -> str:
    """One of them, without the field."""
    if problem["type"] == "extra_forbidden":
        return "unknown key"
    if problem["type"] == "missing":
        return "expected a value, got none"
    if problem["type"] == "too_short":
        least, got = problem["ctx"]["min_length"], problem["ctx"]["actual_length"]
        return f"expected at least {least} {'entry' if least == 1 else 'entries'}, got {got or 'none'}"
    text = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for comparison in ("greater", "less"):
        text = text.replace(f"Input should be {comparison}", f"expected a number {comparison}", 1)
    text = text.replace("Input should be", "expected", 1)
    given = problem.get("input")
    return f"{text}, got {shown(given)}" if shows_value and isinstance(given, str | int | float) and "got" not in text else text
