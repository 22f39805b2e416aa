"""The typed refusals of `policy`: what is wrong, in which object and field, and what was expected; and what could not be read.

Raised for people's input (policy objects, templates, requests). They never mean "act differently": a bad object stops
new episodes under it. What activities raise is in `activities/errors.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

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


# Things that could not be read, grouped by cause: an API server that does not answer is one cause for all requests.

_REQUEST = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) /\S*: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """what: as people call it, such as `its health check`. why: the error, which may begin with the request that failed."""

    what: str
    why: str


def by_cause(found: Iterable[Unread]) -> dict[str, list[str]]:
    """For each cause, the things that it kept unread. The cause of several names none of the requests."""
    causes: dict[str, list[Unread]] = {}
    for each in found:
        causes.setdefault(_REQUEST.sub("", each.why), []).append(each)
    return {each[0].why if len(each) == 1 else cause: [unread.what for unread in each] for cause, each in causes.items()}


def unread_text(found: Iterable[Unread]) -> str:
    """A clause for each cause, with all things that it kept unread; "" if all was read."""
    return "; ".join(
        f"{what[0]} could not be read: {cause}"
        if len(what) == 1
        else f"{len(what)} things could not be read ({cause}): {', '.join(what)}"
        for cause, what in by_cause(found).items()
    )
