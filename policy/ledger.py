"""What every health check thinks of every node, kept up to date change by change: the memory behind a scan.

A change of one node costs as much as there are checks that select it, and time costs only the targets whose timeout has
expired, so a fleet of 50,000 nodes is never walked on a tick. It has no clock: every call that needs the time is given it.
What it says depends only on the nodes, the checks and the moment, never on the way there, so any worker says the same.

Judging one node is `policy/verdicts.py`, the brakes are `policy/brakes.py`; what a report shows of all this is drawn up in
`policy/reporting.py`, and keeping the cache that feeds it is `activities/cluster/`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from dataclasses import fields
from datetime import datetime, timedelta
from operator import attrgetter

from policy.brakes import Counts
from policy.healthcheck import HealthCheck, ObjectRef
from policy.nodes import MARK_ANNOTATION, NodeView
from policy.report import ControlPlane, ReportParts
from policy.reporting import Judged, draw_up
from policy.verdicts import Health, Verdict, judge

_content = attrgetter(*(field.name for field in fields(NodeView) if field.name != "resource_version"))
"""All of a view but its resource version, which every heartbeat changes."""

_INSTANT = timedelta(microseconds=1)
"""A timeout has to be *exceeded*: the first moment at which that is so."""

_SPARE_DEADLINES = 1024


class Ledger:
    """Nodes, checks and the verdicts between them. Not thread-safe: one event loop owns it."""

    def __init__(self) -> None:
        self._checks: dict[str, HealthCheck] = {}
        self._bad: dict[str, tuple[ObjectRef, str]] = {}
        self._nodes: dict[str, Judged] = {}
        self._names: list[str] | None = None
        self._sick: dict[str, Judged] = {}
        self._marked: dict[str, Judged] = {}
        self._tallies: dict[str, _Tally] = {}
        self._deadlines: list[tuple[datetime, str, str]] = []
        self._members = 0
        self._members_ready = 0
        self._now: datetime | None = None
        self._version = 0

    @property
    def version(self) -> int:
        """Another number after each change of something that a report shows or a decision depends on, and only then."""
        return self._version

    @property
    def next_due(self) -> datetime | None:
        """The first moment at which `advance` will change a verdict, None while no timeout runs."""
        self._drop_stale_deadlines()
        return self._deadlines[0][0] + _INSTANT if self._deadlines else None

    def __len__(self) -> int:
        return len(self._nodes)

    # Checks ---------------------------------------------------------------------------------------------------------

    def put_check(self, check: HealthCheck) -> None:
        """A check that is new or has changed. Only a change of what it selects or looks for costs a walk over the nodes."""
        key = check.ref.key
        known = self._checks.get(key)
        if known == check:
            return
        self._version += 1
        self._bad.pop(key, None)
        self._checks[key] = check
        if known is not None and (known.selector, known.conditions) == (check.selector, check.conditions):
            return
        self._forget(key)
        self._tallies[key] = _Tally()
        for judged in self._nodes.values():
            if check.selector.matches(judged.view.labels):
                self._judge(judged, check)

    def put_bad_check(self, ref: ObjectRef, error: str) -> None:
        """A check that can't be used as written. It selects nothing and admits nothing; what it said before is forgotten, so
        that every worker says the same, and the other checks go on."""
        if self._bad.get(ref.key) == (ref, error):
            return
        self._version += 1
        if self._checks.pop(ref.key, None) is not None:
            self._forget(ref.key)
        self._bad[ref.key] = (ref, error)

    def remove_check(self, key: str) -> None:
        """A check that was deleted, good or bad."""
        known, bad = self._checks.pop(key, None), self._bad.pop(key, None)
        if known is not None:
            self._forget(key)
        if known is not None or bad is not None:
            self._version += 1

    # Nodes ----------------------------------------------------------------------------------------------------------

    def put_node(self, node: NodeView, now: datetime) -> None:
        """A node as last seen, new or changed."""
        self._now = now if self._now is None else max(self._now, now)
        judged = self._nodes.get(node.name)
        if judged is None:
            judged = Judged(node)
            self._add(judged)
            self._select(judged)
            return
        before = judged.view
        if _content(before) == _content(node):
            judged.view = node
            return
        shown = judged.shown()
        self._uncount(judged)
        judged.view = node
        judged.marked = MARK_ANNOTATION in node.annotations
        self._count(judged)
        if before.labels == node.labels:
            for key in tuple(judged.verdicts):
                self._judge(judged, self._checks[key])
        else:
            self._select(judged)
        if judged.shown() != shown:
            self._version += 1

    def remove_node(self, name: str) -> None:
        """A Node object that is gone."""
        judged = self._nodes.pop(name, None)
        if judged is None:
            return
        self._version += 1
        self._uncount(judged)
        judged.verdicts.clear()
        self._sick.pop(name, None)
        if self._names is not None:
            del self._names[bisect_left(self._names, name)]

    # Time -----------------------------------------------------------------------------------------------------------

    def advance(self, now: datetime) -> None:
        """Judge again whatever time alone has changed. Where the clock has stepped back, that is every node that ails."""
        stepped_back = self._now is not None and now < self._now
        self._now = now
        if stepped_back:
            for judged in tuple(self._sick.values()):
                self._judge_again(judged, tuple(judged.verdicts))
        while self._deadlines and self._deadlines[0][0] < now:
            due, name, key = heapq.heappop(self._deadlines)
            ailing = self._sick.get(name)
            if ailing is not None and ailing.due(key) == due:
                self._judge_again(ailing, (key,))

    def report_parts(self, now: datetime, watching: Collection[str] = ()) -> ReportParts:
        """What is known now. watching: nodes of open episodes, observed even without our mark and even when they are gone."""
        self.advance(now)
        return draw_up(
            checks=self._checks,
            bad=self._bad,
            counts={key: tally.counts() for key, tally in self._tallies.items()},
            nodes=self._nodes,
            sick=self._sick,
            marked=self._marked,
            watching=frozenset(watching),
            names=self._in_order(),
            control_plane=ControlPlane(members=self._members, ready=self._members_ready),
            next_due=self.next_due,
        )

    # Inside ---------------------------------------------------------------------------------------------------------

    def _add(self, judged: Judged) -> None:
        self._version += 1
        self._nodes[judged.view.name] = judged
        self._count(judged)
        if self._names is not None:
            insort(self._names, judged.view.name)

    def _in_order(self) -> Iterator[str]:
        if self._names is None:
            self._names = sorted(self._nodes)
        return iter(self._names)

    def _count(self, judged: Judged) -> None:
        """Put a node into every count and index that its view alone decides."""
        if judged.view.control_plane:
            self._members += 1
            self._members_ready += judged.view.ready
        if judged.marked:
            self._marked[judged.view.name] = judged
        for key, verdict in judged.verdicts.items():
            self._tallies[key].add(verdict, judged.marked, 1)

    def _uncount(self, judged: Judged) -> None:
        if judged.view.control_plane:
            self._members -= 1
            self._members_ready -= judged.view.ready
        self._marked.pop(judged.view.name, None)
        for key, verdict in judged.verdicts.items():
            self._tallies[key].add(verdict, judged.marked, -1)

    def _select(self, judged: Judged) -> None:
        """Find out which checks select a node whose labels are new."""
        for key, check in self._checks.items():
            if check.selector.matches(judged.view.labels):
                self._judge(judged, check)
            elif key in judged.verdicts:
                self._withdraw(judged, key)

    def _judge_again(self, judged: Judged, keys: Collection[str]) -> None:
        before = judged.shown()
        for key in keys:
            self._judge(judged, self._checks[key])
        if judged.shown() != before:
            self._version += 1

    def _judge(self, judged: Judged, check: HealthCheck) -> None:
        assert self._now is not None, "a node was put, so the time is known"
        key, name = check.ref.key, judged.view.name
        before = judged.verdicts.get(key)
        verdict = judge(check, judged.view, self._now)
        if verdict == before:
            return
        if before is not None:
            self._tallies[key].add(before, judged.marked, -1)
        self._tallies[key].add(verdict, judged.marked, 1)
        judged.verdicts[key] = verdict
        if verdict.health is not Health.HEALTHY:
            self._sick[name] = judged
        elif not judged.sick:
            self._sick.pop(name, None)
        if verdict.due is not None and (before is None or before.due != verdict.due):
            self._drop_surplus_deadlines()
            heapq.heappush(self._deadlines, (verdict.due, name, key))

    def _withdraw(self, judged: Judged, key: str) -> None:
        self._tallies[key].add(judged.verdicts.pop(key), judged.marked, -1)
        if not judged.sick:
            self._sick.pop(judged.view.name, None)

    def _forget(self, key: str) -> None:
        if key in self._tallies:
            for judged in self._nodes.values():
                if key in judged.verdicts:
                    self._withdraw(judged, key)
            del self._tallies[key]

    def _runs(self, deadline: tuple[datetime, str, str]) -> bool:
        due, name, key = deadline
        judged = self._sick.get(name)
        return judged is not None and judged.due(key) == due

    def _drop_stale_deadlines(self) -> None:
        while self._deadlines and not self._runs(self._deadlines[0]):
            heapq.heappop(self._deadlines)

    def _drop_surplus_deadlines(self) -> None:
        """A flapping node leaves a stale deadline with every flap; they must not pile up until they would be due."""
        if len(self._deadlines) > _SPARE_DEADLINES + 4 * len(self._sick):
            self._deadlines = [deadline for deadline in self._deadlines if self._runs(deadline)]
            heapq.heapify(self._deadlines)


class _Tally:
    """The counts of one check while they change; a healthy node that is still marked counts as recovering."""

    __slots__ = ("_by_health", "_recovering")

    def __init__(self) -> None:
        self._by_health = dict.fromkeys(Health, 0)
        self._recovering = 0

    def add(self, verdict: Verdict, marked: bool, number: int) -> None:
        if marked and verdict.health is Health.HEALTHY:
            self._recovering += number
        else:
            self._by_health[verdict.health] += number

    def counts(self) -> Counts:
        return Counts(
            healthy=self._by_health[Health.HEALTHY],
            soon=self._by_health[Health.SOON],
            unhealthy=self._by_health[Health.UNHEALTHY],
            skipped=self._by_health[Health.SKIPPED],
            recovering=self._recovering,
        )
