"""The typed refusals of `policy`: what is wrong, in which object and field, and what was expected.

Raised for people's input (policy objects, templates, requests). They never mean "act differently": a bad object stops
new episodes under it. What activities raise is in `activities/errors.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_SHOWN = 80
LONGEST_NAME = 120
LONGEST_PROBLEM = 240
"""Characters. A person's text may be a megabyte, and the problem goes into a status, an Event and a terminal."""


class PolicyError(ValueError):
    """A policy object, template or request that cannot be used as written.

    `subject` names the object (`NodeHealthCheck/workers`), `field` the path inside it (`spec.minHealthy`).
    """

    def __init__(self, subject: str, field: str, problem: str) -> None:
        self.subject = _short(subject, LONGEST_NAME)
        self.field = _short(field, LONGEST_NAME)
        self.problem = _short(problem, LONGEST_PROBLEM)
        super().__init__(f"{self.subject}: {self.field}: {self.problem}")


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?` with the closest known word, "" if none is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def no_such_target(name: str, known: Iterable[str] = ()) -> str:
    """The one message for a name that no Node and no Machine has. known: the existing names, or those that are close."""
    name = _short(name, LONGEST_NAME)
    return f"{name}: there is no such Node or Machine{did_you_mean(name, known)}"


def shown(value: object) -> str:
    """A wrong value as a message shows it, cut to LONGEST_SHOWN characters."""
    if value is None:
        return "nothing"
    if isinstance(value, str) and len(value) > LONGEST_SHOWN:
        return f"{value[: LONGEST_SHOWN - 3]!r}..."
    text = repr(value) if not isinstance(value, (dict, list)) or len(value) < LONGEST_SHOWN else f"{len(value)} entries"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
