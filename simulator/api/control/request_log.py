"""Who asked for what: counters by client, and a bounded log of writes, so that tests can say "nothing was written"."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from simulator.api import moments

READ_VERBS = frozenset({"get", "list", "watch", "discover", "review"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request that asked for a change, whether or not it was granted."""

    method: str
    path: str
    user_agent: str
    status: int
    time: datetime
    verb: str
    resource: str
    user: str = ""
    preconditions: Mapping[str, str] = field(default_factory=dict)
    """Of a deletion: the `uid` and the `resourceVersion` that the object had to have, as far as they were given."""


class RequestLog:
    """Counters of all requests since the start or the last reset."""

    def __init__(self, *, kept: int = 10_000) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()  # user agent, verb, resource
        self.log: deque[Write] = deque(maxlen=kept)
        self.deletions: deque[Write] = deque(maxlen=kept)
        """Once more by themselves, so that no heartbeats push them out of the log."""
        self.listeners: list[Callable[[str, str, str, int], None]] = []
        """Told the method, path, user agent and status of each request when it is answered, reads too."""

    def record(
        self,
        *,
        method: str,
        path: str,
        user_agent: str,
        status: int,
        verb: str,
        resource: str,
        user: str = "",
        preconditions: Mapping[str, str] | None = None,
    ) -> None:
        """Count a request; status 0 stands for one that was neither carried out nor answered."""
        self.counts[user_agent, verb, resource] += 1
        for listener in self.listeners:
            listener(method, path, user_agent, status)
        if verb in READ_VERBS:
            return
        write = Write(
            method=method,
            path=path,
            user_agent=user_agent,
            status=status,
            time=moments.now(),
            verb=verb,
            resource=resource,
            user=user,
            preconditions=preconditions or {},
        )
        self.log.append(write)
        if method == "DELETE":
            self.deletions.append(write)

    @property
    def reads(self) -> Counter[str]:
        """Gets, lists, watches, discovery and questions about rights, by user agent."""
        return self._by_user_agent(writes=False)

    @property
    def writes(self) -> Counter[str]:
        """Requests that ask for a change, by user agent; refused ones and dry runs included."""
        return self._by_user_agent(writes=True)

    def total(self, verb: str, resource: str = "", user_agent: str = "") -> int:
        """How many requests of a verb, of one resource and of clients with a name that contains a text."""
        return sum(
            count
            for (agent, done, on), count in self.counts.items()
            if done == verb and resource in ("", on) and user_agent in agent
        )

    def reset(self) -> None:
        self.counts.clear()
        self.log.clear()
        self.deletions.clear()

    def document(self) -> dict[str, Any]:
        counts = [
            {"user_agent": agent, "verb": verb, "resource": resource, "count": count}
            for (agent, verb, resource), count in sorted(self.counts.items())
        ]
        log = [
            {
                "method": write.method,
                "path": write.path,
                "user_agent": write.user_agent,
                "status": write.status,
                "time": moments.micro_stamp(write.time),
            }
            for write in self.log
        ]
        return {"reads": self.reads, "writes": self.writes, "counts": counts, "log": log}

    def _by_user_agent(self, *, writes: bool) -> Counter[str]:
        totals: Counter[str] = Counter()
        for (agent, verb, _resource), count in self.counts.items():
            if (verb not in READ_VERBS) is writes:
                totals[agent] += count
        return totals
