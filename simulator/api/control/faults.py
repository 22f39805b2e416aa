"""Accidents on demand: what can go wrong between a client and an API server, switched on for chosen requests.

Faults are matched before a request is carried out. They say what happens; `wire/door.py` makes it happen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any


class Accident(StrEnum):
    """What happens to a request that a fault matches."""

    DELAY = "delay"  # nothing but the latency
    REFUSE = "refuse"  # the connection is closed, nothing is carried out
    LOSE_ANSWER = "lose-answer"  # carried out, then the connection is closed without an answer
    STATUS = "status"  # not carried out: answered with this status code
    HALF_OPEN = "half-open"  # watches stay open and silent, open ones too, until the client leaves
    EXPIRE = "expire"  # lists are answered 410, watches with an ERROR event 410
    FORBID = "forbid"  # not carried out: 403 in the words of RBAC, whatever rights there are
    INITIALIZE = "initialize"  # of kinds of definitions only: lists are answered 429, everything else 503
    CUT_WATCHES = "cut-watches"  # every open watch that matches is closed, now; nothing stays behind


_OF_DEFINITIONS = re.compile(r"^/apis/(?![^/]*\.k8s\.io/)[^/]*\.[^/]+/[^/]+/.")
"""Paths of kinds of groups that are no part of Kubernetes."""

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One accident and the requests that it befalls; what is left empty matches everything."""

    accident: Accident
    method: str = ""  # GET, POST, ...
    verb: str = ""  # get, list, watch, create, update, patch, delete, deletecollection
    path: str = ""  # regular expression, searched in the path
    user_agent: str = ""  # regular expression, searched in the User-Agent
    count: int | None = None  # how many requests, watches already open not among them; None until removed
    latency: timedelta = timedelta(0)
    status: int = 503
    message: str = "injected by the simulator"
    retry_after: int | None = None

    def __post_init__(self) -> None:
        re.compile(self.path)
        re.compile(self.user_agent)
        if self.count is not None and self.count < 1:
            raise ValueError(f"a fault's count must be at least 1, not {self.count}")

    def matches(self, method: str, verb: str, path: str, user_agent: str) -> bool:
        if self.method and self.method.upper() != method:
            return False
        if self.accident in (Accident.HALF_OPEN, Accident.CUT_WATCHES) and verb != "watch":
            return False
        if self.accident is Accident.EXPIRE and verb not in ("watch", "list"):
            return False
        if self.verb and self.verb != verb:
            return False
        if self.accident is Accident.INITIALIZE and not _OF_DEFINITIONS.search(path):
            return False
        return bool(re.search(self.path, path)) and bool(re.search(self.user_agent, user_agent))

    @property
    def reason(self) -> str:
        return _REASONS.get(self.status, "InternalError")

    def document(self) -> dict[str, Any]:
        return {
            "accident": self.accident.value,
            "method": self.method,
            "verb": self.verb,
            "path": self.path,
            "user_agent": self.user_agent,
            "count": self.count,
            "latency_seconds": self.latency.total_seconds(),
            "status": self.status,
            "message": self.message,
            "retry_after": self.retry_after,
        }


def restarting(*, forbidden: int, initializing: int, user_agent: str = "") -> tuple[Fault, ...]:
    """What a kube-apiserver 1.36 does while it comes back, once it accepts connections again: every watch has been cut, the first
    requests are forbidden until it has read the rights, and kinds of definitions are not served until it has read these.

    `forbidden`, `initializing`: how many requests.
    """
    return (
        Fault(accident=Accident.CUT_WATCHES, user_agent=user_agent),
        Fault(accident=Accident.FORBID, count=forbidden, user_agent=user_agent),
        Fault(accident=Accident.INITIALIZE, count=initializing, user_agent=user_agent),
    )


_FIELDS = frozenset(("method", "verb", "path", "user_agent", "count", "status", "message", "retry_after"))


def read_fault(sent: Mapping[str, Any]) -> Fault:
    """A fault from its JSON form; raises ValueError naming what is wrong."""
    unknown = sorted(set(sent) - _FIELDS - {"accident", "latency_seconds"})
    if unknown:
        raise ValueError(
            f"unknown field of a fault: {', '.join(unknown)}; known: accident, latency_seconds, {', '.join(sorted(_FIELDS))}"
        )
    try:
        accident = Accident(sent.get("accident", ""))
    except ValueError:
        known = ", ".join(Accident)
        raise ValueError(f"accident {sent.get('accident')!r} is not one of {known}") from None
    latency = timedelta(seconds=float(sent.get("latency_seconds", 0)))
    try:
        return Fault(accident=accident, latency=latency, **{k: v for k, v in sent.items() if k in _FIELDS})
    except (re.error, TypeError) as error:
        raise ValueError(f"unreadable fault: {error}") from error


@dataclass(slots=True, kw_only=True)
class ActiveFault:
    """A fault in force, with how often it has struck."""

    id: str
    fault: Fault
    hits: int = 0
    left: int | None = field(default=None)


class Faults:
    """The faults in force, in the order they were added; the first that matches strikes."""

    def __init__(self) -> None:
        self._active: dict[str, ActiveFault] = {}
        self._spent: dict[str, ActiveFault] = {}
        self._numbers = itertools.count(1)
        # Set by the server: what strikes watches that are open already.
        self.on_open_watches: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self._active)

    def __iter__(self) -> Iterator[ActiveFault]:
        return iter(self._active.values())

    def add(self, fault: Fault) -> str:
        """Put a fault in force; the answer is its id."""
        identity = f"fault-{next(self._numbers)}"
        active = ActiveFault(id=identity, fault=fault, left=fault.count)
        if fault.accident in (Accident.CUT_WATCHES, Accident.HALF_OPEN):
            for strike in self.on_open_watches:
                active.hits += strike(fault)
        if fault.accident is Accident.CUT_WATCHES:
            self._spent[identity] = active
        else:
            self._active[identity] = active
        return identity

    def remove(self, identity: str) -> bool:
        """Take a fault out of force; False when there is none of this id."""
        active = self._active.pop(identity, None)
        if active is not None:
            self._spent[identity] = active
        return active is not None or identity in self._spent

    def clear(self) -> None:
        for identity in list(self._active):
            self.remove(identity)

    def hits(self, identity: str) -> int:
        """How many requests a fault has struck, also after it was removed or used up."""
        return (self._active.get(identity) or self._spent[identity]).hits

    def strike(self, method: str, verb: str, path: str, user_agent: str) -> Fault | None:
        """The fault that befalls this request, if any; it counts as used."""
        for active in self._active.values():
            if active.fault.matches(method, verb, path, user_agent):
                active.hits += 1
                if active.left is not None:
                    active.left -= 1
                    if active.left == 0:
                        self.remove(active.id)
                return active.fault
        return None
