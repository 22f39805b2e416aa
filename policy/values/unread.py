"""Things that could not be read, grouped by cause: an API server that does not answer is one cause for all requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

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
